"""The health of the secondary's host under random sequences of events."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pairbus.pairing.secondary_health import (
    FIRST_PROBE_S,
    MAX_PROBE_INTERVAL_S,
    HostProbe,
    SecondaryHealth,
)

DOWN = OSError("down")
seconds = st.floats(0, 20)
places = st.integers(0, 4)


class AnySecondaryHealth(RuleBasedStateMachine):
    @initialize(number=st.integers(1, 5))
    def start(self, number: int) -> None:
        self.queues = tuple(f"queue {index}" for index in range(number))
        self.health = SecondaryHealth(self.queues)
        self.now = 1000.0
        self.last_success = 0.0
        self.down_since: float | None = None

    def queue(self, place: int) -> str:
        return self.queues[place % len(self.queues)]

    @rule(duration=seconds)
    def time_passes(self, duration: float) -> None:
        self.now += duration

    @rule(place=places, duration=seconds)
    def connection_fails(self, place: int, duration: float) -> None:
        began = self.now
        self.now += duration
        was_down = self.health.is_down
        assert self.health.failed(self.queue(place), DOWN, began=began, now=self.now)
        if not was_down:
            self.down_since = self.now

    @precondition(lambda self: not self.health.is_down and self.last_success > 0)
    @rule(place=places, earlier=st.floats(0.001, 10))
    def old_connection_fails(self, place: int, earlier: float) -> None:
        began = self.last_success - earlier
        assert not self.health.failed(self.queue(place), DOWN, began=began, now=self.now)
        assert not self.health.is_down

    @rule(place=places)
    def send_succeeds(self, place: int) -> None:
        was_down = self.health.is_down
        assert self.health.succeeded(self.queue(place), self.now) is was_down
        self.succeeded()

    def succeeded(self) -> None:
        self.last_success = self.now
        self.down_since = None

    def due_probe(self) -> HostProbe:
        probe = self.health.next_probe
        assert probe is not None
        self.now = max(self.now, probe.at)
        return probe

    @precondition(lambda self: self.health.next_probe is not None)
    @rule(duration=seconds)
    def probe_fails(self, duration: float) -> None:
        probe, was_down = self.due_probe(), self.health.is_down
        began = self.now
        self.now += duration
        at_fault = self.health.probe_failed(probe.queue, DOWN, began=began, now=self.now)
        assert at_fault is not was_down

    @precondition(lambda self: self.health.next_probe is not None)
    @rule()
    def probe_succeeds(self) -> None:
        probe = self.due_probe()
        self.health.succeeded(probe.queue, self.now)
        self.succeeded()

    @invariant()
    def host_that_is_down_is_probed(self) -> None:
        if not hasattr(self, "health"):
            return
        assert self.health.is_down is (self.down_since is not None)
        assert (self.health.cause is None) is not self.health.is_down
        probe = self.health.next_probe
        if self.health.is_down:
            assert probe is not None
            assert probe.queue in self.queues
            assert self.down_since is not None
            assert probe.at >= self.down_since + FIRST_PROBE_S
            assert probe.at <= self.now + MAX_PROBE_INTERVAL_S

    @invariant()
    def host_that_is_up_needs_one_probe_at_most(self) -> None:
        if hasattr(self, "health") and not self.health.is_down:
            probe = self.health.next_probe
            assert probe is None or probe.at <= self.now


TestAnySecondaryHealth = pytest.mark.rule("S2a")(AnySecondaryHealth.TestCase)
