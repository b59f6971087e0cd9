"""The health of one path, with a fake clock."""

from collections.abc import Callable
from random import Random
from threading import RLock
from typing import Any

import pytest

from pairbus.events import PathStatus
from pairbus.options import FailureKind
from pairbus.pairing.health import (
    CHECKS_PER_INTERVAL,
    MAX_BACKOFF_HOLDS,
    PEEKS_PER_HOLD,
    FailureAction,
    HealthSettings,
    HealthTask,
    InFlightSend,
    PathHealth,
    Route,
    StatusChange,
    Step,
)

HEALTHY, SUSPECT = PathStatus.HEALTHY, PathStatus.SUSPECT
FAILOVER, DRAINING = PathStatus.FAILOVER, PathStatus.DRAINING
DOWN, LATER, UNKNOWN_ERROR = OSError("down"), OSError("later"), OSError("unknown")
BUSY_ERROR = OSError("busy")
MINUTE = 60.0
HOLD = 5.0
PAUSE = HOLD / PEEKS_PER_HOLD
DRAIN_TIMEOUT = 600.0
LONGEST_CHECK = 30.0
SHORTEST_CHECK = LONGEST_CHECK / CHECKS_PER_INTERVAL
START = 1000.0
NOT_AN_OUTAGE = [FailureKind.BUSY, FailureKind.CALLER]
DOWN_KINDS = [FailureKind.UNAVAILABLE, FailureKind.UNKNOWN]


def new_health(interval: float = MINUTE, *, seed: int = 1, **settings: Any) -> PathHealth:
    defaults = {
        "failover_interval_s": interval,
        "ping_interval_s": MINUTE,
        "ping_jitter": 0.0,
        "after_drain": False,
        "hold_s": HOLD,
        "drain_timeout_s": DRAIN_TIMEOUT,
        "check_interval_s": LONGEST_CHECK,
    }
    return PathHealth(HealthSettings(**{**defaults, **settings}), Random(seed), START)


def fail(
    health: PathHealth, now: float, kind: FailureKind = FailureKind.UNAVAILABLE
) -> FailureAction:
    return health.failed(kind, DOWN, now)


def suspect(**settings: Any) -> PathHealth:
    health = new_health(**settings)
    fail(health, START)
    health.changes.clear()
    return health


def in_failover(**settings: Any) -> PathHealth:
    return suspect(interval=0, **settings)


def draining(**settings: Any) -> PathHealth:
    """Return a path whose primary came back at START."""
    health = in_failover(after_drain=True, **settings)
    health.pinged(True, START)
    health.changes.clear()
    return health


def holding(now: float = START, **settings: Any) -> PathHealth:
    """Return a path whose sends are held since `now`."""
    health = draining(**settings)
    peek(health, now)
    assert health.route(now) is Route.HOLD
    return health


def peek(
    health: PathHealth, now: float, *first: int | None, small: bool = True, idle: bool = True
) -> None:
    health.peeked(first or (None, None), small=small, idle=idle, now=now)


def step_of(health: PathHealth) -> Step:
    step = health.next_step()
    assert step is not None
    return step


IN_STATE: dict[PathStatus, Callable[[], PathHealth]] = {
    HEALTHY: new_health,
    SUSPECT: suspect,
    FAILOVER: in_failover,
    DRAINING: draining,
}


# The timer.


def test_new_path_is_healthy_and_has_no_task() -> None:
    health = new_health()

    assert (health.status, health.since, health.cause) == (HEALTHY, START, None)
    assert health.route(START) is Route.PRIMARY
    assert health.next_step() is None
    assert health.changes == []


@pytest.mark.rule("S3")
@pytest.mark.parametrize("interval", [1.0, MINUTE])
def test_sends_go_to_the_primary_until_the_timer_fires_and_then_to_the_backlog(
    interval: float,
) -> None:
    health = new_health(interval)

    assert fail(health, START) is FailureAction.RAISE

    assert health.status is SUSPECT
    assert health.route(START) is Route.PRIMARY
    assert health.route(START + interval - 0.001) is Route.PRIMARY
    assert fail(health, START + interval - 0.001) is FailureAction.RAISE
    assert health.next_step() == Step(HealthTask.FAIL_OVER, START + interval)

    health.fail_over(None, START + interval)

    assert health.status is FAILOVER
    assert health.route(START + interval) is Route.BACKLOG
    assert health.route(START + 100 * interval) is Route.BACKLOG
    assert (health.cause, health.since) == (DOWN, START + interval)


