"""The samples of the charts."""

from pathlib import Path

import pytest

from pairbus.console.history import KEPT_S, MAX_POINTS, SAMPLE_S, History, HistorySample, thin_out
from pairbus.console.storage import ConsoleDatabase

pytestmark = pytest.mark.rule("O2")

NOW = 1_000_000.0


def test_history_returns_the_last_seconds_as_columns():
    history = History(ConsoleDatabase(None), NOW)
    for n in range(4):
        history.add(NOW + n * SAMPLE_S, n, n / 2, 10 * n)

    assert history.since(2 * SAMPLE_S, NOW + 3 * SAMPLE_S) == {
        "times": [1_000_010, 1_000_020, 1_000_030],
        "backlog": [1, 2, 3],
        "rate": [0.5, 1.0, 1.5],
        "throttled": [60, 60, 60],
    }


def test_history_survives_a_restart(tmp_path: Path):
    path = tmp_path / "console.sqlite3"
    database = ConsoleDatabase(path)
    History(database, NOW).add(NOW, 5, None, 0)
    database.close()

    history = History(ConsoleDatabase(path), NOW + 60)

    assert history.since(3600, NOW + 60)["backlog"] == [5]
    assert History(ConsoleDatabase(path), NOW + KEPT_S + 1).since(10**9, NOW)["times"] == []


def test_time_in_which_the_console_did_not_run_is_a_gap():
    history = History(ConsoleDatabase(None), NOW)
    for seconds in (0, 10, 600, 610):
        history.add(NOW + seconds, 7, None, 0)

    assert history.since(3600, NOW + 610) == {
        "times": [1_000_000, 1_000_010, 1_000_305, 1_000_600, 1_000_610],
        "backlog": [7, 7, None, 7, 7],
        "rate": [None] * 5,
        "throttled": [0, 0, None, 0, 0],
    }


def test_late_sample_is_not_a_gap():
    history = History(ConsoleDatabase(None), NOW)
    for seconds in (0, 29, 40):
        history.add(NOW + seconds, 7, None, 0)

    assert history.since(3600, NOW + 40)["backlog"] == [7, 7, 7]


def test_sample_is_due_after_ten_seconds_and_when_the_clock_was_set_back():
    history = History(ConsoleDatabase(None), NOW)

    assert history.is_due(NOW)
    history.add(NOW, 1, None, 0)
    assert not history.is_due(NOW + SAMPLE_S - 1)
    assert history.is_due(NOW + SAMPLE_S)
    assert history.is_due(NOW - 5000)
    history.add(NOW - 5000, 2, None, 0)
    assert history.since(10**9, NOW)["backlog"] == [2]


def test_throttled_operations_of_the_last_seconds_are_added_up(tmp_path: Path):
    path = tmp_path / "console.sqlite3"
    history = History(ConsoleDatabase(path), NOW)
    for n, total in enumerate((1, 31, 31, 36)):
        history.add(NOW + n * SAMPLE_S, 0, 0.0, total)

    assert history.since(3600, NOW + 30)["throttled"] == [6, 180, 0, 30]
    assert history.throttled_since(3600, NOW + 30) == 36
    assert history.throttled_since(2 * SAMPLE_S, NOW + 30) == 5
    restarted = History(ConsoleDatabase(path), NOW + 40)
    restarted.add(NOW + 40, 0, 0.0, 2)
    assert restarted.throttled_since(3600, NOW + 40) == 38


def test_many_samples_are_thinned_out_without_losing_a_peak():
    samples = [HistorySample(n, 900 if n == 4_321 else 1, None, 1) for n in range(8_640)]

    thinned = thin_out(samples, MAX_POINTS)

    assert len(thinned) <= MAX_POINTS
    assert max(sample.backlog or 0 for sample in thinned) == 900
    assert {sample.throttled for sample in thinned} == {1}
    assert thinned[-1].time == 8_639
