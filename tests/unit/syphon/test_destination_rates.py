"""Rate limits of single destinations."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.syphon.destination_rates import (
    BURST_S,
    DestinationRates,
    largest_batch,
    limits_of_queues,
)

pytestmark = pytest.mark.rule("Y12")


@given(
    rate=st.floats(0.1, 1000),
    steps=st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1)), min_size=1, max_size=50),
)
def test_moved_messages_never_exceed_the_rate_and_one_burst(
    rate: float, steps: list[tuple[float, float]]
) -> None:
    rates, moved, now = DestinationRates(), Counter[str](), 0.0
    for elapsed, share in steps:
        now += elapsed
        allowance = rates.allowances(now, {"a": rate}, moved)["a"]
        moved["a"] += int(allowance * share)
        assert moved["a"] <= rate * now + max(1.0, rate * BURST_S) + 1e-6


def test_messages_beyond_the_allowance_are_charged_to_the_next_ones():
    rates = DestinationRates()
    assert rates.allowances(0.0, {"a": 10}, {}) == {"a": 10}

    assert rates.allowances(1.0, {"a": 10}, {"a": 50}) == {"a": 0}
    assert rates.allowances(4.0, {"a": 10}, {"a": 50}) == {"a": 0}
    assert rates.allowances(5.0, {"a": 10}, {"a": 50}) == {"a": 10}


def test_slow_rate_allows_a_message_from_time_to_time():
    rates = DestinationRates()
    assert rates.allowances(0.0, {"a": 0.1}, {}) == {"a": 1}
    assert rates.allowances(1.0, {"a": 0.1}, {"a": 1}) == {"a": 0}
    assert rates.allowances(11.1, {"a": 0.1}, {"a": 1}) == {"a": 1}


def test_queues_that_start_with_a_destination_share_its_allowance():
    first = {"q0": "a", "q1": "a", "q2": "b", "q3": None}

    assert limits_of_queues({"a": 5, "b": 7, "c": 9}, first) == {"a": 3, "b": 7, "c": 9}


def test_batch_is_limited_only_if_each_queue_starts_with_a_limited_destination():
    limits = {"a": 3, "b": 7}

    assert largest_batch(limits, {"q0": "a", "q1": "a", "q2": "b"}) == 13
    assert largest_batch(limits, {"q0": "a", "q1": "c"}) is None
    assert largest_batch(limits, {"q0": "a", "q1": None}) is None
    assert largest_batch({"a": 0}, {"q0": "a"}) == 1
