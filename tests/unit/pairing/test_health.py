"""The health of one path, with a clock that the tests hold."""

from random import Random
from typing import Any

import pytest

from pairbus.events import PathStatus
from pairbus.pairing.failures import FailureKind
from pairbus.pairing.health import (
    DRAIN_CHECK_S,
    HOLD_CHECKS,
    MOST_HOLDS,
    SMALL,
    YOUNG,
    FailureAction,
    HealthSettings,
    HealthTask,
    PathHealth,
    PeekResult,
    Route,
    StatusChange,
    Step,
    is_small,
)

HEALTHY, SUSPECT = PathStatus.HEALTHY, PathStatus.SUSPECT
FAILOVER, DRAINING = PathStatus.FAILOVER, PathStatus.DRAINING
DOWN, LATER, ODD = OSError("down"), OSError("later"), OSError("odd")
MINUTE = 60.0
HOLD = 5.0
PAUSE = HOLD / HOLD_CHECKS
DRAIN_TIMEOUT = 600.0
START = 1000.0
NOT_THE_PRIMARYS = [FailureKind.BUSY, FailureKind.CALLER]
DOWN_KINDS = [FailureKind.UNAVAILABLE, FailureKind.UNKNOWN]


def made(interval: float = MINUTE, *, seed: int = 1, **settings: Any) -> PathHealth:
    given = {
        "failover_interval_s": interval,
        "ping_interval_s": MINUTE,
        "ping_jitter": 0.0,
        "after_drain": False,
        "hold_s": HOLD,
        "drain_timeout_s": DRAIN_TIMEOUT,
    }
    return PathHealth(HealthSettings(**{**given, **settings}), Random(seed), START)


def fail(
    health: PathHealth, now: float, kind: FailureKind = FailureKind.UNAVAILABLE
) -> FailureAction:
    return health.failed(kind, DOWN, now)


def in_failover(**settings: Any) -> PathHealth:
    health = made(0, **settings)
    fail(health, START)
    health.changes.clear()
    return health


def draining(**settings: Any) -> PathHealth:
    """A path whose primary is back, at START."""
    health = in_failover(after_drain=True, **settings)
    health.pinged(True, START)
    health.changes.clear()
    return health


def holding(now: float = START, **settings: Any) -> PathHealth:
    """A path whose callers wait since `now`."""
    health = draining(**settings)
    look(health, now)
    assert health.route(now) is Route.HOLD
    return health


def look(
    health: PathHealth, now: float, *first: int | None, small: bool = True, quiet: bool = True
) -> None:
    health.peeked(first or (None, None), small=small, quiet=quiet, now=now)


def step_of(health: PathHealth) -> Step:
    step = health.next_step()
    assert step is not None
    return step


# The timer.


def test_a_new_path_is_healthy_and_nothing_is_to_be_done() -> None:
    health = made()

    assert (health.state, health.since, health.cause) == (HEALTHY, START, None)
    assert health.route(START) is Route.PRIMARY
    assert health.next_step() is None
    assert health.changes == []


@pytest.mark.rule("S3")
@pytest.mark.parametrize("interval", [1.0, MINUTE])
def test_before_the_timer_fires_callers_get_their_error_and_sends_go_to_the_primary(
    interval: float,
) -> None:
    health = made(interval)

    assert fail(health, START) is FailureAction.RAISE

    assert health.state is SUSPECT
    assert health.route(START) is Route.PRIMARY
    assert health.route(START + interval - 0.001) is Route.PRIMARY
    assert fail(health, START + interval - 0.001) is FailureAction.RAISE
    assert health.next_step() == Step(HealthTask.ENGAGE, START + interval)


@pytest.mark.rule("S3")
@pytest.mark.parametrize("interval", [1.0, MINUTE])
def test_when_the_timer_fires_sends_go_to_the_backlog(interval: float) -> None:
    health = made(interval)
    fail(health, START)

    health.engage(None, START + interval)

    assert health.state is FAILOVER
    assert health.route(START + interval) is Route.BACKLOG
    assert health.route(START + 100 * interval) is Route.BACKLOG
    assert (health.cause, health.since) == (DOWN, START + interval)


