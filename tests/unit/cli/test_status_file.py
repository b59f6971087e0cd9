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
from pairbus.syphon.progress import DrainProgress
from pairbus.syphon.status import initial_status


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
        dead_lettered=Counter({"orders": 2}),
        dead_letter_reasons={"orders": Counter({"Refused": 2})},
        errors={"down": "disabled"},
    )

    progress = DrainProgress()
    progress.add(0.0, 1)
    if remaining is not None:
        progress.add_count(0.0, 1, 8)
    progress.add(2.0, 6)

    write_status_file(path, status, progress)
    summary = parse_syphon_status(json.loads(path.read_text()), time.time())

    reasons = {"orders": {"Refused": 2}}
    seconds = None if remaining is None else 3 / 2.5
    assert summary == SyphonSummary(True, problem, 6, remaining, 2.5, reasons, seconds)


@pytest.mark.parametrize(
    ("ended", "problem"),
    [
        ("drained", "it has drained the backlog and ended"),
        ("stopped", "it was stopped"),
        ("stuck", "it ended without progress"),
        ("failed", "it failed"),
    ],
)
def test_file_of_a_syphon_that_ended_says_how(tmp_path: Path, ended: str, problem: str) -> None:
    path = tmp_path / "status.json"

    write_status_file(path, initial_status(), DrainProgress(), ended)
    values = json.loads(path.read_text())
    summary = parse_syphon_status(values, time.time())

    assert (values["running"], values["ended"]) == (False, ended)
    assert (summary.running, summary.problem) == (False, problem)


def test_pause_is_part_of_the_status_file(tmp_path: Path) -> None:
    values = {"running": True, "healthy": True, "problem": None, "moved": {}, "remaining": 3}
    values |= {"rate": 0, "time": time.time(), "paused": True}

    assert parse_syphon_status(values, time.time()).paused
