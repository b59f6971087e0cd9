"""The status file that `pairbus syphon` writes and `pairbus status` reads."""

import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pairbus.backlog.syphon_file import SyphonSummary, parse_syphon_status
from pairbus.cli.syphon_status_file import combined_values, status_values, write_status_file
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
        throttled_sends=4,
        throttled_receives=7,
    )

    progress = DrainProgress()
    progress.add(0.0, 1)
    if remaining is not None:
        progress.add_count(0.0, 1, 8)
    progress.add(2.0, 6)

    write_status_file(path, status_values(status, progress))
    summary = parse_syphon_status(json.loads(path.read_text()), time.time())

    reasons = {"orders": {"Refused": 2}}
    seconds = None if remaining is None else 3 / 2.5
    expected = SyphonSummary(True, problem, 6, remaining, 2.5, reasons, seconds)
    assert summary == replace(expected, throttled_sends=4, throttled_receives=7)


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

    write_status_file(path, status_values(initial_status(), DrainProgress(), ended))
    values = json.loads(path.read_text())
    summary = parse_syphon_status(values, time.time())

    assert (values["running"], values["ended"]) == (False, ended)
    assert (summary.running, summary.problem) == (False, problem)


def test_pause_is_part_of_the_status_file(tmp_path: Path) -> None:
    values = {"running": True, "healthy": True, "problem": None, "moved": {}, "remaining": 3}
    values |= {"rate": 0, "time": time.time(), "paused": True}

    assert parse_syphon_status(values, time.time()).paused


def test_file_of_an_older_version_has_no_throttled_operations() -> None:
    values = {"running": True, "healthy": True, "problem": None, "moved": {}, "remaining": 3}

    assert parse_syphon_status(values | {"rate": 0, "time": 0.0}, 0.0).throttled is None


def pairing_values(removed: int, count: int | None, ended: str | None = None) -> dict[str, Any]:
    """Return the values of a pairing that removed messages in 2 seconds."""
    status = replace(
        initial_status(),
        moved=Counter(orders=removed),
        throttled_sends=removed,
        throttled_receives=1,
        dead_letter_reasons={"orders": Counter(Refused=1)},
    )
    progress = DrainProgress()
    progress.add(0.0, 0)
    if count is not None:
        progress.add_count(0.0, 0, count)
    progress.add(2.0, removed)
    return status_values(status, progress, ended)


@pytest.mark.rule("Y12")
def test_remaining_messages_and_time_to_go_of_several_pairings(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    pairings = {"slow": pairing_values(10, 30), "fast": pairing_values(100, 200)}

    write_status_file(path, combined_values(pairings))
    values = json.loads(path.read_text())
    summary = parse_syphon_status(values, time.time())

    assert (summary.moved, summary.remaining, summary.rate) == (110, 120, 55.0)
    assert (summary.throttled_sends, summary.throttled_receives) == (110, 2)
    assert summary.seconds_to_go == 20 / 5  # of the slow one: they drain at the same time
    assert summary.dead_letter_reasons["fast: orders"] == {"Refused": 1}
    assert [each["remaining"] for each in values["pairings"].values()] == [20, 100]


@pytest.mark.rule("Y12")
def test_number_that_one_pairing_does_not_know_is_not_known_for_all() -> None:
    values = combined_values({"a": pairing_values(10, None), "b": pairing_values(10, 10)})

    assert (values["remaining"], values["seconds_to_go"]) == (None, None)
    assert values["pairings"]["b"]["remaining"] == 0


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (("drained", None), None),
        (("drained", "drained"), "drained"),
        (("drained", "stuck"), "stuck"),
        (("failed", "stuck"), "failed"),
    ],
)
def test_end_of_several_pairings_is_the_worst(
    ends: tuple[str | None, ...], expected: str | None
) -> None:
    values = combined_values({str(n): pairing_values(1, 1, end) for n, end in enumerate(ends)})

    assert (values["ended"], values["running"]) == (expected, expected is None)
