"""The schedule that the tasks of a machine share."""

import multiprocessing
from pathlib import Path

import pytest

from pairbus.spark.rate_schedule import (
    MAX_LATE_S,
    OBSERVED_SECONDS,
    RateSchedule,
    ScheduleState,
)

pytestmark = pytest.mark.rule("Y9")
NOW = 1_000_000.0


def test_operations_are_due_one_after_the_other():
    state = ScheduleState(due_at=NOW)
    assert [state.reserve(NOW, 10, 100.0) for _ in range(3)] == pytest.approx(
        [NOW, NOW + 0.1, NOW + 0.2]
    )


def test_time_without_operations_is_not_caught_up():
    state = ScheduleState(due_at=NOW - 60)
    assert state.reserve(NOW, 10, 100.0) == NOW - MAX_LATE_S
    assert state.reserve(NOW, 10, 100.0) == pytest.approx(NOW - MAX_LATE_S + 0.1)


def test_messages_that_did_not_come_leave_their_time_to_others():
    state = ScheduleState(due_at=NOW)
    state.reserve(NOW, 10, 100.0)
    state.give_back(10, 100.0)
    assert state.reserve(NOW, 10, 100.0) == pytest.approx(NOW)


def test_observed_rate_is_that_of_the_best_second_lately():
    state = ScheduleState()
    assert state.observed(NOW) is None
    for second, messages in enumerate([10, 30, 20]):
        state.count(NOW + second, messages)
    assert state.observed(NOW + 3) == 30
    assert state.observed(NOW + 3 + OBSERVED_SECONDS) is None


def test_few_seconds_are_remembered():
    state = ScheduleState()
    for second in range(100):
        state.count(NOW + second, 1)
    assert len(state.seconds) == OBSERVED_SECONDS


def test_schedules_of_one_file_are_one(tmp_path: Path):
    for _ in range(2):
        with RateSchedule(tmp_path / "send.json").open() as state:
            state.count(NOW, 5)
            due_at = state.reserve(NOW, 10, 100.0)
    assert due_at == pytest.approx(NOW - MAX_LATE_S + 0.1)
    with RateSchedule(tmp_path / "send.json").open() as state:
        assert state.observed(NOW) == 10


def count_many(path: Path) -> None:
    schedule = RateSchedule(path)
    for _ in range(200):
        with schedule.open() as state:
            state.count(NOW, 1)


def test_processes_do_not_lose_what_others_count(tmp_path: Path):
    path = tmp_path / "send.json"
    spawn = multiprocessing.get_context("fork")
    processes = [spawn.Process(target=count_many, args=(path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    with RateSchedule(path).open() as state:
        assert state.observed(NOW) == 600


@pytest.mark.parametrize("content", ["", "{", "[]", '{"unknown": 1}'])
def test_damaged_file_is_replaced(tmp_path: Path, content: str):
    path = tmp_path / "send.json"
    path.write_text(content)
    with RateSchedule(path).open() as state:
        state.count(NOW, 5)
    with RateSchedule(path).open() as state:
        assert state.observed(NOW) == 5


def test_schedule_without_its_folder_is_kept_in_memory(tmp_path: Path):
    schedule = RateSchedule(tmp_path / "gone" / "send.json")
    for _ in range(2):
        with schedule.open() as state:
            state.count(NOW, 5)
    with schedule.open() as state:
        assert state.observed(NOW) == 10