@pytest.mark.rule("S3")
def test_with_no_interval_the_call_that_failed_goes_on_into_the_backlog() -> None:
    health = made(0)

    assert fail(health, START) is FailureAction.STORE

    assert health.state is FAILOVER
    assert health.route(START) is Route.BACKLOG
    assert health.changes == [StatusChange(HEALTHY, FAILOVER, DOWN)]


@pytest.mark.rule("S3")
@pytest.mark.parametrize("interval", [0.0, 1.0, MINUTE])
def test_a_call_that_fails_after_failover_goes_on_into_the_backlog(interval: float) -> None:
    health = made(interval)
    fail(health, START)
    if interval:
        health.engage(None, START + interval)
    health.changes.clear()

    assert health.failed(FailureKind.UNAVAILABLE, LATER, START + 2 * MINUTE) is FailureAction.STORE
    assert health.failed(FailureKind.UNKNOWN, LATER, START + 2 * MINUTE) is FailureAction.STORE

    assert health.changes == []
    assert health.cause is DOWN


@pytest.mark.rule("S3")
def test_later_failures_do_not_re_arm_the_timer() -> None:
    health = made()
    fail(health, START)

    for after in (1, 30, 59):
        health.failed(FailureKind.UNAVAILABLE, LATER, START + after)
        health.failed(FailureKind.UNKNOWN, LATER, START + after)

    assert health.next_step() == Step(HealthTask.ENGAGE, START + MINUTE)
    assert health.cause is DOWN
    assert health.changes == [StatusChange(HEALTHY, SUSPECT, DOWN)]


@pytest.mark.rule("S3")
def test_a_success_in_between_cancels_the_timer_and_the_next_failure_starts_a_new_one() -> None:
    health = made()
    fail(health, START)

    health.succeeded(START + 59)

    assert (health.state, health.since, health.cause) == (HEALTHY, START + 59, None)
    assert health.next_step() is None
    fail(health, START + 61)
    assert health.next_step() == Step(HealthTask.ENGAGE, START + 61 + MINUTE)
    assert [(one.from_state, one.to_state) for one in health.changes] == [
        (HEALTHY, SUSPECT),
        (SUSPECT, HEALTHY),
        (HEALTHY, SUSPECT),
    ]


def test_a_success_that_comes_late_does_not_end_failover() -> None:
    health = in_failover()

    health.succeeded(START + 1)

    assert health.state is FAILOVER
    assert health.changes == []


def test_a_success_while_healthy_changes_nothing() -> None:
    health = made()

    health.succeeded(START + 1)

    assert (health.since, health.changes) == (START, [])


@pytest.mark.rule("S2")
@pytest.mark.parametrize("kind", NOT_THE_PRIMARYS)
@pytest.mark.parametrize("interval", [0.0, MINUTE])
def test_throttling_and_the_callers_own_errors_start_nothing(
    kind: FailureKind, interval: float
) -> None:
    health = made(interval)

    for _ in range(10):
        assert fail(health, START, kind) is FailureAction.RAISE

    assert health.state is HEALTHY
    assert health.next_step() is None
    assert health.changes == []


@pytest.mark.rule("S2")
@pytest.mark.parametrize("kind", NOT_THE_PRIMARYS)
def test_nor_do_they_stop_a_timer_or_turn_a_caller_to_the_backlog(kind: FailureKind) -> None:
    health = made()
    fail(health, START)

    assert fail(health, START + 1, kind) is FailureAction.RAISE
    assert health.next_step() == Step(HealthTask.ENGAGE, START + MINUTE)

    health.engage(None, START + MINUTE)
    assert fail(health, START + 61, kind) is FailureAction.RAISE


# Failures that hide their reason.


@pytest.mark.rule("S2")
def test_with_no_interval_a_failure_that_hides_its_reason_is_looked_into_first() -> None:
    health = made(0)

    assert fail(health, START, FailureKind.UNKNOWN) is FailureAction.LOOK

    assert health.state is HEALTHY
    assert health.changes == []