@pytest.mark.rule("S3")
def test_without_an_interval_the_failed_call_continues_with_the_backlog() -> None:
    health = new_health(0)

    assert fail(health, START) is FailureAction.STORE

    assert health.status is FAILOVER
    assert health.route(START) is Route.BACKLOG
    assert health.changes == [StatusChange(HEALTHY, FAILOVER, DOWN)]


@pytest.mark.rule("S3")
@pytest.mark.parametrize("interval", [0.0, 1.0, MINUTE])
def test_call_that_fails_after_failover_continues_with_the_backlog(interval: float) -> None:
    health = new_health(interval)
    fail(health, START)
    if interval:
        health.fail_over(None, START + interval)
    health.changes.clear()

    assert health.failed(FailureKind.UNAVAILABLE, LATER, START + 2 * MINUTE) is FailureAction.STORE
    assert health.failed(FailureKind.UNKNOWN, LATER, START + 2 * MINUTE) is FailureAction.STORE

    assert health.changes == []
    assert health.cause is DOWN


@pytest.mark.rule("S3")
def test_later_failures_do_not_restart_the_timer() -> None:
    health = new_health()
    fail(health, START)

    for after in (1, 30, 59):
        health.failed(FailureKind.UNAVAILABLE, LATER, START + after)
        health.failed(FailureKind.UNKNOWN, LATER, START + after)

    assert health.next_step() == Step(HealthTask.FAIL_OVER, START + MINUTE)
    assert health.cause is DOWN
    assert health.changes == [StatusChange(HEALTHY, SUSPECT, DOWN)]


@pytest.mark.rule("S3")
def test_success_stops_the_timer_and_the_next_failure_starts_a_new_one() -> None:
    health = new_health()
    fail(health, START)

    health.succeeded(START + 59)

    assert (health.status, health.since, health.cause) == (HEALTHY, START + 59, None)
    assert health.next_step() is None
    fail(health, START + 61)
    assert health.next_step() == Step(HealthTask.FAIL_OVER, START + 61 + MINUTE)
    assert [(change.from_state, change.to_state) for change in health.changes] == [
        (HEALTHY, SUSPECT),
        (SUSPECT, HEALTHY),
        (HEALTHY, SUSPECT),
    ]


@pytest.mark.parametrize("state", [HEALTHY, FAILOVER, DRAINING])
def test_success_changes_nothing_unless_the_timer_runs(state: PathStatus) -> None:
    health = IN_STATE[state]()

    health.succeeded(START + 1)

    assert (health.status, health.since, health.changes) == (state, START, [])


@pytest.mark.rule("S2")
@pytest.mark.parametrize("kind", NOT_AN_OUTAGE)
@pytest.mark.parametrize("interval", [0.0, MINUTE])
def test_throttling_and_caller_errors_do_not_start_the_timer(
    kind: FailureKind, interval: float
) -> None:
    health = new_health(interval)

    for _ in range(10):
        assert fail(health, START, kind) is FailureAction.RAISE

    assert health.status is HEALTHY
    assert health.next_step() is None
    assert health.changes == []


@pytest.mark.rule("S2")
@pytest.mark.parametrize("kind", NOT_AN_OUTAGE)
def test_throttling_and_caller_errors_neither_stop_the_timer_nor_store_the_message(
    kind: FailureKind,
) -> None:
    health = new_health()
    fail(health, START)

    assert fail(health, START + 1, kind) is FailureAction.RAISE
    assert health.next_step() == Step(HealthTask.FAIL_OVER, START + MINUTE)

    health.fail_over(None, START + MINUTE)
    assert fail(health, START + 61, kind) is FailureAction.RAISE


# Sustained throttling.


def throttle(health: PathHealth, now: float) -> FailureAction:
    return health.failed(FailureKind.BUSY, BUSY_ERROR, now)


