"""The health of a path under any sequence of events, beside a simple model."""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pairbus.events import PathStatus
from pairbus.pairing.failures import FailureKind
from pairbus.pairing.health import (
    FailureAction,
    HealthSettings,
    HealthTask,
    PathHealth,
    Route,
    StatusChange,
)

HEALTHY, SUSPECT = PathStatus.HEALTHY, PathStatus.SUSPECT
FAILOVER, DRAINING = PathStatus.FAILOVER, PathStatus.DRAINING
DOWN = OSError("down")
TASKS = {
    SUSPECT: (HealthTask.ENGAGE, HealthTask.LOOK),
    FAILOVER: (HealthTask.PING,),
    DRAINING: (HealthTask.PEEK,),
}
ALLOWED = {
    (HEALTHY, SUSPECT),
    (HEALTHY, FAILOVER),
    (SUSPECT, HEALTHY),
    (SUSPECT, FAILOVER),
    (FAILOVER, HEALTHY),
    (FAILOVER, DRAINING),
    (DRAINING, HEALTHY),
}
numbers = st.one_of(st.none(), st.integers(1, 3))
answers = st.sampled_from([None, *FailureKind])


class AnyHealth(RuleBasedStateMachine):
    @initialize(
        interval=st.sampled_from([0.0, 1.0, 60.0]),
        jitter=st.sampled_from([0.0, 0.1, 1.0]),
        after_drain=st.booleans(),
        hold=st.sampled_from([0.1, 5.0]),
        seed=st.integers(0, 9),
    )
    def start(
        self, interval: float, jitter: float, after_drain: bool, hold: float, seed: int
    ) -> None:
        self.settings = HealthSettings(
            failover_interval_s=interval,
            ping_interval_s=10.0,
            ping_jitter=jitter,
            after_drain=after_drain,
            hold_s=hold,
            drain_timeout_s=30.0,
        )
        self.now = 100.0
        self.health = PathHealth(self.settings, Random(seed), self.now)
        self.last = HEALTHY
        self.changed_at = self.now
        self.armed_at: float | None = None  # when the timer that runs was started
        self.held_since: float | None = None
        self.empties = 0  # quiet, empty looks in a row within this hold

    def follow(self) -> list[StatusChange]:
        """What changed, as a chain; the model goes along."""
        changes, self.health.changes = self.health.changes, []
        for change in changes:
            assert change.from_state is self.last
            assert (change.from_state, change.to_state) in ALLOWED
            self.last = change.to_state
            self.changed_at = self.now
            self.armed_at = self.now if change.to_state is SUSPECT else None
            self.held_since, self.empties = None, 0
        assert self.health.state is self.last
        return changes

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.09, 0.5, 1.0, 4.0, 10.0, 59.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def the_next_step_is_due(self) -> None:
        step = self.health.next_step()
        if step is not None:
            self.now = max(self.now, step.at)

    @rule(kind=st.sampled_from([FailureKind.CALLER, FailureKind.BUSY]))
    def a_send_fails_by_the_caller_or_by_throttling(self, kind: FailureKind) -> None:
        before = vars(self.health).copy()

        assert self.health.failed(kind, ValueError("mine"), self.now) is FailureAction.RAISE

        assert vars(self.health) == before

    @rule(kind=st.sampled_from([FailureKind.UNAVAILABLE, FailureKind.UNKNOWN]))
    def a_send_fails(self, kind: FailureKind) -> None:
        was, step = self.last, self.health.next_step()

        verdict = self.health.failed(kind, DOWN, self.now)

        changes = self.follow()
        if was in (FAILOVER, DRAINING):
            assert verdict is FailureAction.STORE
            assert not changes
            self.empties = -1
        elif self.settings.failover_interval_s == 0:
            assert verdict is (
                FailureAction.LOOK if kind is FailureKind.UNKNOWN else FailureAction.STORE
            )
            assert self.last is (HEALTHY if kind is FailureKind.UNKNOWN else FAILOVER)
        else:
            assert verdict is FailureAction.RAISE
            assert self.last is SUSPECT
            after = self.health.next_step()
            assert after is not None
            if step is not None:
                assert after.at == step.at

    @rule()
    def a_send_gets_through(self) -> None:
        was = self.last

        self.health.succeeded(self.now)

        self.follow()
        assert self.last is (HEALTHY if was is SUSPECT else was)

    @rule(met=answers)
    def a_look_ends(self, met: FailureKind | None) -> None:
        was, armed_at = self.last, self.armed_at

        verdict = self.health.looked(met, DOWN, self.now)

        changes = self.follow()
        interval = self.settings.failover_interval_s
        if was in (FAILOVER, DRAINING):
            assert verdict is FailureAction.STORE
            assert not changes
            self.empties = -1
        elif interval and (armed_at is None or self.now < armed_at + interval):
            assert verdict is FailureAction.RAISE
            assert not changes
        else:
            down = met in (FailureKind.UNAVAILABLE, FailureKind.UNKNOWN)
            assert verdict is (FailureAction.STORE if down else FailureAction.RAISE)
            assert self.last is (FAILOVER if down else HEALTHY)

    @precondition(lambda self: self.last is SUSPECT)
    @rule()
    def the_timer_fires(self) -> None:
        assert self.armed_at is not None
        self.now = max(self.now, self.armed_at + self.settings.failover_interval_s)
        cause = self.health.cause

        self.health.engage(None, self.now)

        self.follow()
        assert self.last is FAILOVER
        assert self.health.cause is cause is not None

    @rule(got_through=st.booleans())
    def a_ping_ends(self, got_through: bool) -> None:
        was = self.last

        self.health.pinged(got_through, self.now)

        self.follow()
        if was is FAILOVER and got_through:
            assert self.last is (DRAINING if self.settings.after_drain else HEALTHY)
        else:
            assert self.last is was
            step = self.health.next_step()
            if was is FAILOVER:
                assert step is not None
                jitter = step.at - self.now - 10.0
                assert abs(jitter) <= 10.0 * self.settings.ping_jitter + 1e-6  # of rounding

    @rule(
        first=st.one_of(st.just((None, None)), st.tuples(numbers, numbers)),
        small=st.booleans(),
        quiet=st.booleans(),
    )
    def the_backlog_is_looked_at(
        self, first: tuple[int | None, ...], small: bool, quiet: bool
    ) -> None:
        was, held = self.last, self.held_since
        in_time = held is not None and self.now < held + self.settings.hold_s

        self.health.peeked(first, small=small, quiet=quiet, now=self.now)

        if was is DRAINING:
            if in_time:
                counts = quiet and set(first) == {None}
                self.empties = self.empties + 1 if counts else 0
            elif held is None and small:
                self.held_since, self.empties = self.now, 0
            else:
                self.held_since = None
        done = was is DRAINING and in_time and self.empties == 2
        self.follow()
        assert self.last is (HEALTHY if done else was)

    @rule()
    def another_path_holds_its_sends(self) -> None:
        joins = self.last is DRAINING and self.held_since is None

        self.health.join_hold(self.now + self.settings.hold_s, self.now)

        assert self.follow() == []
        if joins:
            self.held_since, self.empties = self.now, -1

    @rule()
    def the_backlog_cannot_be_looked_at(self) -> None:
        self.health.peek_failed(self.now)

        assert self.follow() == []
        self.held_since = None

    @rule()
    def somebody_marks_it_healthy(self) -> None:
        self.health.mark_healthy(self.now)

        self.follow()
        assert self.last is HEALTHY

    @invariant()
    def the_state_says_where_sends_go(self) -> None:
        route = self.health.route(self.now)
        assert (route is Route.PRIMARY) == (self.last in (HEALTHY, SUSPECT))
        held = self.held_since
        in_time = held is not None and self.now < held + self.settings.hold_s
        assert (route is Route.HOLD) == in_time

    @invariant()
    def callers_never_wait_longer_than_the_hold(self) -> None:
        if self.held_since is not None:
            over = self.held_since + self.settings.hold_s
            assert self.health.route(over) is not Route.HOLD
            assert self.health.route(over + 1000) is not Route.HOLD

    @invariant()
    def something_is_to_be_done_unless_it_is_healthy(self) -> None:
        step = self.health.next_step()
        assert (step is None) == (self.last is HEALTHY)
        if step is not None:
            assert step.task in TASKS[self.last]

    @invariant()
    def there_is_a_cause_unless_it_is_healthy(self) -> None:
        assert (self.health.cause is None) == (self.last is HEALTHY)
        assert self.health.since == self.changed_at


AnyHealth.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestAnyHealth = pytest.mark.rule("S2", "S3", "S12", "S13")(AnyHealth.TestCase)