@pytest.mark.rule("S2")
@pytest.mark.parametrize("met", DOWN_KINDS)
def test_where_the_look_finds_the_primary_down_the_call_goes_on_into_the_backlog(
    met: FailureKind,
) -> None:
    health = made(0)
    fail(health, START, FailureKind.UNKNOWN)

    assert health.looked(met, DOWN, START + 1) is FailureAction.STORE

    assert health.changes == [StatusChange(HEALTHY, FAILOVER, DOWN)]
    assert health.next_step() == Step(HealthTask.PING, START + 1 + MINUTE)


@pytest.mark.rule("S2")
@pytest.mark.parametrize("met", [None, *NOT_THE_PRIMARYS])
def test_where_the_primary_answers_the_caller_gets_its_error(met: FailureKind | None) -> None:
    health = made(0)
    fail(health, START, FailureKind.UNKNOWN)

    assert health.looked(met, DOWN, START + 1) is FailureAction.RAISE

    assert health.state is HEALTHY
    assert health.changes == []


@pytest.mark.rule("S2")
def test_the_timer_of_such_a_failure_ends_in_a_look_and_not_in_failover() -> None:
    health = made()

    assert fail(health, START, FailureKind.UNKNOWN) is FailureAction.RAISE

    assert health.state is SUSPECT
    assert health.next_step() == Step(HealthTask.LOOK, START + MINUTE)


@pytest.mark.rule("S2")
@pytest.mark.parametrize("met", DOWN_KINDS)
def test_that_look_engages_failover_where_the_primary_is_down(met: FailureKind) -> None:
    health = made()
    fail(health, START, FailureKind.UNKNOWN)

    assert health.looked(met, DOWN, START + MINUTE) is FailureAction.STORE

    assert health.state is FAILOVER


@pytest.mark.rule("S2")
@pytest.mark.parametrize("met", [None, *NOT_THE_PRIMARYS])
def test_that_look_ends_the_matter_where_the_primary_answers(met: FailureKind | None) -> None:
    health = made()
    fail(health, START, FailureKind.UNKNOWN)

    assert health.looked(met, DOWN, START + MINUTE) is FailureAction.RAISE

    assert (health.state, health.cause) == (HEALTHY, None)
    assert health.next_step() is None


@pytest.mark.rule("S2")
def test_a_plain_failure_after_one_that_hides_its_reason_makes_the_look_needless() -> None:
    health = made()
    health.failed(FailureKind.UNKNOWN, ODD, START)

    health.failed(FailureKind.UNAVAILABLE, DOWN, START + 10)

    assert health.next_step() == Step(HealthTask.ENGAGE, START + MINUTE)
    assert health.cause is DOWN


@pytest.mark.rule("S2")
def test_a_hidden_failure_after_a_plain_one_does_not_make_it_unsure() -> None:
    health = made()
    health.failed(FailureKind.UNAVAILABLE, DOWN, START)

    health.failed(FailureKind.UNKNOWN, ODD, START + 10)

    assert health.next_step() == Step(HealthTask.ENGAGE, START + MINUTE)
    assert health.cause is DOWN


@pytest.mark.rule("S3")
@pytest.mark.parametrize("met", [None, *FailureKind])
def test_a_look_that_a_success_has_overtaken_says_nothing(met: FailureKind | None) -> None:
    health = made()
    fail(health, START, FailureKind.UNKNOWN)
    health.succeeded(START + MINUTE + 1)  # while the ping was under way
    health.changes.clear()

    assert health.looked(met, DOWN, START + MINUTE + 2) is FailureAction.RAISE

    assert health.state is HEALTHY
    assert health.changes == []


@pytest.mark.rule("S3")
@pytest.mark.parametrize("met", [None, *FailureKind])
def test_nor_does_it_stop_or_shorten_a_timer_that_was_started_since(
    met: FailureKind | None,
) -> None:
    health = made()
    fail(health, START, FailureKind.UNKNOWN)
    health.succeeded(START + 61)
    fail(health, START + 62, FailureKind.UNKNOWN)

    assert health.looked(met, DOWN, START + 63) is FailureAction.RAISE

    assert health.next_step() == Step(HealthTask.LOOK, START + 62 + MINUTE)


@pytest.mark.parametrize("met", [None, *FailureKind])
def test_a_look_that_ends_after_others_failed_over_goes_with_them(met: FailureKind | None) -> None:
    health = in_failover()

    assert health.looked(met, LATER, START + 1) is FailureAction.STORE

    assert health.changes == []