@pytest.mark.rule("S2")
@pytest.mark.parametrize("interval", [0.0, MINUTE])
def test_sustained_throttling_fails_over_if_that_is_enabled(interval: float) -> None:
    health = new_health(interval, failover_on_busy_s=5 * MINUTE)

    assert throttle(health, START) is FailureAction.RAISE
    assert throttle(health, START + 5 * MINUTE - 0.001) is FailureAction.RAISE
    assert (health.status, health.next_step(), health.changes) == (HEALTHY, None, [])

    assert throttle(health, START + 5 * MINUTE) is FailureAction.STORE

    assert health.changes == [StatusChange(HEALTHY, FAILOVER, BUSY_ERROR)]
    assert health.cause is BUSY_ERROR
    assert health.next_step() == Step(HealthTask.PING, START + 6 * MINUTE)


def test_without_an_interval_the_first_throttled_call_continues_with_the_backlog() -> None:
    health = new_health(failover_on_busy_s=0.0)

    assert throttle(health, START) is FailureAction.STORE

    assert health.status is FAILOVER


@pytest.mark.parametrize("success", ["succeeded", "accepted_since_busy"])
def test_success_restarts_the_time_of_throttling(success: str) -> None:
    health = new_health(failover_on_busy_s=MINUTE)
    throttle(health, START)
    if success == "succeeded":
        health.succeeded(START + 59)
    else:
        health.accepted_since_busy()

    assert throttle(health, START + 61) is FailureAction.RAISE
    assert throttle(health, START + 120) is FailureAction.RAISE
    assert throttle(health, START + 121) is FailureAction.STORE


@pytest.mark.parametrize("kind", [FailureKind.CALLER, FailureKind.UNAVAILABLE])
def test_other_failures_do_not_restart_the_time_of_throttling(kind: FailureKind) -> None:
    health = new_health(10 * MINUTE, failover_on_busy_s=MINUTE)
    throttle(health, START)

    assert fail(health, START + 30, kind) is FailureAction.RAISE

    assert throttle(health, START + MINUTE) is FailureAction.STORE
    assert health.status is FAILOVER


def test_success_before_a_failure_does_not_stop_the_failover_timer() -> None:
    health = new_health(failover_on_busy_s=5 * MINUTE)
    throttle(health, START)
    fail(health, START + 1)

    health.accepted_since_busy()  # counted before the failure

    assert health.status is SUSPECT
    assert health.next_step() == Step(HealthTask.FAIL_OVER, START + 1 + MINUTE)


@pytest.mark.parametrize("state", [FAILOVER, DRAINING])
def test_throttled_call_of_a_path_that_failed_over_meanwhile_is_stored(state: PathStatus) -> None:
    make = in_failover if state is FAILOVER else draining
    health = make(failover_on_busy_s=MINUTE)

    assert throttle(health, START + 1) is FailureAction.STORE

    assert (health.status, health.changes) == (state, [])


@pytest.mark.rule("G2")
def test_time_of_throttling_starts_again_after_the_failover() -> None:
    health = new_health(failover_on_busy_s=MINUTE)
    throttle(health, START)
    throttle(health, START + MINUTE)
    health.pinged(False, START + 2 * MINUTE)  # the ping was throttled
    assert health.status is FAILOVER
    health.pinged(True, START + 3 * MINUTE)
    assert health.status is HEALTHY

    assert throttle(health, START + 4 * MINUTE) is FailureAction.RAISE
    assert throttle(health, START + 5 * MINUTE) is FailureAction.STORE


# Failures of unknown kind.


@pytest.mark.rule("S2")
def test_without_an_interval_an_unknown_failure_is_probed_first() -> None:
    health = new_health(0)

    assert fail(health, START, FailureKind.UNKNOWN) is FailureAction.PROBE

    assert health.status is HEALTHY
    assert health.changes == []


@pytest.mark.rule("S2")
@pytest.mark.parametrize("kind", DOWN_KINDS)
@pytest.mark.parametrize(("interval", "before"), [(0, HEALTHY), (MINUTE, SUSPECT)])
def test_call_continues_with_the_backlog_if_the_probe_fails(
    kind: FailureKind, interval: float, before: PathStatus
) -> None:
    health = new_health(interval)
    fail(health, START, FailureKind.UNKNOWN)

    assert health.probed(kind, DOWN, START + interval + 1) is FailureAction.STORE

    started = [StatusChange(HEALTHY, SUSPECT, DOWN)] if interval else []
    assert health.changes == [*started, StatusChange(before, FAILOVER, DOWN)]
    assert health.next_step() == Step(HealthTask.PING, START + interval + 1 + MINUTE)


