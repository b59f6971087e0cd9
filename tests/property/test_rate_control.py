"""Rate control against a model of a namespace, whose credits are shared with live traffic."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.spark.rate_control import MIN_RATE, NO_LIMIT, RateLimit

pytestmark = pytest.mark.rule("Y9")
CREDITS = 1000
STEPS_PER_S = 20
WAIT_S = 2.0
START = 1_000_000.0

loads = st.lists(st.tuples(st.integers(0, 900), st.integers(90, 150)), min_size=1, max_size=4)
"""Live operations a second, and for how many seconds."""


@dataclass
class Second:
    """One second of the model."""

    live: int
    moved: int = 0
    throttled_live: int = 0


def simulate(
    load: list[tuple[int, int]], max_rate: float | None = None, limit: RateLimit = NO_LIMIT
) -> list[Second]:
    """Return what happened in each second. Live operations and the drain come evenly."""
    seconds: list[Second] = []
    now, due = START, 0.0
    for live, duration in load:
        for _ in range(duration):
            second, left_credits = Second(live), CREDITS
            for step in range(STEPS_PER_S):
                now = START + len(seconds) + step / STEPS_PER_S
                wanted = live * (step + 1) // STEPS_PER_S - live * step // STEPS_PER_S
                admitted = min(wanted, max(left_credits, 0))
                second.throttled_live += wanted - admitted
                left_credits -= admitted
                rate = limit.rate(now, max_rate)
                due += (5000.0 if rate is None else rate) / STEPS_PER_S
                count, due = int(due), due % 1
                if count and left_credits <= 0:
                    observed = second.moved + seconds[-1].moved if seconds else second.moved
                    limit = limit.throttled(now, WAIT_S, max(observed, 1))
                else:
                    second.moved += min(count, left_credits)
                    left_credits -= min(count, left_credits)
            seconds.append(second)
    return seconds


@given(loads, st.floats(1, 2000))
def test_cap_is_never_exceeded(load: list[tuple[int, int]], max_rate: float) -> None:
    assert all(second.moved <= max_rate + 1 for second in simulate(load, max_rate))


@given(loads)
def test_drain_uses_what_is_left_and_live_traffic_is_not_starved(
    load: list[tuple[int, int]],
) -> None:
    seconds = simulate(load)
    # After a change of the load, old limits are forgotten slowly.
    position = 0
    for live, duration in load:
        steady = seconds[position + duration * 2 // 3 : position + duration]
        position += duration
        used = sum(second.moved for second in steady)
        left = len(steady) * (CREDITS - live)
        throttled = sum(second.throttled_live for second in steady)
        if live <= 800:
            assert used >= 0.7 * left
        assert throttled <= 0.01 * len(steady) * max(live, 1) + 5


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 2000)), max_size=30))
def test_rate_is_never_negative_and_always_recovers(events: list[tuple[float, float]]) -> None:
    limit, now = NO_LIMIT, START
    for pause, observed in events:
        now += pause
        limit = limit.throttled(now, WAIT_S, observed)
        rate = limit.rate(limit.resume_at)
        assert rate is not None
        assert rate >= MIN_RATE
        assert limit.rate(now) == 0.0
    assert limit.rate(now + 3600) is None
