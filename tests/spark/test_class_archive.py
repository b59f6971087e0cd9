"""The second start of Spark on a machine maps the classes that the first one has archived."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

SCRIPT = """
from pathlib import Path
from pairbus.spark.sessions import create_session

spark = create_session(None)
assert spark.range(3).count() == 3
jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
print("\\nmaps", ".jsa" in Path(f"/proc/{jvm}/maps").read_text().replace("classes.jsa", ""))
"""


def start_spark(cache: Path) -> str:
    variables = {name: text for name, text in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**variables, "XDG_CACHE_HOME": str(cache)},
        check=True,
        capture_output=True,
        text=True,
    )
    return run.stdout


def test_second_start_maps_the_classes_of_the_first(tmp_path: Path) -> None:
    assert "maps False" in start_spark(tmp_path)

    def is_written() -> bool:  # Java writes the file when it ends, which may be after Python
        drafts = list(tmp_path.rglob("classes-streams-*.draft"))
        return bool(drafts) and any(drafts[0].read_bytes()[:4])

    wait_until(is_written, "the archive of the first JVM")

    assert "maps True" in start_spark(tmp_path)
    (archive,) = tmp_path.rglob("classes-streams-*.jsa")
    assert archive.stat().st_size > 10_000_000
