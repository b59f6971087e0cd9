"""The health of a path under random sequences of events, compared with a simple model."""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pairbus.events import PathStatus
from pairbus.options import FailureKind
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
    SUSPECT: (HealthTask.FAIL_OVER, HealthTask.PROBE),
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
        busy=st.sampled_from([None, 0.0, 1.0, 60.0]),
        seed=st.integers(0, 9),
    )
    def start(
        self,
        interval: float,
        jitter: float,
        after_drain: bool,
        hold: float,
        busy: float | None,
        seed: int,
    ) -> None:
        self.settings = HealthSettings(
            failover_interval_s=interval,
            ping_interval_s=10.0,
            ping_jitter=jitter,
            after_drain=after_drain,
            hold_s=hold,
            drain_timeout_s=30.0,
            failover_on_busy_s=busy,
        )
        self.now = 100.0
        self.health = PathHealth(self.settings, Random(seed), self.now)
        self.last = HEALTHY
        self.changed_at = self.now
        self.armed_at: float | None = None  # the start of the running timer
        self.busy_since: float | None = None  # the first throttled send without a success since
        self.held_since: float | None = None
        self.empties = 0  # idle, empty peeks in a row within this hold

    def follow(self) -> list[StatusChange]:
        """Check that the new changes form a chain, and update the model."""
        changes, self.health.changes = self.health.changes, []
        for change in changes:
            assert change.from_state is self.last
            assert (change.from_state, change.to_state) in ALLOWED
            self.last = change.to_state
            self.changed_at = self.now
            self.armed_at = self.now if change.to_state is SUSPECT else None
            self.held_since, self.empties = None, 0
            if change.to_state is not SUSPECT:
                self.busy_since = None
        assert self.health.status is self.last
        return changes

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.09, 0.5, 1.0, 4.0, 10.0, 59.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def time_passes_until_the_next_step(self) -> None:
        step = self.health.next_step()
        if step is not None:
            self.now = max(self.now, step.at)

    @rule()
    def a_send_fails_by_the_caller(self) -> None:
        self.expect_no_effect(FailureKind.CALLER)

    def expect_no_effect(self, kind: FailureKind) -> None:
        before = vars(self.health).copy()

        assert self.health.failed(kind, ValueError("mine"), self.now) is FailureAction.RAISE

        assert vars(self.health) == before

    @rule()
    def a_send_is_throttled(self) -> None:
        limit, before = self.settings.failover_on_busy_s, self.last
        if limit is None:
            self.expect_no_effect(FailureKind.BUSY)
            return

        action = self.health.failed(FailureKind.BUSY, DOWN, self.now)

        if before in (FAILOVER, DRAINING):
            assert action is FailureAction.STORE
            assert self.follow() == []
            self.empties = -1
            return
        busy_since = self.now if self.busy_since is None else self.busy_since
        self.busy_since = busy_since
        sustained = self.now >= busy_since + limit
        assert action is (FailureAction.STORE if sustained else FailureAction.RAISE)
        changes = self.follow()
        assert [change.to_state for change in changes] == ([FAILOVER] if sustained else [])

    @rule()
    def a_healthy_send_was_counted_since_the_last_throttled_one(self) -> None:
        self.health.accepted_since_busy()

        assert self.follow() == []
        self.busy_since = None

    @rule(kind=st.sampled_from([FailureKind.UNAVAILABLE, FailureKind.UNKNOWN]))
    def a_send_fails(self, kind: FailureKind) -> None:
        before, step = self.last, self.health.next_step()

        action = self.health.failed(kind, DOWN, self.now)

        changes = self.follow()
        if before in (FAILOVER, DRAINING):
            assert action is FailureAction.STORE
            assert not changes
            self.empties = -1
        elif self.settings.failover_interval_s == 0:
            assert action is (
                FailureAction.PROBE if kind is FailureKind.UNKNOWN else FailureAction.STORE
            )
            assert self.last is (HEALTHY if kind is FailureKind.UNKNOWN else FAILOVER)
        else:
            assert action is FailureAction.RAISE
            assert self.last is SUSPECT
            after = self.health.next_step()
            assert after is not None
            if step is not None:
                assert after.at == step.at

    @rule()
    def a_send_succeeds(self) -> None:
        before = self.last

        self.health.succeeded(self.now)

        self.follow()
        self.busy_since = None
        assert self.last is (HEALTHY if before is SUSPECT else before)

    @rule(kind=answers)
    def a_probe_ends(self, kind: FailureKind | None) -> None:
        before, armed_at = self.last, self.armed_at

        action = self.health.probed(kind, DOWN, self.now)

        changes = self.follow()
        interval = self.settings.failover_interval_s
        if before in (FAILOVER, DRAINING):
            assert action is FailureAction.STORE
            assert not changes
            self.empties = -1
        elif interval and (armed_at is None or self.now < armed_at + interval):
            assert action is FailureAction.RAISE
            assert not changes
        else:
            down = kind in (FailureKind.UNAVAILABLE, FailureKind.UNKNOWN)
            assert action is (FailureAction.STORE if down else FailureAction.RAISE)
            assert self.last is (FAILOVER if down else HEALTHY)

    @precondition(lambda self: self.last is SUSPECT)
    @rule()
    def the_timer_fires(self) -> None:
        assert self.armed_at is not None
        self.now = max(self.now, self.armed_at + self.settings.failover_interval_s)
        cause = self.health.cause

        self.health.fail_over(None, self.now)

        self.follow()
        assert self.last is FAILOVER
        assert self.health.cause is cause is not None

    @rule(succeeded=st.booleans())
    def a_ping_ends(self, succeeded: bool) -> None:
        before = self.last

        self.health.pinged(succeeded, self.now)

        self.follow()
        if before is FAILOVER and succeeded:
            assert self.last is (DRAINING if self.settings.after_drain else HEALTHY)
        else:
            assert self.last is before
            step = self.health.next_step()
            if before is FAILOVER:
                assert step is not None
                jitter = step.at - self.now - 10.0
                assert abs(jitter) <= 10.0 * self.settings.ping_jitter + 1e-6  # rounding

    @rule(
        first=st.one_of(st.just((None, None)), st.tuples(numbers, numbers)),
        small=st.booleans(),
        idle=st.booleans(),
    )
    def a_peek_ends(self, first: tuple[int | None, ...], small: bool, idle: bool) -> None:
        before, held = self.last, self.held_since
        in_time = held is not None and self.now < held + self.settings.hold_s

        self.health.peeked(first, small=small, idle=idle, now=self.now)

        if before is DRAINING:
            if in_time:
                counts = idle and set(first) == {None}
                self.empties = self.empties + 1 if counts else 0
            elif held is None and small:
                self.held_since, self.empties = self.now, 0
            else:
                self.held_since = None
        done = before is DRAINING and in_time and self.empties == 2
        self.follow()
        assert self.last is (HEALTHY if done else before)

    @rule()
    def another_path_holds_its_sends(self) -> None:
        joins = self.last is DRAINING and self.held_since is None

        self.health.join_hold(self.now + self.settings.hold_s, self.now)

        assert self.follow() == []
        if joins:
            self.held_since, self.empties = self.now, -1

    @rule()
    def a_peek_fails(self) -> None:
        self.health.peek_failed(self.now)

        assert self.follow() == []
        self.held_since = None

    @rule()
    def the_user_marks_the_path_healthy(self) -> None:
        self.health.mark_healthy(self.now)

        self.follow()
        assert self.last is HEALTHY

    @invariant()
    def status_decides_the_route(self) -> None:
        route = self.health.route(self.now)
        assert (route is Route.PRIMARY) == (self.last in (HEALTHY, SUSPECT))
        held = self.held_since
        in_time = held is not None and self.now < held + self.settings.hold_s
        assert (route is Route.HOLD) == in_time

    @invariant()
    def no_hold_is_longer_than_the_limit(self) -> None:
        if self.held_since is not None:
            over = self.held_since + self.settings.hold_s
            assert self.health.route(over) is not Route.HOLD
            assert self.health.route(over + 1000) is not Route.HOLD

    @invariant()
    def only_a_healthy_path_has_no_task(self) -> None:
        step = self.health.next_step()
        assert (step is None) == (self.last is HEALTHY)
        if step is not None:
            assert step.task in TASKS[self.last]

    @invariant()
    def only_a_healthy_path_has_no_cause(self) -> None:
        assert (self.health.cause is None) == (self.last is HEALTHY)
        assert self.health.since == self.changed_at


AnyHealth.TestCase.settings = settings(stateful_step_count=40)
TestAnyHealth = pytest.mark.rule("S2", "S3", "S12", "S13")(AnyHealth.TestCase)