@pytest.mark.rule("S2")
@pytest.mark.parametrize("kind", [None, *NOT_AN_OUTAGE])
@pytest.mark.parametrize("interval", [0, MINUTE])
def test_caller_gets_the_error_if_the_primary_answers_the_probe(
    kind: FailureKind | None, interval: float
) -> None:
    health = new_health(interval)
    fail(health, START, FailureKind.UNKNOWN)

    assert health.probed(kind, DOWN, START + interval + 1) is FailureAction.RAISE

    assert (health.status, health.cause, health.next_step()) == (HEALTHY, None, None)
    assert len(health.changes) == (2 if interval else 0)


@pytest.mark.rule("S2")
def test_timer_of_an_unknown_failure_leads_to_a_probe() -> None:
    health = new_health()

    assert fail(health, START, FailureKind.UNKNOWN) is FailureAction.RAISE

    assert health.status is SUSPECT
    assert health.next_step() == Step(HealthTask.PROBE, START + MINUTE)


@pytest.mark.rule("S2")
@pytest.mark.parametrize("kinds", [DOWN_KINDS, DOWN_KINDS[::-1]])
def test_clear_failure_before_or_after_an_unknown_one_makes_the_probe_unnecessary(
    kinds: list[FailureKind],
) -> None:
    health = new_health()

    for after, kind in enumerate(kinds):
        health.failed(
            kind, DOWN if kind is FailureKind.UNAVAILABLE else UNKNOWN_ERROR, START + after
        )

    assert health.next_step() == Step(HealthTask.FAIL_OVER, START + MINUTE)
    assert health.cause is DOWN


@pytest.mark.rule("S3")
@pytest.mark.parametrize("kind", [None, *FailureKind])
def test_probe_result_is_ignored_after_a_success(kind: FailureKind | None) -> None:
    health = new_health()
    fail(health, START, FailureKind.UNKNOWN)
    health.succeeded(START + MINUTE + 1)  # while the probe was in progress
    health.changes.clear()

    assert health.probed(kind, DOWN, START + MINUTE + 2) is FailureAction.RAISE

    assert health.status is HEALTHY
    assert health.changes == []


@pytest.mark.rule("S3")
@pytest.mark.parametrize("kind", [None, *FailureKind])
def test_old_probe_result_does_not_affect_a_new_timer(kind: FailureKind | None) -> None:
    health = new_health()
    fail(health, START, FailureKind.UNKNOWN)
    health.succeeded(START + 61)
    fail(health, START + 62, FailureKind.UNKNOWN)

    assert health.probed(kind, DOWN, START + 63) is FailureAction.RAISE

    assert health.next_step() == Step(HealthTask.PROBE, START + 62 + MINUTE)


@pytest.mark.parametrize("kind", [None, *FailureKind])
def test_call_continues_with_the_backlog_if_the_path_failed_over_during_the_probe(
    kind: FailureKind | None,
) -> None:
    health = in_failover()

    assert health.probed(kind, LATER, START + 1) is FailureAction.STORE

    assert health.changes == []


# Pings.


@pytest.mark.rule("G2")
def test_without_jitter_pings_have_the_exact_interval() -> None:
    health = in_failover()

    assert health.next_step() == Step(HealthTask.PING, START + MINUTE)
    health.pinged(False, START + 75)
    assert health.next_step() == Step(HealthTask.PING, START + 75 + MINUTE)


@pytest.mark.rule("G2")
@pytest.mark.parametrize("jitter", [0.1, 0.5, 1.0])
def test_jitter_moves_pings_within_its_limits(jitter: float) -> None:
    health = in_failover(ping_jitter=jitter, seed=7)
    waits = []
    for number in range(500):
        health.pinged(False, number * 1000.0)
        waits.append(step_of(health).at - number * 1000.0)

    least, most = MINUTE * (1 - jitter), MINUTE * (1 + jitter)
    assert all(least <= wait <= most for wait in waits)
    assert min(waits) < least + jitter * 6
    assert max(waits) > most - jitter * 6


@pytest.mark.rule("G2")
def test_jitter_spreads_the_pings_of_different_paths() -> None:
    firsts = {step_of(in_failover(ping_jitter=0.1, seed=seed)).at for seed in range(50)}

    assert len(firsts) == 50


