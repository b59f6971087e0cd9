"""The state that all senders of a pairing share: health, rotation, events and log."""

import dataclasses
import logging
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)

from pairbus.errors import PairingFaulted, SendUnavailable, StateError
from pairbus.events import (
    BacklogQueuePulled,
    BacklogQueueRestored,
    DrainStalled,
    Event,
    PathStatus,
    Pinged,
    StateChanged,
)
from pairbus.options import FailureKind, SendAvailabilityOptions
from pairbus.pairing.health import FailureAction, HealthTask, InFlightSend, PeekResult, Step
from pairbus.pairing.state import Hold, PairingState, PathState

HEALTHY, SUSPECT = PathStatus.HEALTHY, PathStatus.SUSPECT
FAILOVER, DRAINING = PathStatus.FAILOVER, PathStatus.DRAINING
QUEUES = tuple(f"one/x-servicebus-transfer/{index}" for index in range(4))
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
DOWN = ServiceBusConnectionError(message="down")
GONE = MessagingEntityNotFoundError(message="gone")
BUSY = ServiceBusServerBusyError(message="busy")
PINNED = [1, 3, 1, 0, 2, 1]
"""A change of these would move sessions to other queues during an outage."""
EMPTY: list[tuple[int, int | None]] = [(0, None)] * 4
SOME: list[tuple[int, int | None]] = [(1, 7), *EMPTY[1:]]


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at

    def forward(self, seconds: float) -> None:
        self.at += seconds


