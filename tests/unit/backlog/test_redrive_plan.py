"""The plan of a redrive, its rate and its pauses."""

import json

import pytest

from pairbus.backlog.redrive_outcome import RedriveOutcome, outcome_from_json
from pairbus.backlog.redrive_pace import MAX_BACKOFF_S, Backoff, RedriveRate
from pairbus.backlog.redrive_plan import PlanBuilder, SequenceNumberSet, plan_from_json
from pairbus.errors import ConfigurationError


def test_sequence_numbers_are_a_sorted_set():
    numbers = SequenceNumberSet([5, 1, 5, 1 << 62])

    assert list(numbers) == [1, 5, 1 << 62]
    assert 5 in numbers
    assert 2 not in numbers
    assert None not in numbers
    assert numbers.part(1, 5) == [5, 1 << 62]


@pytest.mark.rule("R3")
def test_plan_survives_a_file():
    builder = PlanBuilder(123)
    for number in (3, 1, 2, 9):
        builder.add("orders", number, "orders")
    builder.skip()
    plan = builder.plan()

    restored = plan_from_json(json.loads(json.dumps(plan.to_json())))

    assert plan.to_json()["queues"] == {"orders": [[1, 3], [9, 9]]}
    assert (restored.taken_ms, restored.queues) == (123, plan.queues)
    assert (len(plan), plan.others, plan.destinations) == (4, 1, {"orders": 4})


@pytest.mark.parametrize("values", [None, [], {}, {"format": 2}, {"format": 1, "queues": 3}])
def test_file_that_is_not_a_plan_is_an_error(values: object):
    with pytest.raises(ConfigurationError):
        plan_from_json(values)


def test_outcome_survives_json():
    outcome = RedriveOutcome(bytes=3, gone=1, errors={"a": "down"}, cancelled=True)
    outcome.moved["a"] = 2
    outcome.refused["b", "TooLarge"] = 1
    outcome.left["a"] = 4

    assert outcome_from_json(json.loads(json.dumps(outcome.to_json()))) == outcome
    assert outcome.handled == 4
    assert not outcome.finished


@pytest.mark.rule("R2")
def test_rate_limit_pauses_so_that_the_rate_is_kept():
    limit = RedriveRate(10)

    assert limit.chunk(1000) == 10
    assert limit.pause_s(10, 100.0) == 1.0
    assert limit.pause_s(5, 101.25) == pytest.approx(0.25)  # they took 0.25 s
    assert limit.pause_s(5, 200.0) == 0.0  # a delay is not made up for
    assert limit.pause_s(10, 200.5) == pytest.approx(0.5)


def test_slow_rate_takes_one_message_at_a_time():
    assert RedriveRate(0.5).chunk(1000) == 1
    assert RedriveRate(0.5).pause_s(1, 10.0) == 2.0
    assert RedriveRate(None).chunk(1000) == 1000


def test_pauses_double_up_to_a_maximum():
    backoff = Backoff()

    assert [backoff.next_s() for _ in range(6)] == [
        1.0,
        2.0,
        4.0,
        8.0,
        MAX_BACKOFF_S,
        MAX_BACKOFF_S,
    ]
    backoff.reset()
    backoff.fail(10.0)
    assert not backoff.is_due(10.9)
    assert backoff.is_due(11.0)
