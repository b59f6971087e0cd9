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
    Probed,
    SecondaryRestored,
    SecondaryUnavailable,
    StateChanged,
    Throttled,
)
from pairbus.options import FailureKind, SendAvailabilityOptions
from pairbus.pairing.backlog_peeks import PeekResult
from pairbus.pairing.health import FailureAction, HealthTask, InFlightSend, Step
from pairbus.pairing.queue_claim import QueueClaim
from pairbus.pairing.secondary_health import FIRST_PROBE_S, HostProbe
from pairbus.pairing.secondary_host import TRIAL_TIMEOUT_S
from pairbus.pairing.state import Hold, PairingState, PathState

HEALTHY, SUSPECT = PathStatus.HEALTHY, PathStatus.SUSPECT
FAILOVER, DRAINING = PathStatus.FAILOVER, PathStatus.DRAINING
QUEUES = tuple(f"one/x-servicebus-transfer/{index}" for index in range(4))
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
DOWN = ServiceBusConnectionError(message="down")
GONE = MessagingEntityNotFoundError(message="gone")
BUSY = ServiceBusServerBusyError(message="busy")
TIMED_OUT = OperationTimeoutError(message="no answer")
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


class PairingHarness:
    """A pairing with a clock, its events, and the recoveries that it started."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.events: list[Event] = []
        self.recoveries: list[PathState] = []
        self.changed = 0
        self.probes = 0
        settings = {"ping_jitter": 0.0, "on_event": self.events.append, **options}
        self.pairing = PairingState(
            SendAvailabilityOptions(**settings),
            primary="one",
            secondary="two",
            queues=QUEUES,
            on_change=self._count_change,
            start_recovery=self.recoveries.append,
            start_probes=self._count_probes,
            now=self.clock,
            random=Random(1),
        )
        self.orders = self.pairing.path("orders")

    def _count_change(self) -> None:
        self.changed += 1

    def _count_probes(self) -> None:
        self.probes += 1

    @property
    def status(self) -> PathStatus:
        return self.orders.health.status

    def next_step(self) -> Step | None:
        return self.pairing.next_step(self.orders)

    def ping(self, error: BaseException | None = None) -> None:
        self.pairing.pinged(self.orders, error, self.orders.health.next_step())

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
        claim = self.pairing.backlog.claim_any(self.orders if path is None else path, sender)
        if claim is None:
            return None
        with claim:
            return claim.queue

    def states(self) -> list[tuple[PathStatus, PathStatus]]:
        return [
            (event.from_state, event.to_state)
            for event in self.events
            if isinstance(event, StateChanged)
        ]

    def kinds(self) -> list[type[Event]]:
        return [type(event) for event in self.events]

    def peek(self, counts: list[tuple[int, int | None]], *, idle: bool = True) -> None:
        peeks = [PeekResult(count, first) for count, first in counts]
        self.pairing.peeked(self.orders, peeks, idle=idle)

    def drain(self) -> None:
        """Fail over, and make the primary available again."""
        self.fail_and_store()
        self.ping()
        assert self.status is DRAINING


@pytest.fixture
def harness() -> PairingHarness:
    return PairingHarness()


@pytest.fixture
def immediate() -> PairingHarness:
    return PairingHarness(failover_interval=timedelta())


@pytest.fixture
def draining() -> PairingHarness:
    harness = PairingHarness(failover_interval=timedelta(), failback="after-drain")
    harness.drain()
    return harness


# Paths.


@pytest.mark.rule("S3")
def test_names_that_differ_by_case_are_one_path(harness: PairingHarness) -> None:
    harness.fail(harness.pairing.path("ORDERS"))

    assert harness.pairing.path("Orders") is harness.orders
    assert harness.status is SUSPECT
    assert list(harness.pairing.status().paths) == ["orders"]


@pytest.mark.rule("S3")
def test_other_paths_are_not_affected(immediate: PairingHarness) -> None:
    bills = immediate.pairing.path("bills")

    immediate.fail()

    assert isinstance(immediate.route(), InFlightSend)
    assert immediate.route(bills) is None
    assert bills.health.status is HEALTHY
    assert bills.health.in_flight == 0


# Events.


@pytest.mark.rule("S13")
def test_every_change_is_an_event_with_path_from_to_cause_and_time(harness: PairingHarness) -> None:
    before = datetime.now(UTC)

    harness.fail()

    (event,) = harness.events
    assert isinstance(event, StateChanged)
    assert event.path == "orders"
    assert (event.from_state, event.to_state) == (HEALTHY, SUSPECT)
    assert event.cause is DOWN
    assert before <= event.when <= datetime.now(UTC)


@pytest.mark.rule("S13")
def test_events_of_an_outage_are_in_order(harness: PairingHarness) -> None:
    harness.fail()
    harness.clock.forward(60)
    harness.pairing.failover_timer_fired(harness.orders)
    harness.ping(DOWN)
    harness.ping()

    assert harness.kinds() == [StateChanged, StateChanged, Pinged, Pinged, StateChanged]
    assert harness.states() == [(HEALTHY, SUSPECT), (SUSPECT, FAILOVER), (FAILOVER, HEALTHY)]


@pytest.mark.rule("S13", "S12")
def test_events_of_a_drain_are_in_order(draining: PairingHarness) -> None:
    draining.peek(SOME)
    draining.peek(EMPTY)
    draining.peek(EMPTY)

    assert draining.states() == [(HEALTHY, FAILOVER), (FAILOVER, DRAINING), (DRAINING, HEALTHY)]


@pytest.mark.rule("S13")
def test_event_handler_sees_the_new_state() -> None:
    statuses = []
    harness = PairingHarness(on_event=lambda event: statuses.append(harness.status))

    harness.fail()

    assert statuses == [SUSPECT]


@pytest.mark.rule("S13")
def test_event_handler_can_use_the_pairing() -> None:
    statuses: list[PathStatus] = []

    def hook(event: Event) -> None:
        statuses.append(harness.pairing.status().paths["orders"].status)
        if statuses == [FAILOVER]:
            harness.pairing.mark_healthy(harness.orders)

    harness = PairingHarness(failover_interval=timedelta(), on_event=hook)

    assert isinstance(harness.fail(), InFlightSend)
    assert statuses == [FAILOVER, HEALTHY]


@pytest.mark.rule("S13")
def test_failing_event_handler_does_not_fail_a_send(caplog: pytest.LogCaptureFixture) -> None:
    def hook(event: Event) -> None:
        raise RuntimeError("the hook is broken")

    harness = PairingHarness(failover_interval=timedelta(), on_event=hook)

    assert isinstance(harness.fail(), InFlightSend)
    assert harness.recoveries == [harness.orders]
    assert harness.changed == 1
    (record,) = [record for record in caplog.records if record.exc_info]
    assert "on_event" in record.message


def test_event_handler_is_optional() -> None:
    harness = PairingHarness(on_event=None)

    assert harness.fail() is FailureAction.RAISE
    assert harness.status is SUSPECT


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
    harness = PairingHarness(failback="after-drain")
    caplog.set_level(logging.DEBUG, logger="pairbus.pairing")

    harness.fail()
    harness.fail()
    harness.clock.forward(60)
    harness.pairing.failover_timer_fired(harness.orders)
    harness.pairing.failover_timer_fired(harness.orders)
    harness.fail_and_store()
    harness.ping(DOWN)
    harness.ping()
    for counts in (SOME, EMPTY, EMPTY):
        harness.peek(counts)
    harness.pairing.mark_healthy(harness.orders)

    logged = [
        (record.levelname, record.getMessage().partition(";")[0]) for record in caplog.records
    ]
    assert logged == [
        ("WARNING", "orders: healthy to suspect"),
        ("ERROR", "orders: suspect to failover"),
        ("WARNING", "orders: failover to draining"),
        ("INFO", "orders: draining to healthy"),
    ]
    assert "(down)" in caplog.records[0].getMessage()


def test_every_change_wakes_waiters(immediate: PairingHarness) -> None:
    immediate.fail()
    immediate.ping()

    assert immediate.changed == 2


# Recovery.


def test_one_recovery_is_started_per_outage(immediate: PairingHarness) -> None:
    immediate.fail()
    immediate.fail()
    immediate.ping(DOWN)
    assert immediate.recoveries == [immediate.orders]

    immediate.ping()
    assert immediate.next_step() is None  # the recovery ends
    immediate.fail()

    assert immediate.recoveries == [immediate.orders] * 2


def test_running_recovery_continues(harness: PairingHarness) -> None:
    harness.fail()
    harness.pairing.send_succeeded(harness.orders)
    harness.fail()  # before the recovery noticed the success

    assert harness.recoveries == [harness.orders]
    assert harness.next_step() == Step(HealthTask.FAIL_OVER, 1060.0)


def test_no_recovery_is_started_for_a_healthy_path(harness: PairingHarness) -> None:
    harness.fail(error=GONE)
    harness.pairing.send_succeeded(harness.orders)
    harness.pairing.mark_healthy(harness.orders)

    assert harness.recoveries == []


@pytest.mark.rule("S14")
def test_no_recovery_is_started_for_a_closed_pairing(immediate: PairingHarness) -> None:
    immediate.fail()
    immediate.pairing.primary.set_closed()

    assert immediate.next_step() is None
    immediate.fail(immediate.pairing.path("bills"))
    assert immediate.recoveries == [immediate.orders]


# Steps.


@pytest.mark.rule("S3")
@pytest.mark.parametrize("fails_again", [False, True])
def test_stopped_timer_does_not_fire(harness: PairingHarness, fails_again: bool) -> None:
    harness.fail()
    harness.clock.forward(60)
    harness.pairing.send_succeeded(harness.orders)
    if fails_again:
        harness.fail()

    harness.pairing.failover_timer_fired(harness.orders)

    assert harness.status is (SUSPECT if fails_again else HEALTHY)
    assert harness.next_step() == (Step(HealthTask.FAIL_OVER, 1120.0) if fails_again else None)


@pytest.mark.rule("S3")
def test_success_of_any_sender_stops_the_timer(harness: PairingHarness) -> None:
    harness.fail()

    harness.pairing.send_succeeded(harness.pairing.path("Orders"))

    assert harness.states() == [(HEALTHY, SUSPECT), (SUSPECT, HEALTHY)]


@pytest.mark.rule("S2")
@pytest.mark.parametrize("error", [GONE, BUSY, TypeError("no")])
def test_error_that_is_no_outage_leaves_the_path_healthy(
    harness: PairingHarness, error: Exception
) -> None:
    assert harness.fail(error=error) is FailureAction.RAISE
    assert harness.states() == []


@pytest.mark.rule("O1")
def test_throttled_call_is_an_event(harness: PairingHarness) -> None:
    harness.pairing.send_failed(harness.orders, BUSY, 3)
    harness.fail(error=GONE)

    [event] = harness.events
    assert isinstance(event, Throttled)
    assert (event.path, event.messages, event.error) == ("orders", 3, BUSY)
    assert event.namespace == harness.pairing.primary.name


@pytest.mark.rule("O1")
@pytest.mark.parametrize("error", [None, DOWN])
def test_probe_is_an_event(harness: PairingHarness, error: Exception | None) -> None:
    harness.pairing.probed(harness.orders, GONE, error)
    harness.pairing.probed_in_background(harness.orders, error)

    probes = [event for event in harness.events if isinstance(event, Probed)]
    assert [(probe.path, probe.error) for probe in probes] == [("orders", error)] * 2


def test_sustained_throttling_fails_over_if_that_is_enabled() -> None:
    harness = PairingHarness(failover_on_busy=5 * MINUTE)
    sent = harness.pairing.recorder.add_sender(harness.orders, harness)
    sent.messages += 7  # before the throttling

    assert harness.fail(error=BUSY) is FailureAction.RAISE
    harness.clock.forward(299)
    assert harness.fail(error=BUSY) is FailureAction.RAISE
    assert harness.recoveries == []
    harness.clock.forward(1)

    with harness.fail(error=BUSY) as action:
        assert isinstance(action, InFlightSend)
    assert harness.states() == [(HEALTHY, FAILOVER)]
    assert harness.recoveries == [harness.orders]
    assert harness.orders.health.cause is BUSY


@pytest.mark.parametrize("counted_by", ["sender", "operation"])
def test_success_of_any_sender_restarts_the_time_of_throttling(counted_by: str) -> None:
    harness = PairingHarness(failover_on_busy=MINUTE)
    sent = harness.pairing.recorder.add_sender(harness.orders, harness)
    harness.fail(error=BUSY)
    harness.clock.forward(59)
    if counted_by == "sender":  # a healthy send reports nothing else
        sent.messages += 1
    else:
        harness.pairing.recorder.sent(harness.orders, 1)
    harness.clock.forward(1)

    assert harness.fail(error=BUSY) is FailureAction.RAISE

    harness.clock.forward(59)
    assert harness.fail(error=BUSY) is FailureAction.RAISE
    harness.clock.forward(1)
    assert isinstance(harness.fail(error=BUSY), InFlightSend)


@pytest.mark.rule("S2")
def test_classify_option_decides_about_failures() -> None:
    harness = PairingHarness(
        failover_interval=timedelta(), classify=lambda error: FailureKind.UNAVAILABLE
    )

    assert isinstance(harness.fail(error=GONE), InFlightSend)


@pytest.mark.rule("S2")
def test_background_probe_has_no_send_in_flight(harness: PairingHarness) -> None:
    hidden = OSError("hidden")
    harness.pairing.classify = lambda error: (
        FailureKind.UNKNOWN if error is hidden else FailureKind.UNAVAILABLE
    )
    harness.fail(error=hidden)
    harness.clock.forward(60)

    harness.pairing.probed_in_background(harness.orders, DOWN)

    assert harness.status is FAILOVER
    assert harness.orders.health.in_flight == 0


@pytest.mark.rule("G4")
def test_refused_ping_is_an_event(
    immediate: PairingHarness, caplog: pytest.LogCaptureFixture
) -> None:
    immediate.fail()
    immediate.events.clear()

    immediate.ping(GONE)

    (event,) = immediate.events
    assert isinstance(event, Pinged)
    assert (event.path, event.error, event.refused) == ("orders", GONE, True)
    assert isinstance(immediate.route(), InFlightSend)
    assert "refused the ping" in caplog.records[-1].getMessage()
    assert caplog.records[-1].levelno == logging.ERROR


@pytest.mark.rule("G2")
@pytest.mark.parametrize("error", [DOWN, BUSY, OperationTimeoutError(message="late")])
def test_failed_ping_is_repeated(immediate: PairingHarness, error: Exception) -> None:
    immediate.fail()
    immediate.clock.forward(60)

    immediate.ping(error)

    event = immediate.orders.last_ping
    assert event is not None
    assert (event.error, event.refused) == (error, False)
    assert immediate.next_step() == Step(HealthTask.PING, 1120.0)


@pytest.mark.rule("S12")
def test_send_is_held_for_the_rest_of_the_hold(draining: PairingHarness) -> None:
    draining.peek(SOME)

    assert draining.route().seconds == 5.0
    draining.clock.forward(4)
    assert draining.route().seconds == 1.0
    assert draining.orders.health.in_flight == 0
    draining.clock.forward(1)
    assert isinstance(draining.route(), InFlightSend)
    assert draining.orders.health.in_flight == 1


@pytest.mark.rule("G2", "S13")
@pytest.mark.parametrize("error", [None, DOWN])
def test_late_answer_to_a_ping_of_an_earlier_failover_changes_nothing(
    immediate: PairingHarness, error: BaseException | None
) -> None:
    immediate.fail_and_store()
    step = immediate.next_step()
    immediate.pairing.mark_healthy(immediate.orders)
    immediate.clock.forward(1)
    immediate.fail_and_store()
    due = immediate.next_step()
    immediate.clock.forward(1)

    immediate.pairing.pinged(immediate.orders, error, step)

    assert immediate.status is FAILOVER
    assert immediate.next_step() == due


@pytest.mark.rule("S12")
def test_all_draining_paths_are_held_at_the_same_time(draining: PairingHarness) -> None:
    other, healthy = draining.pairing.path("other"), draining.pairing.path("healthy")
    draining.fail_and_store(other)
    draining.pairing.pinged(other, None, other.health.next_step())
    draining.pairing.peeked(other, [PeekResult(11, 7)], idle=True)  # the next is in a second
    with draining.route(other) as route:
        assert isinstance(route, InFlightSend)
    draining.clock.forward(0.5)
    changed = draining.changed

    draining.peek(SOME)

    assert draining.route(other).seconds == 5.0
    assert draining.pairing.next_step(other) == Step(HealthTask.PEEK, draining.clock())
    assert draining.changed > changed  # its recovery is woken
    assert draining.route(healthy) is None
    for _ in range(2):  # the first may have begun before the hold
        draining.pairing.peeked(other, [PeekResult(0)], idle=True)
    assert other.health.status is DRAINING
    draining.pairing.peeked(other, [PeekResult(0)], idle=True)
    assert other.health.status is HEALTHY


@pytest.mark.rule("S12")
@pytest.mark.parametrize(("count", "route"), [(10, Hold), (11, InFlightSend)])
def test_backlog_is_small_if_every_queue_is_small(
    draining: PairingHarness, count: int, route: type
) -> None:
    draining.peek([*EMPTY[1:], (count, 7)])

    assert isinstance(draining.route(), route)


@pytest.mark.rule("S12")
def test_path_is_idle_if_no_send_is_in_flight(draining: PairingHarness) -> None:
    assert draining.pairing.peek_begins(draining.orders).idle
    with draining.route():
        assert not draining.pairing.peek_begins(draining.orders).idle
    assert draining.pairing.peek_begins(draining.orders).idle


@pytest.mark.rule("S12")
def test_stalled_drain_is_an_event_once_per_timeout(
    draining: PairingHarness, caplog: pytest.LogCaptureFixture
) -> None:
    draining.events.clear()
    for _ in range(1201):
        draining.peek([(11, 7)] * 4)
        draining.clock.forward(1)

    assert draining.kinds() == [DrainStalled, DrainStalled]
    assert draining.events[0].path == "orders"  # type: ignore[attr-defined]
    assert sum("Check that a syphon is running" in r.getMessage() for r in caplog.records) == 2


@pytest.mark.rule("S12")
def test_stalled_drain_has_the_error_of_the_peek(draining: PairingHarness) -> None:
    draining.events.clear()
    for _ in range(601):
        draining.pairing.peek_failed(draining.orders, GONE)
        draining.clock.forward(1)

    (event,) = draining.events
    assert isinstance(event, DrainStalled)
    assert event.error is GONE


def test_failed_peek_is_logged_once_until_it_succeeds(
    draining: PairingHarness, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        draining.pairing.peek_failed(draining.orders, GONE)
    draining.peek([(11, 7)] * 4)
    draining.pairing.peek_failed(draining.orders, GONE)

    text = "peek at the backlog failed: gone"
    logged = [record for record in caplog.records if text in record.getMessage()]
    assert len(logged) == 2


@pytest.mark.rule("S13")
@pytest.mark.parametrize("begin", [SUSPECT, FAILOVER, DRAINING])
def test_path_can_be_marked_healthy(begin: PathStatus) -> None:
    harness = PairingHarness(
        failover_interval=MINUTE if begin is SUSPECT else timedelta(), failback="after-drain"
    )
    harness.fail()
    if begin is DRAINING:
        harness.ping()
    assert harness.status is begin

    harness.pairing.mark_healthy(harness.orders)

    assert harness.states()[-1] == (begin, HEALTHY)
    assert harness.route() is None
    assert harness.next_step() is None


# Backlog queues.


@pytest.mark.rule("S4")
def test_sender_keeps_its_backlog_queue(harness: PairingHarness) -> None:
    queues = {harness.claim("first") for _ in range(50)}

    assert len(queues) == 1


@pytest.mark.rule("S4")
def test_senders_are_spread_over_the_queues(harness: PairingHarness) -> None:
    queues = [harness.claim(sender) for sender in range(400)]

    assert all(60 < queues.count(queue) < 140 for queue in QUEUES)


@pytest.mark.rule("S4")
def test_failed_queue_is_pulled_for_all_senders_of_all_paths(harness: PairingHarness) -> None:
    bills = harness.pairing.path("bills")
    queue = harness.claim("first")
    assert queue is not None
    bills.queue_of_sender["second"] = queue

    harness.pairing.backlog.pull(queue, DOWN)

    moved = {harness.claim("first"), harness.claim("second", bills)}
    assert queue not in moved
    assert None not in moved


@pytest.mark.rule("S4")
def test_pulling_and_restoring_a_queue_are_reported_once(
    harness: PairingHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pairbus.pairing")
    for _ in range(3):
        harness.pairing.backlog.pull(QUEUES[0], DOWN)
    harness.clock.forward(60)
    for _ in range(3):
        claim = harness.pairing.backlog.claim(QUEUES[0])
        assert claim is not None
        with claim:
            claim.succeeded()

    pulled, restored = harness.events
    assert isinstance(pulled, BacklogQueuePulled)
    assert (pulled.queue, pulled.cause) == (QUEUES[0], DOWN)
    assert isinstance(restored, BacklogQueueRestored)
    assert restored.queue == QUEUES[0]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_closed_sender_is_forgotten(harness: PairingHarness) -> None:
    harness.claim("first")

    harness.pairing.backlog.forget_sender(harness.orders, "first")
    harness.pairing.backlog.forget_sender(harness.orders, "first")

    assert harness.orders.queue_of_sender == {}


@pytest.mark.rule("S12")
def test_queue_of_a_session_is_the_same_in_every_process(harness: PairingHarness) -> None:
    indexes = [
        QUEUES.index(harness.pairing.backlog.queue_of_session(harness.orders, session))
        for session in ("", "a", "b", "customer 7", "ä", "🚌")
    ]

    assert indexes == PINNED
    assert (
        harness.pairing.backlog.queue_of_session(harness.pairing.path("ORDERS"), "a")
        == QUEUES[PINNED[1]]
    )


@pytest.mark.rule("S12")
def test_sessions_of_different_paths_are_spread_differently(harness: PairingHarness) -> None:
    bills = harness.pairing.path("bills")
    sessions = [str(number) for number in range(200)]

    of_orders = [
        harness.pairing.backlog.queue_of_session(harness.orders, name) for name in sessions
    ]
    of_bills = [harness.pairing.backlog.queue_of_session(bills, name) for name in sessions]

    assert of_orders != of_bills
    assert all(20 < of_orders.count(queue) < 80 for queue in QUEUES)


@pytest.mark.rule("S12")
def test_queue_of_a_session_does_not_change_when_it_is_pulled(harness: PairingHarness) -> None:
    queue = harness.pairing.backlog.queue_of_session(harness.orders, "a")

    harness.pairing.backlog.pull(queue, DOWN)

    assert harness.pairing.backlog.queue_of_session(harness.orders, "a") == queue
    assert harness.pairing.backlog.claim(queue) is None


# Errors.


@pytest.mark.rule("S5")
def test_send_unavailable_has_both_causes(immediate: PairingHarness) -> None:
    immediate.fail()
    broken = OSError("broken")

    error = immediate.pairing.send_unavailable(immediate.orders, broken)

    assert (error.primary_error, error.backlog_error) == (DOWN, broken)
    assert isinstance(error.__cause__, ExceptionGroup)
    assert error.__cause__.exceptions == (DOWN, broken)
    assert "4 backlog queues" in str(error)


@pytest.mark.rule("S5")
def test_backlog_error_is_that_of_the_queue_pulled_last(immediate: PairingHarness) -> None:
    immediate.fail()
    first, last = OSError("first"), OSError("last")
    immediate.pairing.backlog.pull(QUEUES[1], first)
    immediate.clock.forward(1)
    immediate.pairing.backlog.pull(QUEUES[0], last)

    assert immediate.pairing.send_unavailable(immediate.orders, None).backlog_error is last


def test_send_unavailable_without_causes_has_no_exception_group(harness: PairingHarness) -> None:
    error = harness.pairing.send_unavailable(harness.orders, None)

    assert isinstance(error, SendUnavailable)
    assert (error.primary_error, error.backlog_error, error.__cause__) == (None, None, None)


@pytest.mark.rule("S14", "Y7")
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("fault", [None, OSError("the partner is gone")])
def test_closed_or_faulted_pairing_refuses_calls(
    harness: PairingHarness, fault: OSError | None, closed: bool
) -> None:
    if fault is not None:
        harness.pairing.primary.set_fault(fault)
    if closed:
        harness.pairing.primary.set_closed()
    refused = (StateError, "closed") if fault is None else (PairingFaulted, str(fault))

    for call in (harness.pairing.check_open, harness.route):
        if fault is None and not closed:
            assert call() is None
            continue
        with pytest.raises(refused[0], match=refused[1]) as caught:
            call()
        assert caught.value.__cause__ is fault

    status = harness.pairing.status()
    assert (status.fault, status.closed) == (fault, closed)


# The host of the secondary.


def unreachable(harness: PairingHarness, queue: str = QUEUES[0], error: Exception = DOWN) -> None:
    claim = harness.pairing.backlog.claim(queue)
    assert claim is not None
    with claim:
        claim.unreachable(error)


@pytest.mark.rule("S2a")
def test_unreachable_host_is_reported_once_with_its_cause(
    harness: PairingHarness, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (harness.pairing.backlog.claim(queue) for queue in QUEUES[:2])
    assert first is not None
    assert second is not None
    for claim in (first, second):
        with claim:
            claim.unreachable(DOWN)

    (event,) = harness.events
    assert isinstance(event, SecondaryUnavailable)
    assert event.cause is DOWN
    assert caplog.text.count("The secondary cannot be reached") == 1
    host = harness.pairing.status().secondary_host
    assert (host.reachable, host.cause) == (False, DOWN)
    assert host.since == event.when
    assert harness.pairing.backlog.claim(QUEUES[2]) is None
    assert harness.claim("sender") is None


@pytest.mark.rule("S2a")
def test_one_operation_probes_the_host_at_a_time() -> None:
    harness = PairingHarness()
    host = harness.pairing.secondary_host
    claims = [harness.pairing.backlog.claim(queue) for queue in QUEUES]
    for claim in claims:
        assert claim is not None
        claim.unreachable(DOWN)
    assert harness.probes == 1

    host.answered(QUEUES[0])
    unreachable(harness)
    assert harness.probes == 1  # the operation has not ended yet
    host.answered(QUEUES[0])
    assert host.next_probe() is None  # now it has
    unreachable(harness)
    assert harness.probes == 2


@pytest.mark.rule("S2a")
@pytest.mark.parametrize("answer", [None, GONE, BUSY])
def test_answer_to_a_probe_restores_the_host(
    harness: PairingHarness, answer: Exception | None
) -> None:
    unreachable(harness)
    version = harness.pairing.version

    harness.pairing.secondary_host.probed(QUEUES[0], answer, began=harness.clock())

    assert [type(event) for event in harness.events] == [SecondaryUnavailable, SecondaryRestored]
    host = harness.pairing.status().secondary_host
    assert (host.reachable, host.cause, host.since) == (True, None, None)
    assert harness.pairing.changed_since(version)()
    assert harness.claim("sender") is not None


@pytest.mark.rule("S2a")
def test_message_that_a_queue_accepts_restores_the_host(harness: PairingHarness) -> None:
    slow = harness.pairing.backlog.claim(QUEUES[1])
    assert slow is not None
    unreachable(harness)

    slow.succeeded()

    assert harness.pairing.status().secondary_host.reachable


def unanswered(harness: PairingHarness) -> None:
    """Let the host answer no send of any queue, and then a probe."""
    for queue in QUEUES:
        harness.pairing.backlog.pull(queue, TIMED_OUT)
    assert not harness.pairing.status().secondary_host.reachable
    harness.pairing.secondary_host.probed(QUEUES[-1], None, began=harness.clock())
    assert harness.pairing.secondary_host.next_probe() is None
    assert harness.pairing.status().secondary_host.reachable


def claimed(harness: PairingHarness, queue: str = QUEUES[0]) -> QueueClaim:
    claim = harness.pairing.backlog.claim(queue)
    assert claim is not None
    return claim


@pytest.mark.rule("S2a")
def test_host_that_answered_no_send_gets_one_call_at_a_time_after_a_probe(
    harness: PairingHarness,
) -> None:
    unanswered(harness)

    with claimed(harness) as claim:
        assert claim.is_trial
        assert claim.deadline == harness.clock() + TRIAL_TIMEOUT_S
        assert harness.pairing.backlog.claim(QUEUES[1]) is None
        assert harness.claim("sender") is None
        error = harness.pairing.send_unavailable(harness.orders, None)
        assert error.backlog_error is TIMED_OUT
    with claimed(harness, QUEUES[1]) as claim:  # the first call showed nothing
        assert claim.is_trial


@pytest.mark.rule("S2a")
def test_unanswered_trial_means_that_the_host_is_down(harness: PairingHarness) -> None:
    unanswered(harness)
    harness.events.clear()
    probes = harness.probes

    with claimed(harness) as claim:
        claim.failed(TIMED_OUT)

    assert not harness.pairing.status().secondary_host.reachable
    assert harness.pairing.backlog.claim(QUEUES[1]) is None
    assert [type(event) for event in harness.events] == [SecondaryUnavailable, BacklogQueuePulled]
    assert harness.probes == probes + 1
    probe = harness.pairing.secondary_host.next_probe()
    assert probe == HostProbe(QUEUES[0], harness.clock() + 2 * FIRST_PROBE_S)


@pytest.mark.rule("S2a")
@pytest.mark.parametrize(
    "end",
    [
        lambda claim: claim.succeeded(),
        lambda claim: claim.rejected(BUSY),
        lambda claim: claim.rejected(GONE),
        lambda claim: claim.failed(GONE),
    ],
    ids=["accepted", "busy", "rejected", "the queue is at fault"],
)
def test_answer_to_a_trial_restores_the_host(harness: PairingHarness, end: Any) -> None:
    unanswered(harness)

    with claimed(harness) as claim:
        end(claim)

    first, second = claimed(harness, QUEUES[1]), claimed(harness, QUEUES[2])
    assert not first.is_trial
    assert not second.is_trial
    assert harness.pairing.status().secondary_host.reachable


@pytest.mark.rule("S2a")
def test_trial_that_cannot_connect_means_that_the_host_is_down(harness: PairingHarness) -> None:
    unanswered(harness)

    with claimed(harness) as claim:
        claim.unreachable(DOWN)

    host = harness.pairing.status().secondary_host
    assert (host.reachable, host.cause) == (False, DOWN)


# The status.


def test_status_has_paths_and_backlog_queues(immediate: PairingHarness) -> None:
    before = datetime.now(UTC)
    immediate.pairing.path("bills")
    immediate.fail()
    chosen = {immediate.claim(sender) for sender in range(20)}
    immediate.pairing.backlog.pull(QUEUES[2], DOWN)
    immediate.ping(GONE)
    immediate.clock.forward(30)

    status = immediate.pairing.status()

    now = datetime.now(UTC)
    assert (status.primary, status.secondary) == ("one", "two")
    assert (status.fault, status.closed) == (None, False)
    assert set(status.paths) == {"orders", "bills"}
    orders, bills = status.paths["orders"], status.paths["bills"]
    assert (orders.status, orders.cause) == (FAILOVER, DOWN)
    assert before <= orders.since <= now
    assert orders.backlog_queues == tuple(sorted(filter(None, chosen)))
    assert orders.last_ping is immediate.orders.last_ping is not None
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
    assert before <= out.since <= now
    assert all(
        (queue_status.in_rotation, queue_status.cause, queue_status.since) == (True, None, None)
        for queue, queue_status in status.backlog.items()
        if queue != QUEUES[2]
    )
