"""The guard of the instructions of hot paths."""

import json
from pathlib import Path

import pytest

from benchmarks.hot_paths import guard
from benchmarks.hot_paths.guard import BOUND, Comparison, CountedPath, compare, figures_of

PATHS = [
    CountedPath("reference", 10, None, 1000),
    CountedPath("plain", 2, None, 4000),
    CountedPath("paired", 2, "plain", 4600),
    CountedPath("emulator", 4, None, 2000),
]


def test_figure_is_the_count_of_a_message_in_loops_of_the_reference_without_its_baseline() -> None:
    assert figures_of(PATHS) == {"paired": 3.0, "emulator": 5.0}


@pytest.mark.parametrize(
    ("kept", "figure", "failed"),
    [
        (10.0, 9.0, False),
        (10.0, 11.0, False),
        (10.0, 11.01, True),
        (-10.0, -10.0, False),
        (-10.0, -9.01, False),
        (-10.0, -8.9, True),
    ],
)
def test_figure_above_the_bound_fails(kept: float, figure: float, failed: bool) -> None:
    assert BOUND == 1.1
    (comparison,) = compare({"paired": figure}, {"paired": kept})

    assert comparison.failed is failed
    assert ("FAILED" in str(comparison)) is failed


def test_path_without_a_kept_figure_does_not_fail() -> None:
    (comparison,) = compare({"new": 5.0}, {"paired": 10.0})

    assert comparison == Comparison("new", 5.0, None)
    assert not comparison.failed


def test_figures_are_kept_for_each_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "figures.json"
    guard.keep({"paired": 3.0}, file)
    monkeypatch.setattr(guard, "interpreter", lambda: "another")
    guard.keep({"paired": 4.0}, file)

    kept = guard.read_kept(file)
    monkeypatch.undo()
    assert kept == {guard.interpreter(): {"paired": 3.0}, "another": {"paired": 4.0}}


@pytest.mark.parametrize(
    ("kept", "status", "said"),
    [
        ({"emulator": 5.0, "paired": 3.0}, 0, "+0.0%"),
        ({"emulator": 5.0, "paired": 2.5}, 1, "FAILED"),
        (None, 0, "No figures are kept for this interpreter"),
    ],
)
def test_guard_fails_only_for_a_path_that_was_compared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kept: dict[str, float] | None,
    status: int,
    said: str,
) -> None:
    file = tmp_path / "figures.json"
    file.write_text(json.dumps({} if kept is None else {guard.interpreter(): kept}))
    monkeypatch.setattr(guard, "FIGURES", file)
    monkeypatch.setattr(guard, "can_count", lambda: True)
    monkeypatch.setattr(guard, "count", lambda: PATHS)

    assert guard.main([]) == status
    assert said in capsys.readouterr().out


def test_missing_valgrind_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "can_count", lambda: False)

    assert guard.main([]) == 2


def test_figures_are_kept_for_five_hot_paths() -> None:
    kept = guard.read_kept()
    assert kept
    for figures in kept.values():
        assert sorted(figures) == [
            "drain: restore and forward",
            "emulator: accept a batch",
            "emulator: deliver and settle",
            "pairing: healthy send",
            "pairing: send in failover",
        ]
