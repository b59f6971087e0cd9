"""The times of reports to a console."""

from random import Random

import pytest

from pairbus.pairing.console_schedule import (
    CHANGE_GAP_S,
    FIRST_PAUSE_S,
    INTERVAL_JITTER,
    INTERVAL_S,
    MAX_PAUSE_S,
    ReportSchedule,
)

pytestmark = pytest.mark.rule("O4")


@pytest.fixture
def schedule() -> ReportSchedule:
    return ReportSchedule(100.0, Random(1))


def test_first_report_is_due_at_once(schedule: ReportSchedule) -> None:
    assert schedule.due == 100.0


def test_reports_without_changes_follow_each_other_within_the_interval() -> None:
    schedules = [ReportSchedule(0.0, Random(seed)) for seed in range(200)]
    for schedule in schedules:
        schedule.succeeded(100.0)

    due = [schedule.due - 100.0 for schedule in schedules]

    assert max(due) <= INTERVAL_S
    assert min(due) >= INTERVAL_S * (1 - INTERVAL_JITTER)
    assert max(due) - min(due) > INTERVAL_S * INTERVAL_JITTER / 2  # they spread


def test_change_is_reported_at_once(schedule: ReportSchedule) -> None:
    schedule.succeeded(100.0)

    schedule.changed(105.0)

    assert schedule.due == 105.0


def test_changes_that_follow_quickly_are_in_one_report(schedule: ReportSchedule) -> None:
    schedule.succeeded(100.0)

    for number in range(50):
        schedule.changed(100.0 + number / 100)

    assert schedule.due == 100.0 + CHANGE_GAP_S


def test_change_does_not_postpone_a_report(schedule: ReportSchedule) -> None:
    schedule.succeeded(100.0)
    due = schedule.due

    schedule.changed(due + 3)

    assert schedule.due == due


def test_pauses_after_failures_double_up_to_a_limit_and_are_random() -> None:
    pauses: list[list[float]] = []
    for seed in range(100):
        schedule = ReportSchedule(0.0, Random(seed))
        times = []
        for _ in range(2000):
            schedule.failed(100.0)
            times.append(schedule.due - 100.0)
        pauses.append(times)

    for attempt in range(2000):
        longest = min(FIRST_PAUSE_S * 2 ** min(attempt, 10), MAX_PAUSE_S)
        at = [times[attempt] for times in pauses]
        assert longest / 2 <= min(at) <= max(at) <= longest
        assert max(at) - min(at) > longest / 4


def test_changes_do_not_shorten_the_pause_after_a_failure(schedule: ReportSchedule) -> None:
    for _ in range(5):
        schedule.failed(100.0)
    due = schedule.due

    schedule.changed(101.0)

    assert schedule.due == due


def test_answered_report_ends_the_pauses(schedule: ReportSchedule) -> None:
    for _ in range(5):
        schedule.failed(100.0)

    schedule.succeeded(200.0)

    assert schedule.failures == 0
    schedule.changed(205.0)
    assert schedule.due == 205.0
    schedule.failed(205.0)
    assert schedule.due <= 205.0 + FIRST_PAUSE_S
