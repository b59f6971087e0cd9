"""A Python process that starts too late for Spark does not end a syphon."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.backlog import Backlog
from tests.faults.conftest import StartSyphon
from tests.messages import numbered
from tests.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def slow_python(folder: Path) -> Path:
    """Create a Python whose first process for a streaming source starts too late. It creates a file
    `delayed`."""
    script = folder / "python"
    script.write_text(
        dedent(f"""\
        #!/bin/sh
        case "$*" in
          *python_streaming_source_runner*)
            if [ ! -e {folder}/delayed ]; then touch {folder}/delayed; sleep 30; fi ;;
        esac
        exec {sys.executable} "$@"
        """)
    )
    script.chmod(0o755)
    return script


@pytest.mark.rule("Y8")
def test_source_that_starts_too_late_is_started_again(
    backlog: Backlog, start_syphon: StartSyphon, tmp_path: Path
) -> None:
    path = backlog.path("orders")
    backlog.put(path, numbered(20))
    with start_syphon("syphon", "--once", PYSPARK_PYTHON=str(slow_python(tmp_path))) as process:
        wait_until(lambda: not process.runs, "the command to end")

        assert (tmp_path / "delayed").exists()
        assert "Spark gave up a Python process" in process.output
        assert process.exit_code == 0, process.output
    assert len(backlog.ids(path)) == 20
