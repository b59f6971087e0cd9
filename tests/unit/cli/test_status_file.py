"""The status file that `pairbus syphon` writes and `pairbus status` reads."""

import json
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pairbus.backlog.syphon_file import SyphonSummary, parse_syphon_status
from pairbus.cli.syphon_run import write_status_file


@pytest.mark.parametrize("remaining", [3, None])
@pytest.mark.parametrize("problem", [None, "no progress"])
def test_status_command_reads_the_file_that_the_syphon_writes(
    tmp_path: Path, remaining: int | None, problem: str | None
) -> None:
    path = tmp_path / "status.json"
    status: Any = SimpleNamespace(
        running=True,
        healthy=problem is None,
        paused=False,
        problem=problem,
        moved=Counter({"orders": 5, "bills": 1}),
        dead_lettered=Counter(),
        errors={"down": "disabled"},
    )

    write_status_file(path, status, remaining, 2.5)
    summary = parse_syphon_status(json.loads(path.read_text()), time.time())

    assert summary == SyphonSummary(True, problem, 6, remaining, 2.5)


def test_pause_is_part_of_the_status_file(tmp_path: Path) -> None:
    values = {"running": True, "healthy": True, "problem": None, "moved": {}, "remaining": 3}
    values |= {"rate": 0, "time": time.time(), "paused": True}

    assert parse_syphon_status(values, time.time()).paused