# Pings.


@pytest.mark.rule("G2")
def test_without_jitter_pings_keep_the_interval_exactly() -> None:
    health = in_failover()

    assert health.next_step() == Step(HealthTask.PING, START + MINUTE)
    health.pinged(False, START + 75)
    assert health.next_step() == Step(HealthTask.PING, START + 75 + MINUTE)


@pytest.mark.rule("G2")
@pytest.mark.parametrize("jitter", [0.1, 0.5, 1.0])
def test_with_jitter_pings_come_earlier_and_later_within_it(jitter: float) -> None:
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
def test_paths_do_not_ping_in_step() -> None:
    firsts = {step_of(in_failover(ping_jitter=0.1, seed=seed)).at for seed in range(50)}

    assert len(firsts) == 50


@pytest.mark.rule("G2")
def test_a_ping_that_gets_through_ends_failover_and_the_pings() -> None:
    health = in_failover()

    health.pinged(True, START + MINUTE)

    assert health.changes == [StatusChange(FAILOVER, HEALTHY, None)]
    assert health.cause is None
    assert health.route(START + MINUTE) is Route.PRIMARY
    assert health.next_step() is None


@pytest.mark.rule("G2", "S12")
def test_after_drain_it_starts_the_draining_and_sends_go_on_to_the_backlog() -> None:
    health = in_failover(after_drain=True)

    health.pinged(True, START + MINUTE)

    assert health.changes == [StatusChange(FAILOVER, DRAINING, None)]
    assert health.cause is DOWN
    assert health.route(START + MINUTE) is Route.BACKLOG
    assert health.next_step() == Step(HealthTask.PEEK, START + MINUTE)


@pytest.mark.parametrize("got_through", [True, False])
@pytest.mark.parametrize("state", [HEALTHY, SUSPECT, DRAINING])
def test_a_ping_that_comes_late_changes_nothing(state: PathStatus, got_through: bool) -> None:
    health = draining() if state is DRAINING else made()
    if state is SUSPECT:
        fail(health, START)
    health.changes.clear()
    before = health.next_step()

    health.pinged(got_through, START + 1)

    assert (health.state, health.changes, health.next_step()) == (state, [], before)


# Draining.


@pytest.mark.rule("S12")
def test_while_the_backlog_is_large_sends_go_on_and_it_is_looked_at_now_and_then() -> None:
    health = draining()

    for second in range(5):
        look(health, START + second, 1 + second, 7, small=False)
        assert health.route(START + second) is Route.BACKLOG
        assert health.next_step() == Step(HealthTask.PEEK, START + second + DRAIN_CHECK_S)


@pytest.mark.rule("S12")
def test_a_small_backlog_makes_callers_wait_and_is_looked_at_at_once() -> None:
    health = draining()

    look(health, START, 7, 8)

    assert health.route(START) is Route.HOLD
    assert health.hold_until == START + HOLD
    assert health.next_step() == Step(HealthTask.PEEK, START)


@pytest.mark.rule("S12")
def test_two_quiet_empty_looks_within_the_hold_make_the_path_healthy() -> None:
    health = holding()

    look(health, START + 0.1)
    assert health.state is DRAINING
    assert health.next_step() == Step(HealthTask.PEEK, START + 0.1 + PAUSE)
    look(health, START + 0.6)

    assert health.changes == [StatusChange(DRAINING, HEALTHY, None)]
    assert health.route(START + 0.6) is Route.PRIMARY
    assert (health.next_step(), health.cause, health.hold_until) == (None, None, None)


@pytest.mark.rule("S12")
def test_the_look_that_starts_the_hold_does_not_count() -> None:
    health = draining()

    look(health, START)
    look(health, START + 0.1)

    assert health.state is DRAINING


@pytest.mark.rule("S12")
def test_a_look_while_something_was_in_flight_does_not_count() -> None:
    health = holding()

    for tenth in range(1, 9):
        look(health, START + tenth / 10, quiet=tenth % 2 == 0)

    assert health.state is DRAINING
    look(health, START + 0.9)
    assert health.state is HEALTHY


