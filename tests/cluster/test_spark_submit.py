"""The job in docs/how-to/cluster.md, as `spark-submit` runs it."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.backlog import Backlog
from tests.cluster.servers import HOME, worker_environment
from tests.messages import numbered
from tests.waiting import DEADLINE_S

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "cluster.md"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worker_environment(tmp_path_factory.mktemp("worker") / "python")


@pytest.fixture(scope="module")
def backlog() -> Iterator[Backlog]:
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        yield Backlog(primary, secondary)


def submit(folder: Path, backlog: Backlog, python: Path, **variables: str) -> tuple[int, str]:
    """Run the job with the names of a backlog, and return its exit status and its output."""
    page = PAGE.read_text()
    (text,) = re.findall(r"```python\n(import os\n.*?)```", page, re.DOTALL)
    (command,) = re.findall(r"```\n(.* spark-submit .*)\n```", page)
    names = f'primary_name="{backlog.name}",\n    backlog_queue_count=2,\n'
    job = folder / "drain.py"
    job.write_text(text.replace("primary=os", f"{names}    primary=os"))
    for shown, actual in (
        ("/opt/pairbus/bin/python", sys.executable),
        ("/opt/env/bin/python", python),
        ("spark-submit", HOME / "bin" / "spark-submit"),
        ("spark://host:7077", "local[2,4]"),
        ("drain.py", job),
    ):
        assert shown in command
        command = command.replace(shown, shlex.quote(str(actual)))
    result = subprocess.run(
        command,
        shell=True,
        env={**os.environ, **backlog.variables, "SPARK_LOCAL_IP": "127.0.0.1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return result.returncode, result.stdout


@pytest.mark.rule("Y1")
def test_job_drains_the_backlog_with_workers_that_lack_the_package(
    backlog: Backlog, python: Path, tmp_path: Path
) -> None:
    path = backlog.path("orders")
    backlog.put(path, numbered(100))

    status, output = submit(tmp_path, backlog, python)

    assert status == 0, output
    assert (backlog.left(), len(backlog.ids(path))) == (0, 100)


def test_job_fails_if_its_query_fails(backlog: Backlog, tmp_path: Path) -> None:
    backlog.put(backlog.path("other"), numbered(1))

    status, output = submit(tmp_path, backlog, tmp_path / "no-python")

    assert status != 0
    assert f"{tmp_path}/no-python" in output
    assert backlog.left() == 1
