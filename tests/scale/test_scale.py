"""Outages with many sender processes: peeks and pings leave the credits to others."""

import logging
from dataclasses import replace

import pytest

from pairbus.servicebus.limits import CREDITS_PER_SECOND_STANDARD
from tests.scale.__main__ import RECOMMENDED, make_plan
from tests.scale.outage import OutagePlan, OutageResult, highest_rate, simulate


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep no log: each of thousands of processes logs its changes of state."""
    caplog.set_level(logging.CRITICAL, "pairbus")


def total(counts: dict[str, dict[int, int]], purpose: str, first: float, last: float) -> int:
    by_second = counts.get(purpose, {})
    return sum(count for second, count in by_second.items() if first <= second < last)


def short(plan: OutagePlan, *, rate: float = 40.0) -> OutageResult:
    """Simulate an outage of two minutes with little traffic, so that the test takes a second."""
    return simulate(replace(plan, outage_s=120.0, rate=rate))


@pytest.mark.rule("S12")
def test_many_processes_fail_back_while_all_of_them_send() -> None:
    result = short(make_plan(100, "after-drain", {}), rate=100.0)

    assert result.in_failover == 100
    assert result.last_failback_s is not None
    assert result.drained_at is not None
    assert result.failed_calls["down"] > 0  # before the failover
    assert result.failed_calls["busy"] == 0
    assert 0 < result.longest_hold_s <= 5.1  # the hold, and the time of a call


@pytest.mark.rule("S12")
def test_peeks_of_1000_draining_processes_take_less_than_a_tenth_of_the_credits() -> None:
    plan = make_plan(1000, "after-drain", {})  # the defaults

    # Without a syphon they drain until the end.
    result = simulate(replace(plan, outage_s=120.0, rate=40.0, limit_s=180.0, has_syphon=False))

    peeks = result.secondary["peeks"]
    assert result.in_failover > 900
    assert total(result.secondary, "peeks", result.up_at, result.ended_at) > 1000
    settled = {second: n for second, n in peeks.items() if second > result.up_at + 90}
    assert 0 < highest_rate(settled) < CREDITS_PER_SECOND_STANDARD / 10


@pytest.mark.soak
@pytest.mark.rule("G2")
def test_pings_of_10000_processes_take_less_than_a_fifth_of_the_credits() -> None:
    plan = make_plan(10_000, "immediate", RECOMMENDED[10_000])

    result = simulate(replace(plan, outage_s=180.0, rate=100.0, limit_s=120.0))

    assert total(result.primary, "pings", result.up_at, result.ended_at) > 5000
    assert highest_rate(result.primary["pings"]) < CREDITS_PER_SECOND_STANDARD / 5
    assert result.failed_calls["busy"] == 0
