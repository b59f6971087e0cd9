"""Estimates from samples, the pace of inspections, and the time of an outage."""

from itertools import pairwise

import pytest

from pairbus.backlog.message import BacklogMessage
from pairbus.console.estimates import QueueSample, estimate, sample_positions
from pairbus.console.outage import (
    IDLE_INTERVAL_S,
    OUTAGE_INTERVAL_S,
    WATCHED_INTERVAL_S,
    InspectionCounter,
    OutageClock,
    inspection_interval_s,
)

pytestmark = pytest.mark.rule("O2")


def message(destination: str | None, reason: str | None = None, time: int = 5) -> BacklogMessage:
    return BacklogMessage(
        queue="q",
        payload=b"",
        destination=destination,
        dead_letter_reason=reason,
        enqueued_ms=time,
    )


def test_complete_sample_is_exact():
    sample = QueueSample((message("a", time=9), message("a", time=4), message("b")), 3)

    groups = estimate([sample], by_reason=False)

    assert sample.complete
    assert [(group.destination, group.messages, group.oldest_ms) for group in groups] == [
        ("a", 2, 4),
        ("b", 1, 5),
    ]


def test_message_of_a_sample_stands_for_many():
    large = QueueSample((message("a"),) * 3 + (message("b"),), 4_000)
    small = QueueSample((message("b"),), 1)

    groups = estimate([large, small, QueueSample((), 7)], by_reason=False)

    assert not large.complete
    assert [(group.destination, round(group.messages)) for group in groups] == [
        ("a", 3_000),
        ("b", 1_001),
    ]


def test_dead_letters_are_grouped_by_reason():
    sample = QueueSample((message("a", "x"), message("a", None), message(None, "x")), 3)

    groups = estimate([sample], by_reason=True)

    assert {(group.destination, group.reason) for group in groups} == {
        ("a", "x"),
        ("a", None),
        (None, "x"),
    }


@pytest.mark.parametrize("total", [1, 50, 51, 60, 1_000, 10**9])
def test_sample_reaches_from_the_oldest_to_the_newest(total: int):
    places = list(sample_positions(101, total, 50))

    assert places[0][0] == 101
    assert sum(count for _, count in places) == min(total, 50)
    assert all(a + count <= b for (a, count), (b, _) in pairwise(places))
    last, count = places[-1]
    assert abs(last + count - (101 + total)) <= max(40, total // 1000)


def test_inspections_are_rare_when_nothing_happens():
    assert inspection_interval_s(active=False, watched=False) == IDLE_INTERVAL_S
    assert inspection_interval_s(active=False, watched=True) == WATCHED_INTERVAL_S
    assert inspection_interval_s(active=True, watched=False) == OUTAGE_INTERVAL_S


def test_operations_per_hour_are_those_of_the_current_pace():
    counter = InspectionCounter()
    counter.finish(1, 80)
    counter.finish(1, None)

    assert counter.operations == 82
    assert counter.per_hour(15) == 240 + 80 * 60
    counter.finish(1, 0)
    assert counter.per_hour(300) == 12


def test_outage_begins_with_the_first_path_that_failed():
    clock = OutageClock()

    assert not clock.update(False, None, 10)
    assert clock.update(True, 15, 20)
    assert clock.started_at == 15
    assert not clock.update(True, 12, 30)
    assert clock.started_at == 12
    clock.update(False, None, 40)
    assert clock.started_at == 12
    assert clock.update(True, None, 50)
    assert clock.started_at == 50