@pytest.mark.rule("S12")
@pytest.mark.parametrize("found", [(7, None), (None, 7), (7, 7)])
def test_after_an_empty_look_one_that_finds_something_starts_over(
    found: tuple[int | None, ...],
) -> None:
    health = holding()

    look(health, START + 0.1)
    look(health, START + 0.2, *found)
    look(health, START + 0.3)
    assert health.state is DRAINING
    look(health, START + 0.4)

    assert health.state is HEALTHY


@pytest.mark.rule("S12")
def test_a_hold_in_vain_ends_and_callers_get_on() -> None:
    health = holding()
    look(health, START + 0.1, 7)

    assert health.route(START + HOLD - 0.001) is Route.HOLD
    assert health.route(START + HOLD) is Route.BACKLOG  # whether or not anybody looks
    look(health, START + HOLD, 7)

    assert health.hold_until is None
    assert health.route(START + HOLD) is Route.BACKLOG
    assert health.next_step() == Step(HealthTask.PEEK, START + HOLD + DRAIN_CHECK_S)


@pytest.mark.rule("S12")
def test_after_a_hold_in_vain_it_is_tried_again() -> None:
    health = holding()
    look(health, START + HOLD, 7)

    again = START + HOLD + DRAIN_CHECK_S
    look(health, again, 7)
    assert health.route(again) is Route.HOLD
    assert health.hold_until == again + HOLD
    look(health, again + 1)
    look(health, again + 2)

    assert health.state is HEALTHY


@pytest.mark.rule("S12")
def test_after_each_hold_in_vain_callers_get_on_for_longer() -> None:
    health = holding()
    now, waits = START, []
    for _ in range(20):
        now += HOLD
        look(health, now, 7)
        step = health.next_step()
        assert step is not None
        waits.append(step.at - now)
        now = step.at
        look(health, now, 7)
        assert health.route(now) is Route.HOLD

    assert waits[:3] == [DRAIN_CHECK_S, DRAIN_CHECK_S + HOLD, DRAIN_CHECK_S + 2 * HOLD]
    assert set(waits[MOST_HOLDS:]) == {DRAIN_CHECK_S + MOST_HOLDS * HOLD}


@pytest.mark.rule("S12")
@pytest.mark.parametrize(
    ("looks", "small"),
    [
        ([PeekResult(0), PeekResult(SMALL, 7, 3600.0)], True),
        ([PeekResult(0), PeekResult(SMALL + 1, 7, 3600.0)], False),
        ([PeekResult(0), PeekResult(SMALL + 1, 7, HOLD * YOUNG)], False),
        ([PeekResult(SMALL + 1, 9, 0.1), PeekResult(SMALL + 1, 7, HOLD * YOUNG - 0.1)], True),
        ([PeekResult(SMALL + 1, 9, -5.0)], True),  # a clock that is behind
    ],
)
def test_a_backlog_is_small_that_is_short_or_young(looks: list[PeekResult], small: bool) -> None:
    assert is_small(looks, HOLD) is small


@pytest.mark.rule("S12")
def test_empty_looks_of_two_holds_are_not_added_up() -> None:
    health = holding()
    look(health, START + HOLD - 0.1)  # one empty look, and the hold is over
    look(health, START + HOLD, 7)
    look(health, START + HOLD + 1)  # the next hold

    look(health, START + HOLD + 1.1)
    assert health.state is DRAINING
    look(health, START + HOLD + 1.2)
    assert health.state is HEALTHY


@pytest.mark.rule("S12")
def test_an_empty_look_that_comes_after_the_hold_does_not_count() -> None:
    health = holding()
    look(health, START + HOLD - 0.1)

    look(health, START + HOLD)

    assert health.state is DRAINING
    assert health.route(START + HOLD) is Route.BACKLOG