@pytest.mark.rule("G2", "S12")
@pytest.mark.parametrize(
    ("after_drain", "status", "cause", "route", "step"),
    [
        (False, HEALTHY, None, Route.PRIMARY, None),
        (True, DRAINING, DOWN, Route.BACKLOG, Step(HealthTask.PEEK, START + MINUTE)),
    ],
)
def test_successful_ping_ends_failover_and_pings(
    after_drain: bool, status: PathStatus, cause: Exception | None, route: Route, step: Step | None
) -> None:
    health = in_failover(after_drain=after_drain)

    health.pinged(True, START + MINUTE)

    assert health.changes == [StatusChange(FAILOVER, status, None)]
    assert health.cause is cause
    assert health.route(START + MINUTE) is route
    assert health.next_step() == step


@pytest.mark.parametrize("succeeded", [True, False])
@pytest.mark.parametrize("state", [HEALTHY, SUSPECT, DRAINING])
def test_late_ping_result_changes_nothing(state: PathStatus, succeeded: bool) -> None:
    health = IN_STATE[state]()
    before = health.next_step()

    health.pinged(succeeded, START + 1)

    assert (health.status, health.changes, health.next_step()) == (state, [], before)


# Draining.


def pauses(health: PathHealth, *ages: float) -> list[float]:
    """Return the time to the next peek after each of some peeks at a large backlog, whose oldest
    message has these ages."""
    now, pauses = START, []
    for number, age_s in enumerate(ages):
        health.peeked((number,), small=False, idle=True, now=now, age_s=age_s)
        assert health.route(now) is Route.BACKLOG
        step = step_of(health)
        assert step.task is HealthTask.PEEK
        pauses.append(step.at - now)
        now = step.at
    return pauses


@pytest.mark.rule("S12")
def test_large_backlog_is_peeked_after_half_of_the_time_to_go() -> None:
    # It gets younger by 10 s a second.
    assert pauses(draining(), 400.0, 390.0, 200.0) == pytest.approx([1.0, 19.5, 10.26], abs=0.01)


@pytest.mark.rule("S12")
def test_peeks_are_rarer_while_the_backlog_does_not_shrink() -> None:
    assert pauses(draining(), *[400.0] * 7) == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


@pytest.mark.rule("S12")
def test_peeks_have_a_longest_and_a_shortest_interval() -> None:
    assert pauses(draining(check_interval_s=60.0), 9000.0, 8999.0) == [2.0, 60.0]
    assert pauses(draining(check_interval_s=60.0), 9000.0, 1.0) == [2.0, 2.0]


@pytest.mark.rule("S12")
def test_peeks_of_many_processes_are_spread() -> None:
    spread = {pauses(draining(ping_jitter=0.5, seed=seed), 9.0)[0] for seed in range(100)}

    assert 0.5 <= min(spread) < 0.6
    assert 1.4 < max(spread) <= 1.5


@pytest.mark.rule("S12")
def test_small_backlog_starts_a_hold_and_an_immediate_peek() -> None:
    health = draining()

    peek(health, START, 7, 8)

    assert health.route(START) is Route.HOLD
    assert health.hold_until == START + HOLD
    assert health.next_step() == Step(HealthTask.PEEK, START)


@pytest.mark.rule("S12")
def test_two_empty_peeks_within_a_hold_make_the_path_healthy() -> None:
    health = holding()

    peek(health, START + 0.1)
    assert health.status is DRAINING
    assert health.next_step() == Step(HealthTask.PEEK, START + 0.1 + PAUSE)
    peek(health, START + 0.6)

    assert health.changes == [StatusChange(DRAINING, HEALTHY, None)]
    assert health.route(START + 0.6) is Route.PRIMARY
    assert (health.next_step(), health.cause, health.hold_until) == (None, None, None)


@pytest.mark.rule("S12")
def test_peek_that_starts_the_hold_does_not_count() -> None:
    health = draining()

    peek(health, START)
    peek(health, START + 0.1)

    assert health.status is DRAINING


@pytest.mark.rule("S12")
def test_peek_with_sends_in_flight_does_not_count() -> None:
    health = holding()

    for tenth in range(1, 9):
        peek(health, START + tenth / 10, idle=tenth % 2 == 0)

    assert health.status is DRAINING
    peek(health, START + 0.9)
    assert health.status is HEALTHY


