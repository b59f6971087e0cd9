"""A drain beside live traffic in two namespaces with credits, simulated with a clock of its own.

The rate control, the schedule and the credits are real. A slice of messages is received from the
secondary and sent to the primary at once, and there is a pause between two micro-batches.
"""

import random
from dataclasses import dataclass, field

import pytest

from pairbus.emulator.tiers import TokenBucket
from pairbus.servicebus.limits import CREDITS_PER_SECOND_STANDARD
from pairbus.spark.pace import MAX_TASK_S, SLICE_S
from pairbus.spark.rate_control import NO_LIMIT, RateLimit, credit_limit
from pairbus.spark.rate_schedule import ScheduleState

pytestmark = pytest.mark.rule("Y9")
NOW = 1_000_000.0
BETWEEN_BATCHES_S = 1.0
UNPACED_MESSAGES, UNPACED_S = 250, 1 / 60


@dataclass
class Namespace:
    """A namespace with live calls at a constant rate."""

    live_rate: float
    next_call: float
    bucket: TokenBucket = field(default_factory=lambda: TokenBucket(CREDITS_PER_SECOND_STANDARD))
    calls: int = 0
    throttled_calls: int = 0

    def admits(self, now: float, count: int) -> bool:
        """Return False if an operation is throttled."""
        if self.bucket.available(int(now * 1000)) <= 0:
            return False
        self.bucket.take(count)
        return True

    def advance(self, now: float) -> None:
        """Make the live calls until now."""
        while self.next_call <= now:
            self.calls += 1
            self.throttled_calls += not self.admits(self.next_call, 1)
            self.next_call += 1 / self.live_rate


class Drain:
    """Moves messages from the second namespace to the first."""

    def __init__(self, namespaces: list[Namespace], limit: RateLimit) -> None:
        self.namespaces = namespaces
        self.limit = limit
        self.schedules = [ScheduleState() for _ in namespaces]
        self.now = NOW
        self.moved = 0

    def run(self, total: int) -> None:
        batch_end = self.now + MAX_TASK_S
        while self.moved < total:
            if self.now >= batch_end:
                self.now += BETWEEN_BATCHES_S
                batch_end = self.now + MAX_TASK_S
            self._move_slice()

    def _move_slice(self) -> None:
        rate = self.limit.rate(self.now)
        if rate is None:
            messages = UNPACED_MESSAGES
            self.now += UNPACED_S
        elif rate == 0:
            self.now = self.limit.resume_at
            return
        else:
            messages = max(1, int(rate * SLICE_S))
            self.now = max(self.now, self.schedules[-1].reserve(self.now, messages, rate))
        for namespace in self.namespaces:
            namespace.advance(self.now)
        for namespace, schedule in reversed(
            list(zip(self.namespaces, self.schedules, strict=True))
        ):
            if not namespace.admits(self.now, messages):
                observed = schedule.observed(self.now)
                self.limit = self.limit.throttled(
                    self.now, 2.0, None if observed is None else float(observed)
                )
                return
            schedule.count(self.now, messages)
        self.moved += messages


def simulate(limit: RateLimit, live_rate: float, total: int, seed: int) -> tuple[float, float]:
    """Return the share of live calls that were throttled, and the share of the credits used of
    those that live calls had left."""
    chance = random.Random(seed)
    namespaces = [Namespace(live_rate, NOW + chance.random() / live_rate) for _ in range(2)]
    drain = Drain(namespaces, limit)
    drain.now += chance.random()
    start = drain.now
    drain.run(total)
    left = (CREDITS_PER_SECOND_STANDARD - live_rate) * (drain.now - start)
    throttled = max(namespace.throttled_calls / namespace.calls for namespace in namespaces)
    return throttled, drain.moved / left


@pytest.mark.parametrize("live_rate", [100, 300, 600, 900])
def test_drain_uses_what_live_traffic_leaves_and_hardly_disturbs_it(live_rate: int):
    for seed in range(3):
        throttled, used = simulate(credit_limit(NOW), live_rate, 100 * (1000 - live_rate), seed)
        assert throttled <= 0.01
        assert used >= 0.8


def test_drain_of_a_namespace_of_unknown_tier_costs_live_clients_about_one_second():
    for seed in range(3):
        throttled, used = simulate(NO_LIMIT, 300, 100_000, seed)
        assert throttled <= 0.01
        assert used >= 0.8