class Bench:
    """A pairing with a clock, its events, and the recoveries that it started."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.events: list[Event] = []
        self.recoveries: list[PathState] = []
        self.changed = 0
        settings = {"ping_jitter": 0.0, "on_event": self.events.append, **options}
        self.pairing = PairingState(
            SendAvailabilityOptions(**settings),
            primary="one",
            secondary="two",
            queues=QUEUES,
            on_change=self._count_change,
            start_recovery=self.recoveries.append,
            now=self.clock,
            random=Random(1),
        )
        self.orders = self.pairing.path("orders")

    def _count_change(self) -> None:
        self.changed += 1

    @property
    def status(self) -> PathStatus:
        return self.orders.health.status

    def next_step(self) -> Step | None:
        return self.pairing.next_step(self.orders)

    def ping(self, error: BaseException | None = None) -> None:
        self.pairing.pinged(self.orders, error)

    def fail(self, path: PathState | None = None, error: BaseException = DOWN) -> Any:
        return self.pairing.send_failed(self.orders if path is None else path, error)

    def fail_and_store(self, path: PathState | None = None) -> None:
        """Fail a send to the primary, and store its message."""
        with self.fail(path):
            pass

    def route(self, path: PathState | None = None) -> Any:
        return self.pairing.route(self.orders if path is None else path)

    def claim(self, sender: object, path: PathState | None = None) -> str | None:
        """Claim a backlog queue for a sender, and release it."""
        claim = self.pairing.claim_any_queue(self.orders if path is None else path, sender)
        if claim is None:
            return None
        with claim:
            return claim.queue

    def states(self) -> list[tuple[PathStatus, PathStatus]]:
        return [
            (one.from_state, one.to_state) for one in self.events if isinstance(one, StateChanged)
        ]

    def kinds(self) -> list[type[Event]]:
        return [type(one) for one in self.events]

    def peek(self, counts: list[tuple[int, int | None]], *, idle: bool = True) -> None:
        peeks = [PeekResult(count, first) for count, first in counts]
        self.pairing.peeked(self.orders, peeks, idle=idle)

    def drain(self) -> None:
        """Fail over, and let the primary come back."""
        self.fail_and_store()
        self.ping()
        assert self.status is DRAINING


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def at_once() -> Bench:
    return Bench(failover_interval=timedelta())


@pytest.fixture
def drained() -> Bench:
    bench = Bench(failover_interval=timedelta(), failback="after-drain")
    bench.drain()
    return bench


# Paths.


@pytest.mark.rule("S3")
def test_names_that_differ_by_case_are_one_path(bench: Bench) -> None:
    bench.fail(bench.pairing.path("ORDERS"))

    assert bench.pairing.path("Orders") is bench.orders
    assert bench.status is SUSPECT
    assert list(bench.pairing.status().paths) == ["orders"]


@pytest.mark.rule("S3")
def test_other_paths_are_not_affected(at_once: Bench) -> None:
    bills = at_once.pairing.path("bills")

    at_once.fail()

    assert isinstance(at_once.route(), InFlightSend)
    assert at_once.route(bills) is None
    assert bills.health.status is HEALTHY
    assert bills.health.in_flight == 0


# Events.


@pytest.mark.rule("S13")
def test_every_change_is_an_event_with_path_from_to_cause_and_time(bench: Bench) -> None:
    before = datetime.now(UTC)

    bench.fail()

    (event,) = bench.events
    assert isinstance(event, StateChanged)
    assert event.path == "orders"
    assert (event.from_state, event.to_state) == (HEALTHY, SUSPECT)
    assert event.cause is DOWN
    assert before <= event.when <= datetime.now(UTC)


@pytest.mark.rule("S13")
def test_events_of_an_outage_are_in_order(bench: Bench) -> None:
    bench.fail()
    bench.clock.forward(60)
    bench.pairing.failover_timer_fired(bench.orders)
    bench.ping(DOWN)
    bench.ping()

    assert bench.kinds() == [StateChanged, StateChanged, Pinged, Pinged, StateChanged]
    assert bench.states() == [(HEALTHY, SUSPECT), (SUSPECT, FAILOVER), (FAILOVER, HEALTHY)]


@pytest.mark.rule("S13", "S12")
def test_events_of_a_drain_are_in_order(drained: Bench) -> None:
    drained.peek(SOME)
    drained.peek(EMPTY)
    drained.peek(EMPTY)

    assert drained.states() == [(HEALTHY, FAILOVER), (FAILOVER, DRAINING), (DRAINING, HEALTHY)]


@pytest.mark.rule("S13")
def test_event_handler_sees_the_new_state() -> None:
    seen = []
    bench = Bench(on_event=lambda event: seen.append(bench.status))

    bench.fail()

    assert seen == [SUSPECT]


@pytest.mark.rule("S13")
def test_event_handler_can_use_the_pairing() -> None:
    seen: list[PathStatus] = []

    def hook(event: Event) -> None:
        seen.append(bench.pairing.status().paths["orders"].status)
        if seen == [FAILOVER]:
            bench.pairing.mark_healthy(bench.orders)

    bench = Bench(failover_interval=timedelta(), on_event=hook)

    assert isinstance(bench.fail(), InFlightSend)
    assert seen == [FAILOVER, HEALTHY]


@pytest.mark.rule("S13")
def test_failing_event_handler_does_not_fail_a_send(caplog: pytest.LogCaptureFixture) -> None:
    def hook(event: Event) -> None:
        raise RuntimeError("the hook is broken")

    bench = Bench(failover_interval=timedelta(), on_event=hook)

    assert isinstance(bench.fail(), InFlightSend)
    assert bench.recoveries == [bench.orders]
    assert bench.changed == 1
    (record,) = [one for one in caplog.records if one.exc_info]
    assert "on_event" in record.message


def test_event_handler_is_optional() -> None:
    bench = Bench(on_event=None)

    assert bench.fail() is FailureAction.RAISE
    assert bench.status is SUSPECT


@pytest.mark.rule("S13")
def test_events_are_frozen_data() -> None:
    now = datetime.now(UTC)
    error = RuntimeError()
    events = [
        StateChanged(when=now, path="q", from_state=HEALTHY, to_state=SUSPECT, cause=error),
        Pinged(when=now, path="q"),
        BacklogQueuePulled(when=now, queue="b", cause=error),
        BacklogQueueRestored(when=now, queue="b"),
        DrainStalled(when=now, path="q"),
    ]
    for event in events:
        assert isinstance(event, Event)
        for field in dataclasses.fields(event):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(event, field.name, None)
        assert event == dataclasses.replace(event)


@pytest.mark.rule("S13")
def test_each_change_is_logged_once_at_its_level(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(failback="after-drain")
    caplog.set_level(logging.DEBUG, logger="pairbus.pairing")

    bench.fail()
    bench.fail()
    bench.clock.forward(60)
    bench.pairing.failover_timer_fired(bench.orders)
    bench.pairing.failover_timer_fired(bench.orders)
    bench.fail_and_store()
    bench.ping(DOWN)
    bench.ping()
    for counts in (SOME, EMPTY, EMPTY):
        bench.peek(counts)
    bench.pairing.mark_healthy(bench.orders)

    said = [(one.levelname, one.getMessage().partition(";")[0]) for one in caplog.records]
    assert said == [
        ("WARNING", "orders: healthy to suspect"),
        ("ERROR", "orders: suspect to failover"),
        ("WARNING", "orders: failover to draining"),
        ("INFO", "orders: draining to healthy"),
    ]
    assert "(down)" in caplog.records[0].getMessage()


def test_every_change_wakes_waiters(at_once: Bench) -> None:
    at_once.fail()
    at_once.ping()

    assert at_once.changed == 2


# Recovery.


def test_one_recovery_is_started_per_outage(at_once: Bench) -> None:
    at_once.fail()
    at_once.fail()
    at_once.ping(DOWN)
    assert at_once.recoveries == [at_once.orders]

    at_once.ping()
    assert at_once.next_step() is None  # the recovery ends
    at_once.fail()

    assert at_once.recoveries == [at_once.orders] * 2


def test_running_recovery_continues(bench: Bench) -> None:
    bench.fail()
    bench.pairing.send_succeeded(bench.orders)
    bench.fail()  # before the recovery noticed the success

    assert bench.recoveries == [bench.orders]
    assert bench.next_step() == Step(HealthTask.FAIL_OVER, 1060.0)


def test_no_recovery_is_started_for_a_healthy_path(bench: Bench) -> None:
    bench.fail(error=GONE)
    bench.pairing.send_succeeded(bench.orders)
    bench.pairing.mark_healthy(bench.orders)

    assert bench.recoveries == []


@pytest.mark.rule("S14")
def test_no_recovery_is_started_for_a_closed_pairing(at_once: Bench) -> None:
    at_once.fail()
    at_once.pairing.primary.set_closed()

    assert at_once.next_step() is None
    at_once.fail(at_once.pairing.path("bills"))
    assert at_once.recoveries == [at_once.orders]


# Steps.


@pytest.mark.rule("S3")
@pytest.mark.parametrize("fails_again", [False, True])
def test_stopped_timer_does_not_fire(bench: Bench, fails_again: bool) -> None:
    bench.fail()
    bench.clock.forward(60)
    bench.pairing.send_succeeded(bench.orders)
    if fails_again:
        bench.fail()

    bench.pairing.failover_timer_fired(bench.orders)

    assert bench.status is (SUSPECT if fails_again else HEALTHY)
    assert bench.next_step() == (Step(HealthTask.FAIL_OVER, 1120.0) if fails_again else None)


@pytest.mark.rule("S3")
def test_success_of_any_sender_stops_the_timer(bench: Bench) -> None:
    bench.fail()

    bench.pairing.send_succeeded(bench.pairing.path("Orders"))

    assert bench.states() == [(HEALTHY, SUSPECT), (SUSPECT, HEALTHY)]


@pytest.mark.rule("S2")
@pytest.mark.parametrize("error", [GONE, BUSY, TypeError("no")])
def test_error_that_is_no_outage_leaves_the_path_healthy(bench: Bench, error: Exception) -> None:
    assert bench.fail(error=error) is FailureAction.RAISE
    assert bench.events == []


@pytest.mark.rule("S2")
def test_classify_option_decides_about_failures() -> None:
    bench = Bench(failover_interval=timedelta(), classify=lambda error: FailureKind.UNAVAILABLE)

    assert isinstance(bench.fail(error=GONE), InFlightSend)


@pytest.mark.rule("S2")
def test_background_probe_has_no_send_in_flight(bench: Bench) -> None:
    hidden = OSError("hidden")
    bench.pairing.classify = lambda error: (
        FailureKind.UNKNOWN if error is hidden else FailureKind.UNAVAILABLE
    )
    bench.fail(error=hidden)
    bench.clock.forward(60)

    bench.pairing.probed_in_background(bench.orders, DOWN)

    assert bench.status is FAILOVER
    assert bench.orders.health.in_flight == 0


@pytest.mark.rule("G4")
def test_refused_ping_is_an_event(at_once: Bench, caplog: pytest.LogCaptureFixture) -> None:
    at_once.fail()
    at_once.events.clear()

    at_once.ping(GONE)

    (event,) = at_once.events
    assert isinstance(event, Pinged)
    assert (event.path, event.error, event.refused) == ("orders", GONE, True)
    assert isinstance(at_once.route(), InFlightSend)
    assert "refused the ping" in caplog.records[-1].getMessage()
    assert caplog.records[-1].levelno == logging.ERROR


@pytest.mark.rule("G2")
@pytest.mark.parametrize("error", [DOWN, BUSY, OperationTimeoutError(message="late")])
def test_failed_ping_is_repeated(at_once: Bench, error: Exception) -> None:
    at_once.fail()
    at_once.clock.forward(60)

    at_once.ping(error)

    event = at_once.orders.last_ping
    assert event is not None
    assert (event.error, event.refused) == (error, False)
    assert at_once.next_step() == Step(HealthTask.PING, 1120.0)


@pytest.mark.rule("S12")
def test_send_is_held_for_the_rest_of_the_hold(drained: Bench) -> None:
    drained.peek(SOME)

    assert drained.route().seconds == 5.0
    drained.clock.forward(4)
    assert drained.route().seconds == 1.0
    assert drained.orders.health.in_flight == 0
    drained.clock.forward(1)
    assert isinstance(drained.route(), InFlightSend)
    assert drained.orders.health.in_flight == 1


@pytest.mark.rule("S12")
def test_all_draining_paths_are_held_at_the_same_time(drained: Bench) -> None:
    other, healthy = drained.pairing.path("other"), drained.pairing.path("healthy")
    drained.fail_and_store(other)
    drained.pairing.pinged(other, None)
    drained.pairing.peeked(other, [PeekResult(11, 7)], idle=True)  # the next is in a second
    with drained.route(other) as route:
        assert isinstance(route, InFlightSend)
    drained.clock.forward(0.5)
    changed = drained.changed

    drained.peek(SOME)

    assert drained.route(other).seconds == 5.0
    assert drained.pairing.next_step(other) == Step(HealthTask.PEEK, drained.clock())
    assert drained.changed > changed  # its recovery is woken
    assert drained.route(healthy) is None
    for _ in range(2):  # the first may have begun before the hold
        drained.pairing.peeked(other, [PeekResult(0)], idle=True)
    assert other.health.status is DRAINING
    drained.pairing.peeked(other, [PeekResult(0)], idle=True)
    assert other.health.status is HEALTHY


@pytest.mark.rule("S12")
@pytest.mark.parametrize(("count", "route"), [(10, Hold), (11, InFlightSend)])
def test_backlog_is_small_if_every_queue_is_small(drained: Bench, count: int, route: type) -> None:
    drained.peek([*EMPTY[1:], (count, 7)])

    assert isinstance(drained.route(), route)


@pytest.mark.rule("S12")
def test_path_is_idle_if_no_send_is_in_flight(drained: Bench) -> None:
    assert drained.pairing.is_idle(drained.orders)
    with drained.route():
        assert not drained.pairing.is_idle(drained.orders)
    assert drained.pairing.is_idle(drained.orders)


@pytest.mark.rule("S12")
def test_stalled_drain_is_an_event_once_per_timeout(
    drained: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    drained.events.clear()
    for _ in range(1201):
        drained.peek([(11, 7)] * 4)
        drained.clock.forward(1)

    assert drained.kinds() == [DrainStalled, DrainStalled]
    assert drained.events[0].path == "orders"  # type: ignore[attr-defined]
    assert sum("Check that a syphon is running" in one.getMessage() for one in caplog.records) == 2


@pytest.mark.rule("S12")
def test_stalled_drain_has_the_error_of_the_peek(drained: Bench) -> None:
    drained.events.clear()
    for _ in range(601):
        drained.pairing.peek_failed(drained.orders, GONE)
        drained.clock.forward(1)

    (event,) = drained.events
    assert isinstance(event, DrainStalled)
    assert event.error is GONE


def test_failed_peek_is_logged_once_until_it_succeeds(
    drained: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        drained.pairing.peek_failed(drained.orders, GONE)
    drained.peek([(11, 7)] * 4)
    drained.pairing.peek_failed(drained.orders, GONE)

    said = [one for one in caplog.records if "peek at the backlog failed: gone" in one.getMessage()]
    assert len(said) == 2


@pytest.mark.rule("S13")
@pytest.mark.parametrize("begin", [SUSPECT, FAILOVER, DRAINING])
def test_path_can_be_marked_healthy(begin: PathStatus) -> None:
    bench = Bench(
        failover_interval=MINUTE if begin is SUSPECT else timedelta(), failback="after-drain"
    )
    bench.fail()
    if begin is DRAINING:
        bench.ping()
    assert bench.status is begin

    bench.pairing.mark_healthy(bench.orders)

    assert bench.states()[-1] == (begin, HEALTHY)
    assert bench.route() is None
    assert bench.next_step() is None


# Backlog queues.


@pytest.mark.rule("S4")
def test_sender_keeps_its_backlog_queue(bench: Bench) -> None:
    queues = {bench.claim("me") for _ in range(50)}

    assert len(queues) == 1


@pytest.mark.rule("S4")
def test_senders_are_spread_over_the_queues(bench: Bench) -> None:
    queues = [bench.claim(sender) for sender in range(400)]

    assert all(60 < queues.count(queue) < 140 for queue in QUEUES)


@pytest.mark.rule("S4")
def test_failed_queue_is_pulled_for_all_senders_of_all_paths(bench: Bench) -> None:
    bills = bench.pairing.path("bills")
    mine = bench.claim("me")
    assert mine is not None
    bills.queue_of_sender["you"] = mine

    bench.pairing.pull_queue(mine, DOWN)

    moved = {bench.claim("me"), bench.claim("you", bills)}
    assert mine not in moved
    assert None not in moved


@pytest.mark.rule("S4")
def test_pulling_and_restoring_a_queue_are_reported_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pairbus.pairing")
    for _ in range(3):
        bench.pairing.pull_queue(QUEUES[0], DOWN)
    bench.clock.forward(60)
    for _ in range(3):
        claim = bench.pairing.claim_queue(QUEUES[0])
        assert claim is not None
        with claim:
            claim.succeeded()

    pulled, restored = bench.events
    assert isinstance(pulled, BacklogQueuePulled)
    assert (pulled.queue, pulled.cause) == (QUEUES[0], DOWN)
    assert isinstance(restored, BacklogQueueRestored)
    assert restored.queue == QUEUES[0]
    assert [one.levelname for one in caplog.records] == ["WARNING", "INFO"]


def test_closed_sender_is_forgotten(bench: Bench) -> None:
    bench.claim("me")

    bench.pairing.forget_sender(bench.orders, "me")
    bench.pairing.forget_sender(bench.orders, "me")

    assert bench.orders.queue_of_sender == {}


@pytest.mark.rule("S12")
def test_queue_of_a_session_is_the_same_in_every_process(bench: Bench) -> None:
    indexes = [
        QUEUES.index(bench.pairing.queue_of_session(bench.orders, session))
        for session in ("", "a", "b", "customer 7", "ä", "🚌")
    ]

    assert indexes == PINNED
    assert bench.pairing.queue_of_session(bench.pairing.path("ORDERS"), "a") == QUEUES[PINNED[1]]


@pytest.mark.rule("S12")
def test_sessions_of_different_paths_are_spread_differently(bench: Bench) -> None:
    bills = bench.pairing.path("bills")
    sessions = [str(number) for number in range(200)]

    mine = [bench.pairing.queue_of_session(bench.orders, one) for one in sessions]
    yours = [bench.pairing.queue_of_session(bills, one) for one in sessions]

    assert mine != yours
    assert all(20 < mine.count(queue) < 80 for queue in QUEUES)


@pytest.mark.rule("S12")
def test_queue_of_a_session_does_not_change_when_it_is_pulled(bench: Bench) -> None:
    queue = bench.pairing.queue_of_session(bench.orders, "a")

    bench.pairing.pull_queue(queue, DOWN)

    assert bench.pairing.queue_of_session(bench.orders, "a") == queue
    assert bench.pairing.claim_queue(queue) is None


# Errors.


@pytest.mark.rule("S5")
def test_send_unavailable_has_both_causes(at_once: Bench) -> None:
    at_once.fail()
    broken = OSError("broken")

    error = at_once.pairing.send_unavailable(at_once.orders, broken)

    assert (error.primary_error, error.backlog_error) == (DOWN, broken)
    assert isinstance(error.__cause__, ExceptionGroup)
    assert error.__cause__.exceptions == (DOWN, broken)
    assert "'orders'" in str(error)


@pytest.mark.rule("S5")
def test_backlog_error_is_that_of_the_queue_pulled_last(at_once: Bench) -> None:
    at_once.fail()
    first, last = OSError("first"), OSError("last")
    at_once.pairing.pull_queue(QUEUES[1], first)
    at_once.clock.forward(1)
    at_once.pairing.pull_queue(QUEUES[0], last)

    assert at_once.pairing.send_unavailable(at_once.orders, None).backlog_error is last


def test_send_unavailable_without_causes_has_no_exception_group(bench: Bench) -> None:
    error = bench.pairing.send_unavailable(bench.orders, None)

    assert isinstance(error, SendUnavailable)
    assert (error.primary_error, error.backlog_error, error.__cause__) == (None, None, None)


@pytest.mark.rule("S14", "Y7")
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("fault", [None, OSError("the partner is gone")])
def test_closed_or_faulted_pairing_refuses_calls(
    bench: Bench, fault: OSError | None, closed: bool
) -> None:
    if fault is not None:
        bench.pairing.primary.set_fault(fault)
    if closed:
        bench.pairing.primary.set_closed()
    refused = (StateError, "closed") if fault is None else (PairingFaulted, str(fault))

    for call in (bench.pairing.check_open, bench.route):
        if fault is None and not closed:
            assert call() is None
            continue
        with pytest.raises(refused[0], match=refused[1]) as caught:
            call()
        assert caught.value.__cause__ is fault

    status = bench.pairing.status()
    assert (status.fault, status.closed) == (fault, closed)


# The status.


def test_status_has_paths_and_backlog_queues(at_once: Bench) -> None:
    at_once.pairing.path("bills")
    at_once.fail()
    chosen = {at_once.claim(sender) for sender in range(20)}
    at_once.pairing.pull_queue(QUEUES[2], DOWN)
    at_once.ping(GONE)
    at_once.clock.forward(30)

    status = at_once.pairing.status()

    now = datetime.now(UTC)
    assert (status.primary, status.secondary) == ("one", "two")
    assert (status.fault, status.closed) == (None, False)
    assert set(status.paths) == {"orders", "bills"}
    orders, bills = status.paths["orders"], status.paths["bills"]
    assert (orders.status, orders.cause) == (FAILOVER, DOWN)
    assert abs(now - 30 * SECOND - orders.since) < 5 * SECOND
    assert orders.backlog_queues == tuple(sorted(filter(None, chosen)))
    assert orders.last_ping is at_once.orders.last_ping is not None
    assert (bills.status, bills.cause, bills.backlog_queues, bills.last_ping) == (
        HEALTHY,
        None,
        (),
        None,
    )
    assert list(status.backlog) == list(QUEUES)
    out = status.backlog[QUEUES[2]]
    assert (out.in_rotation, out.cause) == (False, DOWN)
    assert out.since is not None
    assert abs(now - 30 * SECOND - out.since) < 5 * SECOND
    assert all(
        (one.in_rotation, one.cause, one.since) == (True, None, None)
        for queue, one in status.backlog.items()
        if queue != QUEUES[2]
    )