@pytest.mark.rule("S12")
@pytest.mark.parametrize("numbers", [(7, None), (None, 7), (7, 7)])
def test_peek_that_finds_messages_resets_the_count(numbers: tuple[int | None, ...]) -> None:
    health = holding()

    peek(health, START + 0.1)
    peek(health, START + 0.2, *numbers)
    peek(health, START + 0.3)
    assert health.status is DRAINING
    peek(health, START + 0.4)

    assert health.status is HEALTHY


@pytest.mark.rule("S12")
def test_sends_continue_after_a_hold_that_did_not_empty_the_backlog() -> None:
    health = holding()
    peek(health, START + 0.1, 7)

    assert health.route(START + HOLD - 0.001) is Route.HOLD
    assert health.route(START + HOLD) is Route.BACKLOG  # even without a peek
    peek(health, START + HOLD, 7)

    assert health.hold_until is None
    assert health.route(START + HOLD) is Route.BACKLOG
    assert health.next_step() == Step(HealthTask.PEEK, START + HOLD + SHORTEST_CHECK)


@pytest.mark.rule("S12")
def test_hold_is_repeated() -> None:
    health = holding()
    peek(health, START + HOLD, 7)

    again = START + HOLD + SHORTEST_CHECK
    peek(health, again, 7)
    assert health.route(again) is Route.HOLD
    assert health.hold_until == again + HOLD
    peek(health, again + 1)
    peek(health, again + 2)

    assert health.status is HEALTHY


@pytest.mark.rule("S12")
def test_every_second_hold_has_marks() -> None:
    health = holding()
    now, marked = START, []
    for _ in range(4):
        marked.append(health.hold_has_marks)
        now += HOLD
        peek(health, now, 7)
        now = step_of(health).at
        peek(health, now, 7)
        assert health.route(now) is Route.HOLD

    assert marked == [False, True, False, True]


@pytest.mark.rule("S12")
def test_pause_between_holds_grows() -> None:
    health = holding()
    now, waits = START, []
    for _ in range(20):
        now += HOLD
        peek(health, now, 7)
        step = health.next_step()
        assert step is not None
        waits.append(step.at - now)
        now = step.at
        peek(health, now, 7)
        assert health.route(now) is Route.HOLD

    assert waits[:3] == [SHORTEST_CHECK, SHORTEST_CHECK + HOLD, SHORTEST_CHECK + 2 * HOLD]
    assert set(waits[MAX_BACKOFF_HOLDS:]) == {SHORTEST_CHECK + MAX_BACKOFF_HOLDS * HOLD}


@pytest.mark.rule("S12")
def test_empty_peeks_of_two_holds_are_not_added_up() -> None:
    health = holding()
    peek(health, START + HOLD - 0.1)  # one empty peek at the end of the hold
    peek(health, START + HOLD, 7)
    peek(health, START + HOLD + 1)  # the next hold

    peek(health, START + HOLD + 1.1)
    assert health.status is DRAINING
    peek(health, START + HOLD + 1.2)
    assert health.status is HEALTHY


@pytest.mark.rule("S12")
def test_empty_peek_after_the_hold_does_not_count_if_a_send_has_begun() -> None:
    health = holding()
    peek(health, START + HOLD - 0.1)

    with InFlightSend(health, RLock()):
        pass  # it was stored after the hold, and the peek may have missed it
    peek(health, START + HOLD)

    assert health.status is DRAINING
    assert health.route(START + HOLD) is Route.BACKLOG


@pytest.mark.rule("S12", "G2")
def test_path_becomes_healthy_if_two_peeks_take_longer_than_the_hold() -> None:
    health = holding()

    peek(health, START + 2 * HOLD)
    assert health.status is DRAINING
    assert health.route(START + 2 * HOLD) is Route.BACKLOG  # a send does not wait any longer
    peek(health, START + 4 * HOLD)

    assert health.status is HEALTHY


@pytest.mark.rule("S12")
def test_send_between_two_slow_peeks_is_not_passed() -> None:
    health = holding()
    peek(health, START + 2 * HOLD)
    with InFlightSend(health, RLock()):
        pass

    peek(health, START + 4 * HOLD)

    assert health.status is DRAINING
    assert health.hold_until is None


