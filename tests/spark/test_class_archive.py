"""The second start on a machine maps the classes that the first one has archived."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from pairbus.spark.class_archive import VARIABLES, archive_options, is_whole
from pairbus.usage.ledger import Ledger
from tests.waiting import wait_until

SPARK = Path(pyspark.__file__).parent
SMALL_PROGRAM = "org.apache.spark.launcher.Main"
"""A program of Spark that prints a command and ends."""
SPARK_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
START_SPARK = """
from pathlib import Path
from pairbus.spark.sessions import create_session

spark = create_session(None)
assert spark.range(3).count() == 3
jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
print("\\nmaps", ".jsa" in Path(f"/proc/{jvm}/maps").read_text().replace("classes.jsa", ""))
"""


def start_java(home: Path, log: Path) -> str:
    """Run a small program of Spark with the options of an archive. Return the loaded classes."""
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    options = [*archive_options(home, "streams"), f"-Xlog:class+load:file={log}"]
    subprocess.run(
        [java, *options, "-cp", f"{SPARK / 'jars'}/*", SMALL_PROGRAM, SPARK_SUBMIT, "--version"],
        env={**os.environ, "SPARK_HOME": str(SPARK), "SPARK_SCALA_VERSION": "2.13"},
        check=True,
        capture_output=True,
    )
    return log.read_text()


def test_second_java_maps_the_classes_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    loaded = f"{SMALL_PROGRAM} source: "
    home = tmp_path / "home"
    home.mkdir()

    assert f"{loaded}file:" in start_java(home, tmp_path / "first")
    assert f"{loaded}shared objects file (top)" in start_java(home, tmp_path / "second")


def run_python(cache: Path, *arguments: str) -> str:
    """Run Python with an empty cache folder, and return the output."""
    variables = {name: text for name, text in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
    run = subprocess.run(
        [sys.executable, *arguments],
        env={**variables, "XDG_CACHE_HOME": str(cache)},
        check=True,
        capture_output=True,
        text=True,
    )
    return run.stdout


def has_whole_draft(cache: Path) -> bool:
    """Java writes the file when it ends, which may be after Python."""
    return any(is_whole(draft) for draft in cache.rglob("classes-*.draft"))


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_second_start_of_spark_maps_the_classes_of_the_first(tmp_path: Path) -> None:
    assert "maps False" in run_python(tmp_path, "-c", START_SPARK)
    wait_until(lambda: has_whole_draft(tmp_path), "the archive of the first JVM")

    assert "maps True" in run_python(tmp_path, "-c", START_SPARK)
    (archive,) = tmp_path.rglob("classes-streams-*.jsa")
    assert archive.stat().st_size > 10_000_000


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_report_does_not_wait_for_the_archive(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", writer="pairing"):
        pass

    run_python(tmp_path, "-m", "pairbus", "cost", "report", str(tmp_path / "ledger"))

    assert not has_whole_draft(tmp_path)
    wait_until(lambda: has_whole_draft(tmp_path), "the archive")