@pytest.mark.rule("S12")
@pytest.mark.parametrize("by", ["failed", "looked"])
def test_a_call_that_joins_in_the_hold_makes_the_look_under_way_count_for_nothing(by: str) -> None:
    health = holding()
    look(health, START + 0.1)

    # It waited for the primary since before the failover, and is stored while a look goes on.
    if by == "failed":
        assert fail(health, START + 0.2) is FailureAction.STORE
    else:
        assert health.looked(FailureKind.UNAVAILABLE, DOWN, START + 0.2) is FailureAction.STORE
    look(health, START + 0.3)
    look(health, START + 0.4)
    assert health.state is DRAINING
    look(health, START + 0.5)

    assert health.state is HEALTHY


@pytest.mark.rule("S12")
def test_where_the_backlog_cannot_be_looked_at_callers_get_on() -> None:
    health = holding()
    look(health, START + 0.1)

    health.peek_failed(START + 0.2)

    assert health.route(START + 0.2) is Route.BACKLOG
    assert health.next_step() == Step(HealthTask.PEEK, START + 0.2 + DRAIN_CHECK_S)
    assert health.state is DRAINING
    look(health, START + 2)
    look(health, START + 3)
    assert health.state is DRAINING  # the looks before the failure are forgotten
    look(health, START + 4)
    assert health.state is HEALTHY


@pytest.mark.parametrize("state", [HEALTHY, SUSPECT, FAILOVER])
def test_a_look_that_comes_late_changes_nothing(state: PathStatus) -> None:
    health = in_failover() if state is FAILOVER else made()
    if state is SUSPECT:
        fail(health, START)
    health.changes.clear()
    before = health.next_step()

    look(health, START + 1)
    look(health, START + 2)
    look(health, START + 3)
    health.peek_failed(START + DRAIN_TIMEOUT * 9)

    assert (health.state, health.changes, health.next_step()) == (state, [], before)
    assert not health.stalled


@pytest.mark.rule("S12")
def test_no_progress_is_told_once_per_timeout() -> None:
    health = draining()
    told = []
    for second in range(int(DRAIN_TIMEOUT * 2.5)):
        look(health, START + second, 7, 8, small=False)
        if health.stalled:
            told.append(second)
            health.stalled = False

    assert told == [600, 1200]


@pytest.mark.rule("S12")
@pytest.mark.parametrize("then", [(8, 8), (7, None), (None, None), (7, 9)])
def test_progress_in_any_queue_starts_the_timeout_again(then: tuple[int | None, ...]) -> None:
    health = draining()
    look(health, START, 7, 8, small=False)
    look(health, START + 599, *then, small=False)

    look(health, START + 600 + 598, *then, small=False)
    assert not health.stalled
    look(health, START + 600 + 599, *then, small=False)

    assert health.stalled


@pytest.mark.rule("S12")
def test_a_backlog_that_cannot_be_looked_at_makes_no_progress() -> None:
    health = draining()

    health.peek_failed(START + DRAIN_TIMEOUT - 1)
    assert not health.stalled
    health.peek_failed(START + DRAIN_TIMEOUT)

    assert health.stalled


@pytest.mark.rule("S12")
def test_a_second_draining_starts_from_nothing() -> None:
    health = holding()
    look(health, START + 0.1)
    health.mark_healthy(START + 1)
    fail(health, START + 2)
    health.pinged(True, START + 1000)

    assert health.route(START + 1000) is Route.BACKLOG
    look(health, START + 1000)
    assert not health.stalled
    look(health, START + 1000.1)
    assert health.state is DRAINING
    look(health, START + 1000.2)
    assert health.state is HEALTHY


# By hand.


@pytest.mark.rule("S13")
@pytest.mark.parametrize("state", [SUSPECT, FAILOVER, DRAINING])
def test_any_path_can_be_marked_healthy(state: PathStatus) -> None:
    health = {
        SUSPECT: made,
        FAILOVER: in_failover,
        DRAINING: holding,
    }[state]()
    if state is SUSPECT:
        fail(health, START)
    health.changes.clear()

    health.mark_healthy(START + 1)

    assert health.changes == [StatusChange(state, HEALTHY, None)]
    assert (health.since, health.cause, health.next_step()) == (START + 1, None, None)
    assert health.route(START + 1) is Route.PRIMARY


@pytest.mark.rule("S13")
def test_marking_a_healthy_path_changes_nothing() -> None:
    health = made()

    health.mark_healthy(START + 1)

    assert (health.since, health.changes) == (START, [])