@pytest.mark.rule("S12")
@pytest.mark.parametrize("by", ["failed", "probed"])
def test_message_stored_during_a_hold_resets_the_count(by: str) -> None:
    health = holding()
    peek(health, START + 0.1)

    # The call waited for the primary since before the failover, and stores its message now.
    if by == "failed":
        assert fail(health, START + 0.2) is FailureAction.STORE
    else:
        assert health.probed(FailureKind.UNAVAILABLE, DOWN, START + 0.2) is FailureAction.STORE
    peek(health, START + 0.3)
    peek(health, START + 0.4)
    assert health.status is DRAINING
    peek(health, START + 0.5)

    assert health.status is HEALTHY


@pytest.mark.rule("S12")
def test_failed_peek_ends_the_hold() -> None:
    health = holding()
    peek(health, START + 0.1)

    health.peek_failed(START + 0.2)

    assert health.route(START + 0.2) is Route.BACKLOG
    assert health.next_step() == Step(HealthTask.PEEK, START + 0.2 + SHORTEST_CHECK)
    assert health.status is DRAINING
    peek(health, START + 2)
    peek(health, START + 3)
    assert health.status is DRAINING  # the peeks before the failure do not count
    peek(health, START + 4)
    assert health.status is HEALTHY


@pytest.mark.rule("S12")
def test_pause_doubles_while_peeks_fail() -> None:
    health = draining()
    pauses, now = [], START
    for _ in range(7):
        health.peek_failed(now)
        pauses.append(step_of(health).at - now)
        now = step_of(health).at

    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


@pytest.mark.parametrize("state", [HEALTHY, SUSPECT, FAILOVER])
def test_late_peek_changes_nothing(state: PathStatus) -> None:
    health = IN_STATE[state]()
    before = health.next_step()

    peek(health, START + 1)
    peek(health, START + 2)
    peek(health, START + 3)
    health.peek_failed(START + DRAIN_TIMEOUT * 9)

    assert (health.status, health.changes, health.next_step()) == (state, [], before)
    assert not health.stalled


@pytest.mark.rule("S12")
def test_missing_progress_is_reported_once_per_timeout() -> None:
    health = draining()
    reported = []
    for second in range(int(DRAIN_TIMEOUT * 2.5)):
        peek(health, START + second, 7, 8, small=False)
        if health.stalled:
            reported.append(second)
            health.stalled = False

    assert reported == [600, 1200]


@pytest.mark.rule("S12")
@pytest.mark.parametrize("then", [(8, 8), (7, None), (None, None), (7, 9)])
def test_progress_in_any_queue_restarts_the_timeout(then: tuple[int | None, ...]) -> None:
    health = draining()
    peek(health, START, 7, 8, small=False)
    peek(health, START + 599, *then, small=False)

    peek(health, START + 600 + 598, *then, small=False)
    assert not health.stalled
    peek(health, START + 600 + 599, *then, small=False)

    assert health.stalled


@pytest.mark.rule("S12")
def test_failed_peeks_are_no_progress() -> None:
    health = draining()

    health.peek_failed(START + DRAIN_TIMEOUT - 1)
    assert not health.stalled
    health.peek_failed(START + DRAIN_TIMEOUT)

    assert health.stalled


@pytest.mark.rule("S12")
def test_second_drain_starts_with_fresh_counts() -> None:
    health = holding()
    peek(health, START + 0.1)
    health.mark_healthy(START + 1)
    fail(health, START + 2)
    health.pinged(True, START + 1000)

    assert health.route(START + 1000) is Route.BACKLOG
    peek(health, START + 1000)
    assert not health.stalled
    peek(health, START + 1000.1)
    assert health.status is DRAINING
    peek(health, START + 1000.2)
    assert health.status is HEALTHY


# Marking a path as healthy.


@pytest.mark.rule("S13")
@pytest.mark.parametrize("state", PathStatus)
def test_any_path_can_be_marked_healthy(state: PathStatus) -> None:
    health = holding() if state is DRAINING else IN_STATE[state]()

    health.mark_healthy(START + 1)

    changed = state is not HEALTHY
    assert health.changes == [StatusChange(state, HEALTHY, None)] * changed
    assert (health.since, health.cause, health.next_step()) == (START + changed, None, None)
    assert health.route(START + 1) is Route.PRIMARY
