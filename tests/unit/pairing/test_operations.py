"""The calls of a paired sender, with fake senders of the SDK: decisions, without I/O."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from pairbus.amqp.batch import split_batch
from pairbus.amqp.sections import Message
from pairbus.errors import (
    CannotCancel,
    MessageTooLargeForBacklog,
    PairingFaulted,
    PartlyStored,
    ReservedProperty,
    SenderInUse,
    SendOutcome,
    SendUnavailable,
    StateError,
)
from pairbus.events import (
    BacklogQueuePulled,
    BacklogQueueRestored,
    Event,
    PathStatus,
    SecondaryRestored,
    SecondaryUnavailable,
    StateChanged,
    Throttled,
)
from pairbus.options import FailureKind, SendAvailabilityOptions
from pairbus.pairing import driver as driver_module
from pairbus.pairing import operations
from pairbus.pairing.backlog_peeks import PeekResult
from pairbus.pairing.deadlines import DeadlineMonitor
from pairbus.pairing.driver import ThreadDriver
from pairbus.pairing.effects import AcquireLock, CallSdk, Effect, Operation, WaitForChange
from pairbus.pairing.failures import classify_failure
from pairbus.pairing.link_factory import LinkFactory
from pairbus.pairing.payloads import PairedBatch
from pairbus.pairing.sdk import encode, members
from pairbus.pairing.sdk_payloads import EncodedBatch
from pairbus.pairing.secondary_probe import probe_secondary
from pairbus.pairing.sender import PairedSender
from pairbus.pairing.sender_base import SenderCall
from pairbus.pairing.sender_links import SenderLinks
from pairbus.pairing.state import PairingState
from pairbus.servicebus.application_properties import PATH_ALIAS, SCHEDULE_ALIAS, SESSION_ALIAS

QUEUES = tuple(f"one/x-servicebus-transfer/{index}" for index in range(3))
HEALTHY, SUSPECT = PathStatus.HEALTHY, PathStatus.SUSPECT
FAILOVER, DRAINING = PathStatus.FAILOVER, PathStatus.DRAINING
NOW, SECOND, MINUTE = timedelta(), timedelta(seconds=1), timedelta(minutes=1)
WHEN = datetime(2030, 1, 2, tzinfo=UTC)
WHEN_MS = 1_893_542_400_000
DOWN = ServiceBusConnectionError(message="down")
BROKEN = ServiceBusError("the queue is broken", condition=b"amqp:internal-error")
GONE = MessagingEntityNotFoundError(message="gone")
BUSY = ServiceBusServerBusyError(message="busy")
LARGE = MessageSizeExceededError(message="too large")
HIDDEN = ServiceBusConnectionError(message="hidden")
FULL = ServiceBusQuotaExceededError(message="full")
NO_RIGHTS = ServiceBusAuthorizationError(message="no rights")
REJECTED = ServiceBusError("a message id is too long", condition=b"amqp:not-allowed")
KB = 1024


class FakeSender:
    """A sender of the SDK that records its calls and fails on request."""

    _open = _handler = _create_handler = _backoff = None
    _amqp_transport = PyamqpTransport
    client_identifier = "fake"
    fully_qualified_namespace = "one"

    def __init__(self, harness: "PairingHarness", name: str) -> None:
        self.harness = harness
        self.name = name
        self._config = SimpleNamespace(use_tls=False)
        self.limit = 256 * KB
        self.open_error: BaseException | None = None
        """The error of opening the link. Creating a batch opens the link too."""
        self.send_error: BaseException | None = None
        """The error of a send."""
        self.fails_after: int | None = None
        """The number of sends that succeed before they fail."""
        self.failures: int | None = None
        """The number of sends that fail before they succeed."""
        self.loses_answers = False
        """A send that fails was transferred, and its answer was lost."""
        self.stores_unanswered = False
        """A send whose answer is lost stores the messages."""
        self.lost: list[list[bytes]] = []
        """The messages that were stored without an answer, by call."""
        self.duration_s = 0.0
        self.on_call: Callable[[], object] = lambda: None
        """Called at the beginning of each call."""
        self.on_sent: Callable[[], object] = lambda: None
        """Called after each send that was accepted."""
        self.sent: list[list[bytes]] = []
        """The messages that were accepted, by call."""
        self.opened = False

    @property
    def _max_message_size_on_link(self) -> int:
        return self.limit

    def open_link(self) -> None:
        self.on_call()
        self.harness.clock += self.duration_s
        if self.open_error is not None:
            raise self.open_error
        self.opened = True

    @property
    def _running(self) -> bool:
        return self.opened and self.open_error is None

    def accept_or_fail(self) -> None:
        self.open_link()
        if self.send_error is not None and (
            self.fails_after is None or len(self.sent) >= self.fails_after
        ):
            if self.failures is not None:
                if self.failures == 0:
                    return
                self.failures -= 1
            raise self.send_error

    def __enter__(self) -> "FakeSender":
        self.open_link()
        return self

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        self.open_link()
        if max_size_in_bytes is not None and max_size_in_bytes > self.limit:
            raise ValueError(f"Max message size: {max_size_in_bytes} is too large")
        size = self.limit if max_size_in_bytes is None else max_size_in_bytes
        return ServiceBusMessageBatch(max_size_in_bytes=size)

    def transfer(self, messages: Any) -> None:
        """Accept the messages, or fail."""
        self.pairbus_transfers: list[Any]
        transferred = SimpleNamespace(reason=None, delivery=SimpleNamespace(frame=None))
        self.pairbus_transfers.append(transferred)
        try:
            self.accept_or_fail()
        except BaseException:
            if self.loses_answers:
                transferred.delivery.frame = {"delivery_id": 1}
                if self.stores_unanswered:
                    self.lost.append(payloads_of(messages))
            raise

    def send_messages(self, messages: Any, **options: Any) -> None:
        self.transfer(messages)
        self.harness.options.append(options)
        self.sent.append(payloads_of(messages))
        self.on_sent()

    def _check_live(self) -> None:
        pass

    def _send(self) -> None:
        raise AssertionError("called by `_do_retryable_operation` only")

    def _do_retryable_operation(self, operation: Any, *, message: Any, **options: Any) -> None:
        self.send_messages(message)

    def schedule_messages(self, messages: Any, at: datetime, **options: Any) -> list[int]:
        self.transfer(messages)
        self.sent.append(payloads_of(messages))
        return list(range(101, 101 + len(self.sent[-1])))

    def cancel_scheduled_messages(self, numbers: Any, **options: Any) -> None:
        self.accept_or_fail()
        self.harness.cancelled.append(numbers)

    def close(self) -> None:
        self.opened = False


class FakeClient:
    """A client of the SDK with fake senders."""

    def __init__(
        self, harness: "PairingHarness", senders: Callable[[str, bool], FakeSender]
    ) -> None:
        self._config = SimpleNamespace(retry_total=3)
        self._handlers: set[object] = set()
        self._senders = senders

    def get_queue_sender(self, path: str) -> FakeSender:
        return self._senders(path, self._config.retry_total > 0)


class RecordingMonitor(DeadlineMonitor):
    """Records the calls of the SDK and their timeouts, without threads."""

    def __init__(self, effects: list[Effect]) -> None:
        super().__init__()
        self._effects = effects

    def run(self, link: Any, function: Callable[[Any], Any], timeout_s: float) -> Any:
        self._effects.append(CallSdk(link, function, timeout_s))
        return function(link)


class RecordingDriver(ThreadDriver):
    """Records calls and waits, during which it calls functions of the harness."""

    def __init__(self, harness: "PairingHarness") -> None:
        super().__init__()
        self.deadlines = RecordingMonitor(harness.effects)
        self._harness = harness

    def close(self, target: Any, timeout_s: float = 0.0) -> None:
        target.close()

    def discard(self, link: Any) -> None:
        link.close()

    def _carry_out(self, effect: Effect) -> Any:
        if isinstance(effect, WaitForChange):
            self._harness.effects.append(effect)
            return self._harness.on_wait()
        if isinstance(effect, AcquireLock):
            self._harness.on_turn()
        return super()._carry_out(effect)


def payloads_of(messages: Any) -> list[bytes]:
    if isinstance(messages, EncodedBatch):
        payload: bytes = messages._message.payload
        return [payload] if len(messages) == 1 else split_batch(payload)
    if isinstance(messages, ServiceBusMessageBatch):
        return members(messages)
    return [encode(m) for m in (messages if isinstance(messages, list) else [messages])]


class NoProbesLeft(Exception):
    """Ends the operation that probes the secondary's host."""


class PairingHarness:
    """A pairing with a clock, fake SDK clients and paired senders."""

    def __init__(self, **options: Any) -> None:
        self.clock = 1000.0
        self.events: list[Event] = []
        self.options: list[dict[str, Any]] = []
        self.cancelled: list[Any] = []
        self._probes_left = 0
        self.effects: list[Effect] = []
        """The calls and waits of the last call."""
        self.on_wait: Callable[[], None] = lambda: None
        """Called while a call waits."""
        self.on_turn: Callable[[], None] = lambda: None
        """Called while a call waits for its turn to use a sender."""
        settings = {"failover_interval": NOW, "ping_jitter": 0.0, **options}
        self.driver = RecordingDriver(self)
        self.pairing = PairingState(
            SendAvailabilityOptions(
                **settings,
                on_event=self.events.append,
                classify=lambda error: (
                    FailureKind.UNKNOWN if error is HIDDEN else classify_failure(error)
                ),
            ),
            primary="one",
            secondary="two",
            queues=QUEUES,
            on_change=self.driver.wake,
            start_recovery=lambda path: None,
            now=lambda: self.clock,
            random=Random(1),
        )
        self.orders = self.pairing.path("orders")
        self.primary = FakeSender(self, "primary")
        self.ping = FakeSender(self, "ping")
        self.ping.send_error = DOWN
        self.backlog = {queue: FakeSender(self, queue) for queue in QUEUES}
        self.factory = LinkFactory(
            FakeClient(self, lambda path, retries: self.primary if retries else self.ping),
            FakeClient(self, lambda queue, retries: self.backlog[queue]),
            None,
            interruptible=True,
        )
        self._senders: dict[object, PairedSender] = {}
        self._links: dict[object, SenderLinks] = {}

    # Calls.

    def links(self, name: object = "first") -> SenderLinks:
        if name not in self._links:
            self._links[name] = SenderLinks(
                self.pairing, self.orders, "orders", self.factory, lambda: self.primary, Lock()
            )
        return self._links[name]

    def sender(self, name: object = "first") -> PairedSender:
        """Return the paired sender with this name."""
        self.effects.clear()
        if name not in self._senders:
            self._senders[name] = PairedSender(self.links(name), self.driver, None)
        return self._senders[name]

    def call(self, timeout: float = 60) -> SenderCall:
        return SenderCall(self.pairing, self.orders, self.links(), self.clock + timeout)

    def send(self, messages: Any, sender: object = "first", timeout: float | None = None) -> None:
        with self.nothing_left_in_flight():
            self.sender(sender).send_messages(messages, timeout=timeout)

    def schedule(self, messages: Any) -> list[int | None]:
        with self.nothing_left_in_flight():
            return self.sender().schedule_messages(messages, WHEN)

    def cancel(self, numbers: Any) -> None:
        with self.nothing_left_in_flight():
            self.sender().cancel_scheduled_messages(numbers)

    def enter(self) -> None:
        with self.nothing_left_in_flight():
            self.sender().__enter__()

    def create_batch(self, size: int | None = None) -> Any:
        """Return a batch of the SDK, or None if no namespace answered."""
        self.effects.clear()
        create = lambda sender: sender.create_message_batch(size)  # noqa: E731
        with self.nothing_left_in_flight():
            return self.driver.run(operations.create_batch(self.call(), create))

    @contextmanager
    def nothing_left_in_flight(self) -> Iterator[None]:
        yield
        assert self.orders.health.in_flight == 0

    # Results.

    @property
    def status(self) -> PathStatus:
        return self.orders.health.status

    def called(self) -> list[str]:
        """Return the senders that the last call used, in order, and its waits."""
        return [
            effect.link.name if isinstance(effect, CallSdk) else "wait" for effect in self.effects
        ]

    def timeouts(self) -> list[float]:
        return [effect.timeout_s for effect in self.effects if isinstance(effect, CallSdk)]

    def waits(self) -> list[float]:
        return [effect.seconds for effect in self.effects if isinstance(effect, WaitForChange)]

    def stored(self) -> list[bytes]:
        return [
            payload for sender in self.backlog.values() for call in sender.sent for payload in call
        ]

    def used(self) -> list[str]:
        return [queue for queue, sender in self.backlog.items() if sender.sent]

    def pulled(self) -> set[str]:
        return set(self.pairing.rotation.pulled())

    def pull_all(self) -> None:
        for queue in QUEUES:
            self.pairing.backlog.pull(queue, BROKEN)

    def all_usable(self) -> bool:
        """Return whether every queue can be claimed; the claims are released."""
        claims = [self.pairing.backlog.claim(queue) for queue in QUEUES]
        for claim in claims:
            if claim is not None:
                with claim:
                    pass
        return None not in claims

    def probe(self, number: int = 1) -> None:
        """Carry out the next probes of the secondary's host, each when it is due."""
        self.effects.clear()
        probes = probe_secondary(self.pairing, self.factory)
        self.on_wait = self._advance_to_probe
        self._probes_left = number
        with suppress(NoProbesLeft):
            self.driver.run(probes)

    def _advance_to_probe(self) -> None:
        if self._probes_left == 0:
            raise NoProbesLeft
        self._probes_left -= 1
        wait = self.effects[-1]
        assert isinstance(wait, WaitForChange)
        self.clock += wait.seconds

    def fail_queues(
        self, error: BaseException | None = BROKEN, attribute: str = "open_error"
    ) -> None:
        """Let opening a link or sending fail for all backlog queues."""
        for sender in self.backlog.values():
            setattr(sender, attribute, error)

    def choose(self, queue: str, sender: object = "first") -> FakeSender:
        """Make a sender use this backlog queue."""
        self.orders.queue_of_sender[self.links(sender)] = queue
        return self.backlog[queue]

    def fail_over(self) -> None:
        self.primary.open_error = DOWN
        self.send(ServiceBusMessage(b"first"), sender="another")
        assert self.status is FAILOVER
        for sender in self.backlog.values():
            sender.sent.clear()
        self.events.clear()

    def hold(self) -> None:
        """Make the primary available again, and begin a hold."""
        self.fail_over()
        self.primary.open_error = None
        self.pairing.pinged(self.orders, None, self.orders.health.next_step())
        self.peek()
        assert self.status is DRAINING

    def peek(self) -> None:
        """Report that the backlog is empty."""
        self.pairing.peeked(
            self.orders, [PeekResult(0)] * 3, idle=self.pairing.peek_begins(self.orders).idle
        )


@pytest.fixture
def harness() -> PairingHarness:
    return PairingHarness()


@pytest.fixture
def failed_over(harness: PairingHarness) -> PairingHarness:
    harness.fail_over()
    return harness


@pytest.fixture
def used_queue(failed_over: PairingHarness) -> FakeSender:
    """The backlog queue in which a sender stored the message "1"."""
    failed_over.send(message("1"))
    (queue,) = failed_over.used()
    return failed_over.backlog[queue]


@pytest.fixture
def suspect() -> PairingHarness:
    """A path whose first send failed, with a failover interval of a minute."""
    harness = PairingHarness(failover_interval=MINUTE)
    harness.primary.send_error = DOWN
    with pytest.raises(ServiceBusConnectionError):
        harness.send(message("1"))
    return harness


@pytest.fixture(params=["healthy", "failed over"])
def any_state(request: pytest.FixtureRequest, harness: PairingHarness) -> PairingHarness:
    """A healthy path, then a path in failover."""
    if request.param == "failed over":
        harness.fail_over()
    return harness


@pytest.fixture(params=["fails over now", "failed over"])
def primary_down(request: pytest.FixtureRequest, harness: PairingHarness) -> PairingHarness:
    """A path that fails over with the next call, then a path in failover."""
    if request.param == "failed over":
        harness.fail_over()
    harness.primary.open_error = DOWN
    return harness


def property_of(payload: bytes, name: str) -> Any:
    return Message.parse(payload).read_application_properties().get(name)


def ids(payloads: list[bytes]) -> list[Any]:
    return [Message.parse(payload).read_properties().message_id for payload in payloads]


def message(body: str, **options: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, message_id=body, **options)


def sized(name: str, size: int) -> ServiceBusMessage:
    return ServiceBusMessage(b"x" * size, message_id=name)


# While the primary is healthy.


@pytest.mark.rule("S1")
def test_healthy_path_sends_only_to_the_primary(harness: PairingHarness) -> None:
    harness.send(message("1"), timeout=7)

    assert harness.called() == ["primary"]
    assert ids(harness.primary.sent[0]) == ["1"]
    assert harness.options == [{"timeout": 7}]
    assert harness.events == []


@pytest.mark.rule("S1")
def test_empty_list_is_passed_to_the_sdk(harness: PairingHarness) -> None:
    harness.send([])

    assert harness.called() == ["primary"]


@pytest.mark.rule("S2")
@pytest.mark.parametrize("error", [GONE, BUSY, LARGE, TypeError("invalid")])
def test_error_that_is_no_outage_is_raised(harness: PairingHarness, error: Exception) -> None:
    harness.primary.send_error = error

    with pytest.raises(type(error)) as caught:
        harness.send(message("1"))

    assert caught.value is error
    assert harness.status is HEALTHY
    assert harness.stored() == []


# The timer.


@pytest.mark.rule("S3")
def test_without_an_interval_the_failed_call_continues_with_the_backlog(
    harness: PairingHarness,
) -> None:
    harness.primary.open_error = DOWN

    harness.send(message("1"))

    assert harness.status is FAILOVER
    assert ids(harness.stored()) == ["1"]
    assert [type(event) for event in harness.events] == [StateChanged]


@pytest.mark.rule("S3")
@pytest.mark.parametrize("interval", [SECOND, MINUTE])
def test_with_an_interval_the_original_error_is_raised(interval: timedelta) -> None:
    harness = PairingHarness(failover_interval=interval)
    harness.primary.open_error = DOWN

    for _ in range(2):
        with pytest.raises(ServiceBusConnectionError) as caught:
            harness.send(message("1"))
        assert caught.value is DOWN

    assert harness.status is SUSPECT
    assert harness.stored() == []


@pytest.mark.rule("S3")
def test_success_stops_the_timer(suspect: PairingHarness) -> None:
    suspect.primary.send_error = None

    suspect.send(message("2"), sender="second")

    assert suspect.status is HEALTHY


@pytest.mark.rule("S3")
def test_call_goes_to_the_backlog_if_the_path_failed_over_meanwhile() -> None:
    harness = PairingHarness(failover_interval=SECOND)

    def fail_over() -> None:
        harness.pairing.send_failed(harness.orders, DOWN)
        harness.clock += 1
        harness.pairing.failover_timer_fired(harness.orders)
        harness.primary.open_error = DOWN

    harness.primary.on_call = fail_over

    harness.send(message("1"))

    assert ids(harness.stored()) == ["1"]


# Failures of unknown kind.


@pytest.mark.rule("S2")
def test_unknown_failure_is_probed_before_the_message_is_stored(harness: PairingHarness) -> None:
    harness.primary.open_error = HIDDEN

    harness.send(message("1"))

    assert harness.called()[:2] == ["primary", "ping"]
    assert ids(harness.stored()) == ["1"]
    assert harness.orders.health.cause is HIDDEN


@pytest.mark.rule("S2")
@pytest.mark.parametrize("probe_error", [None, GONE, BUSY])
def test_original_error_is_raised_if_the_primary_answers_the_probe(
    harness: PairingHarness, probe_error: BaseException | None
) -> None:
    harness.primary.open_error, harness.ping.send_error = HIDDEN, probe_error

    with pytest.raises(ServiceBusConnectionError) as caught:
        harness.send(message("1"))

    assert caught.value is HIDDEN
    assert harness.called() == ["primary", "ping"]
    assert harness.status is HEALTHY


# In failover.


@pytest.mark.rule("S4")
def test_no_message_is_sent_to_the_primary_in_failover(failed_over: PairingHarness) -> None:
    failed_over.primary.open_error = None
    for number in range(5):
        failed_over.send(message(str(number)), sender=number)
        assert "primary" not in failed_over.called()

    assert failed_over.primary.sent == []
    assert len(failed_over.stored()) == 5


@pytest.mark.rule("S4")
def test_sender_keeps_its_backlog_queue(failed_over: PairingHarness) -> None:
    for number in range(20):
        failed_over.send(message(str(number)))

    assert len(failed_over.used()) == 1


@pytest.mark.rule("S4")
@pytest.mark.parametrize("attribute", ["open_error", "send_error"])
def test_failed_queue_is_left_by_all_senders(
    failed_over: PairingHarness, used_queue: FakeSender, attribute: str
) -> None:
    failed_over.choose(used_queue.name, "second")
    setattr(used_queue, attribute, BROKEN)

    failed_over.send(message("2"))

    assert failed_over.called()[0] == used_queue.name
    (event,) = failed_over.events
    assert isinstance(event, BacklogQueuePulled)
    assert (event.queue, event.cause) == (used_queue.name, BROKEN)
    for sender in ("second", "first"):
        failed_over.send(message("3"), sender=sender)
        assert used_queue.name not in failed_over.called()


@pytest.mark.rule("S4")
@pytest.mark.parametrize(
    ("attribute", "error", "calls"),
    [
        ("open_error", GONE, 1),
        ("open_error", ValueError("invalid"), 1),
        ("open_error", BROKEN, 1),
        ("send_error", FULL, 1),  # to send: the link is open
        ("send_error", GONE, 1),
        ("send_error", NO_RIGHTS, 1),
        ("send_error", BROKEN, 1),
        ("send_error", HIDDEN, 3),  # to send, to open the link again and to send
    ],
)
def test_queue_is_pulled_after_any_error_and_another_stores_the_message(
    failed_over: PairingHarness,
    used_queue: FakeSender,
    attribute: str,
    error: Exception,
    calls: int,
) -> None:
    setattr(used_queue, attribute, error)

    failed_over.send(message("2"))

    assert failed_over.called()[:calls] == [used_queue.name] * calls
    assert used_queue.name not in failed_over.called()[calls:]
    assert failed_over.pulled() == {used_queue.name}
    assert sorted(ids(failed_over.stored())) == ["1", "2"]


@pytest.mark.rule("S4")
def test_pulled_queue_is_tried_and_restored_after_its_cool_down(
    failed_over: PairingHarness, used_queue: FakeSender
) -> None:
    failed_over.pairing.backlog.pull(used_queue.name, BROKEN)
    failed_over.clock += 60

    failed_over.send(message("2"))

    assert set(failed_over.called()) == {used_queue.name}
    assert failed_over.pulled() == set()


@pytest.mark.rule("S5")
def test_error_has_both_causes_if_no_queue_accepts_the_message(failed_over: PairingHarness) -> None:
    failed_over.fail_queues()

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("1"))

    error = caught.value
    assert type(error) is SendUnavailable
    assert (error.primary_error, error.backlog_error) == (DOWN, BROKEN)
    assert isinstance(error.__cause__, ExceptionGroup)
    assert error.__cause__.exceptions == (DOWN, BROKEN)
    assert sorted(failed_over.called()) == sorted(QUEUES)  # each once
    assert failed_over.pulled() == set(QUEUES)
    assert failed_over.stored() == []


@pytest.mark.rule("S5")
def test_no_queue_is_called_if_all_are_pulled(failed_over: PairingHarness) -> None:
    failed_over.pull_all()

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("1"))

    assert failed_over.called() == []
    assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, BROKEN)


@pytest.mark.rule("S5")
@pytest.mark.parametrize("attribute", ["open_error", "send_error"])
def test_busy_queue_is_not_pulled_and_the_error_is_raised(
    failed_over: PairingHarness, used_queue: FakeSender, attribute: str
) -> None:
    setattr(used_queue, attribute, BUSY)

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("2"))

    assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, BUSY)
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert failed_over.pulled() == set()
    [event] = failed_over.events
    assert isinstance(event, Throttled)
    assert (event.path, event.namespace, event.messages) == ("orders", "two", 1)
    assert event.error is BUSY


# Sends over an open link, without an operation.


@pytest.fixture
def operations_started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The messages of the sends for which an operation is started from now on."""
    started: list[Any] = []
    send = operations.send

    def record(call: Any, messages: Any, *args: Any) -> Any:
        started.append(messages)
        return send(call, messages, *args)

    monkeypatch.setattr(operations, "send", record)
    return started


@pytest.mark.rule("S4", "S6")
@pytest.mark.parametrize("number", [1, 3])
def test_send_over_an_open_link_is_stored_without_an_operation(
    failed_over: PairingHarness,
    used_queue: FakeSender,
    operations_started: list[Any],
    number: int,
) -> None:
    messages = [message(str(index)) for index in range(2, 2 + number)]
    before = failed_over.orders.counters.stored

    failed_over.send(messages if number > 1 else messages[0])

    assert operations_started == []
    assert failed_over.called() == [used_queue.name]
    assert failed_over.timeouts() == [30]  # half of the time is kept for other queues
    assert ids(failed_over.stored()) == ["1", *(str(index) for index in range(2, 2 + number))]
    assert failed_over.orders.counters.stored == before + number


@pytest.mark.rule("S4")
@pytest.mark.parametrize(
    "disturb",
    [
        lambda harness, used: harness.pairing.backlog.pull(
            next(queue for queue in QUEUES if queue != used.name), BROKEN
        ),
        lambda harness, used: harness.pairing.secondary_host.unreachable(
            used.name, DOWN, began=harness.clock
        ),
        lambda harness, used: setattr(used, "opened", False),
        lambda harness, used: harness.links()._backlog.clear(),
    ],
    ids=["another queue is pulled", "the host is down", "the link is lost", "there is no link"],
)
def test_send_needs_an_operation_if_the_backlog_is_not_in_order(
    failed_over: PairingHarness,
    used_queue: FakeSender,
    operations_started: list[Any],
    disturb: Callable[[PairingHarness, FakeSender], None],
) -> None:
    disturb(failed_over, used_queue)

    with suppress(SendUnavailable):
        failed_over.send(message("2"))

    assert len(operations_started) == 1


@pytest.mark.rule("S5", "S8")
@pytest.mark.parametrize("size", [70 * KB, 300 * KB])
def test_size_of_a_large_message_is_checked_by_an_operation(
    failed_over: PairingHarness, used_queue: FakeSender, operations_started: list[Any], size: int
) -> None:
    with suppress(MessageTooLargeForBacklog):
        failed_over.send(sized("2", size))

    assert len(operations_started) == 1


@pytest.mark.rule("S5", "S11")
def test_lost_answer_over_an_open_link_is_reported(
    failed_over: PairingHarness, used_queue: FakeSender
) -> None:
    used_queue.send_error, used_queue.loses_answers = BROKEN, True
    for queue in QUEUES:
        if queue != used_queue.name:
            failed_over.backlog[queue].send_error = BROKEN

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("2"))

    assert outcomes_of(caught.value) == [NOT_KNOWN]
    assert failed_over.called()[0] == used_queue.name
    assert failed_over.called().count(used_queue.name) == 1
    assert failed_over.pulled() == set(QUEUES)
    assert failed_over.orders.counters.failed[FailureKind.UNAVAILABLE] == 1


@pytest.mark.rule("S2a")
def test_interruption_of_a_send_over_an_open_link_discards_the_link(
    failed_over: PairingHarness, used_queue: FakeSender
) -> None:
    used_queue.send_error = KeyboardInterrupt()

    with pytest.raises(KeyboardInterrupt):
        failed_over.send(message("2"))

    assert not used_queue.opened
    assert failed_over.links().backlog_limits(used_queue.name) is None
    assert not failed_over.links().lock.locked()


# Rejected messages, and failures of queues.


@pytest.mark.rule("S4")
@pytest.mark.parametrize("error", [REJECTED, TypeError("cannot be encoded")])
def test_rejected_message_fails_its_own_call_and_nothing_else(
    failed_over: PairingHarness, used_queue: FakeSender, error: Exception
) -> None:
    failed_over.fail_queues(error, "send_error")

    with pytest.raises(type(error)) as caught:
        failed_over.send(message("2"))

    assert caught.value is error
    assert failed_over.called() == [used_queue.name]
    assert failed_over.pulled() == set()
    assert failed_over.events == []
    assert failed_over.orders.queue_of_sender[failed_over.links()] == used_queue.name
    for sender in failed_over.backlog.values():
        sender.send_error = None
    failed_over.send(message("3"), sender="second")
    assert sorted(ids(failed_over.stored())) == ["1", "3"]


@pytest.mark.rule("S4")
def test_rejected_message_leaves_a_pulled_queue_to_the_next_sender(
    failed_over: PairingHarness,
) -> None:
    failed_over.pull_all()
    failed_over.fail_queues(REJECTED, "send_error")
    failed_over.clock += 60
    with pytest.raises(ServiceBusError):
        failed_over.send(message("1"))
    (used_queue,) = set(failed_over.called())
    failed_over.choose(used_queue, "second").send_error = None

    failed_over.send(message("2"), sender="second")

    assert failed_over.used() == [used_queue]
    assert failed_over.pulled() == set(QUEUES) - {used_queue}


@pytest.mark.rule("S4", "S10")
def test_rejected_scheduled_message_pulls_no_queue(failed_over: PairingHarness) -> None:
    failed_over.fail_queues(REJECTED, "send_error")

    with pytest.raises(ServiceBusError) as caught:
        failed_over.schedule(message("1"))

    assert caught.value is REJECTED
    assert failed_over.pulled() == set()


@pytest.mark.rule("S4", "S12")
def test_rejected_message_of_a_session_does_not_pull_the_queue_of_the_session() -> None:
    harness = PairingHarness(failback="after-drain")
    harness.fail_over()
    queue = harness.pairing.backlog.queue_of_session(harness.orders, "s")
    harness.backlog[queue].send_error = REJECTED

    with pytest.raises(ServiceBusError) as caught:
        harness.send(of_session("s"))

    assert caught.value is REJECTED
    assert harness.pulled() == set()
    harness.backlog[queue].send_error = None
    harness.send(of_session("s"))
    assert ids(harness.stored()) == ["s 0"]


@pytest.mark.rule("S4")
def test_lost_link_is_reopened_once(failed_over: PairingHarness, used_queue: FakeSender) -> None:
    used_queue.send_error, used_queue.failures = HIDDEN, 1

    failed_over.send(message("2"))

    assert failed_over.called() == [used_queue.name] * 3  # to send, to open the link and to send
    assert failed_over.pulled() == set()
    assert ids(failed_over.stored()) == ["1", "2"]


@pytest.mark.rule("S4")
def test_error_of_the_new_link_decides_about_the_queue(
    failed_over: PairingHarness, used_queue: FakeSender
) -> None:
    used_queue.send_error = HIDDEN
    calls: list[None] = []

    def fail_to_reopen_the_link() -> None:
        calls.append(None)
        if len(calls) == 2:  # after a send failed
            used_queue.open_error = GONE

    used_queue.on_call = fail_to_reopen_the_link

    failed_over.send(message("2"))

    assert failed_over.called()[:2] == [used_queue.name] * 2
    assert failed_over.called()[2] != used_queue.name
    assert failed_over.pulled() == {used_queue.name}
    (event,) = failed_over.events
    assert isinstance(event, BacklogQueuePulled)
    assert event.cause is GONE


@pytest.mark.rule("S4", "S5")
def test_message_that_breaks_the_link_of_every_queue_pulls_none(
    failed_over: PairingHarness,
) -> None:
    failed_over.fail_queues(HIDDEN, "send_error")

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("1"))

    assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, HIDDEN)
    assert set(failed_over.called()) == set(QUEUES)
    assert failed_over.pulled() == set()


# The host of the secondary.


LATE = OperationTimeoutError(message="late")
FORCED = ServiceBusConnectionError(message="closed", condition=b"amqp:connection:forced")
DETACHED = ServiceBusConnectionError(message="detached", condition=b"amqp:link:detach-forced")


@pytest.mark.rule("S2a", "S5")
@pytest.mark.parametrize("error", [DOWN, LATE, FORCED, OSError("no route")])
def test_no_other_queue_of_an_unreachable_host_is_tried(
    failed_over: PairingHarness, error: Exception
) -> None:
    failed_over.fail_queues(error)

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("1"))

    assert len(failed_over.called()) == 1
    assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, error)
    assert failed_over.pulled() == set()
    assert [type(event) for event in failed_over.events] == [SecondaryUnavailable]


@pytest.mark.rule("S2a", "S5")
def test_calls_fail_without_an_effect_while_the_host_is_down(failed_over: PairingHarness) -> None:
    failed_over.fail_queues(DOWN)
    with pytest.raises(SendUnavailable):
        failed_over.send(message("1"))

    for call in (failed_over.send, failed_over.schedule):
        with pytest.raises(SendUnavailable) as caught:
            call(message("2"))
        assert failed_over.effects == []
        assert caught.value.backlog_error is DOWN
    assert failed_over.create_batch() is None
    assert failed_over.effects == []


@pytest.mark.rule("S2a", "S12")
def test_sessions_are_not_tried_while_the_host_is_down() -> None:
    harness = PairingHarness(failback="after-drain")
    harness.fail_over()
    harness.fail_queues(DOWN)
    with pytest.raises(SendUnavailable):
        harness.send(of_session("s"))

    with pytest.raises(SendUnavailable):
        harness.send(of_session("another"))

    assert harness.called() == []


@pytest.mark.rule("S2a", "S9")
def test_host_that_goes_down_during_a_split_batch_ends_the_call(
    failed_over: PairingHarness,
) -> None:
    used_queue = failed_over.choose(QUEUES[0])
    used_queue.on_sent = lambda: setattr(used_queue, "open_error", DOWN)

    with pytest.raises(PartlyStored):
        failed_over.send([sized(str(number), 100 * KB) for number in range(5)])

    assert ids(failed_over.stored()) == ["0", "1"]
    assert set(failed_over.called()) == {used_queue.name}


@pytest.mark.rule("S2a", "S1")
@pytest.mark.parametrize("error", [DOWN, LATE])
def test_creating_a_batch_finds_out_that_the_host_is_down(
    failed_over: PairingHarness, error: Exception
) -> None:
    failed_over.fail_queues(error)

    assert failed_over.create_batch() is None

    with pytest.raises(SendUnavailable):
        failed_over.send(message("1"))
    assert failed_over.called() == []


@pytest.mark.rule("S2a", "S4")
@pytest.mark.parametrize("attribute", ["open_error", "send_error"])
@pytest.mark.parametrize("error", [BROKEN, FULL, GONE, DETACHED])
def test_failure_of_an_entity_does_not_concern_the_host(
    failed_over: PairingHarness, used_queue: FakeSender, attribute: str, error: Exception
) -> None:
    setattr(used_queue, attribute, error)

    failed_over.send(message("2"))

    assert not failed_over.pairing.secondary_host.is_down
    assert failed_over.pulled() == {used_queue.name}


@pytest.mark.rule("S2a", "S4")
@pytest.mark.parametrize("error", [DOWN, LATE])
def test_connection_that_fails_after_the_link_was_open_pulls_the_queue(
    failed_over: PairingHarness, used_queue: FakeSender, error: Exception
) -> None:
    used_queue.send_error = error

    failed_over.send(message("2"))

    assert failed_over.pulled() == {used_queue.name}
    assert not failed_over.pairing.secondary_host.is_down


@pytest.mark.rule("S2a", "S4")
def test_host_is_down_if_the_connections_of_all_queues_fail(failed_over: PairingHarness) -> None:
    failed_over.fail_queues(DOWN, "send_error")

    with pytest.raises(SendUnavailable):
        failed_over.send(message("1"))

    assert failed_over.pulled() == set(QUEUES)
    assert failed_over.pairing.secondary_host.is_down


@pytest.mark.rule("S2a", "S4")
def test_senders_do_not_wait_for_the_cool_down_after_the_host_is_up_again(
    failed_over: PairingHarness,
) -> None:
    failed_over.pairing.backlog.pull(QUEUES[2], GONE)
    failed_over.fail_queues(DOWN, "send_error")
    with pytest.raises(SendUnavailable):
        failed_over.send(message("1"))
    failed_over.fail_queues(None, "send_error")
    failed_over.events.clear()

    failed_over.clock += 1
    failed_over.probe()

    assert failed_over.pulled() == {QUEUES[2]}  # it was pulled for another reason
    failed_over.send(message("2"))
    failed_over.send(message("3"), sender="second")
    assert sorted(ids(failed_over.stored())) == ["2", "3"]
    kinds = [type(event) for event in failed_over.events]
    assert kinds == [SecondaryRestored, BacklogQueueRestored, BacklogQueueRestored]


@pytest.mark.rule("S2a")
def test_probe_opens_a_link_and_sends_nothing(failed_over: PairingHarness) -> None:
    failed_over.fail_queues(DOWN)
    with pytest.raises(SendUnavailable):
        failed_over.send(message("1"))

    failed_over.probe(3)  # the first three probes fail
    assert failed_over.waits() == [1.0, 2.0, 4.0, 5.0]
    assert len(set(failed_over.called()) - {"wait"}) == 3  # the queues take turns
    assert failed_over.timeouts() == [10.0] * 3
    failed_over.fail_queues(None)
    failed_over.probe()

    assert not failed_over.pairing.secondary_host.is_down
    assert failed_over.stored() == []
    failed_over.send(message("2"))


@pytest.mark.rule("S2a")
@pytest.mark.parametrize("error", [GONE, FULL, BUSY, BROKEN])
def test_error_of_a_queue_is_an_answer_of_the_host(
    failed_over: PairingHarness, error: Exception
) -> None:
    failed_over.fail_queues(DOWN)
    with pytest.raises(SendUnavailable):
        failed_over.send(message("1"))
    failed_over.fail_queues(error)

    failed_over.probe()

    assert not failed_over.pairing.secondary_host.is_down


@pytest.mark.rule("S2a", "S4")
def test_single_queue_that_hangs_is_pulled_after_another_answered(
    failed_over: PairingHarness, used_queue: FakeSender
) -> None:
    used_queue.open_error = LATE
    with pytest.raises(SendUnavailable):
        failed_over.send(message("2"))

    failed_over.probe(3)  # of this queue, of another one, and of this queue again

    assert not failed_over.pairing.secondary_host.is_down
    assert failed_over.pulled() == {used_queue.name}
    failed_over.send(message("2"))
    assert sorted(ids(failed_over.stored())) == ["1", "2"]


@pytest.mark.rule("S2a", "S4")
def test_queue_that_hangs_while_others_accept_messages_is_pulled(
    failed_over: PairingHarness, used_queue: FakeSender
) -> None:
    used_queue.open_error = LATE

    def store_by_another_sender() -> None:
        used_queue.on_call = lambda: None
        failed_over.clock += 1
        queue = next(queue for queue in QUEUES if queue != used_queue.name)
        failed_over.choose(queue, "second")
        failed_over._senders.pop("second", None)
        PairedSender(failed_over.links("second"), failed_over.driver, None).send_messages(
            message("another")
        )

    used_queue.on_call = store_by_another_sender

    failed_over.send(message("2"))

    assert failed_over.pulled() == {used_queue.name}
    assert sorted(ids(failed_over.stored())) == ["1", "2", "another"]


@pytest.mark.rule("S2a", "S14")
@pytest.mark.parametrize("client", ["primary", "secondary"])
def test_probes_end_when_a_client_is_closed(failed_over: PairingHarness, client: str) -> None:
    failed_over.fail_queues(DOWN)
    with pytest.raises(SendUnavailable):
        failed_over.send(message("1"))
    failed_over.pairing.mark_closed(getattr(failed_over.pairing, client))

    failed_over.effects.clear()
    failed_over.driver.run(probe_secondary(failed_over.pairing, failed_over.factory))

    assert failed_over.effects == []


# Locks.


@pytest.mark.rule("S2a", "S3")
@pytest.mark.parametrize("interval", [NOW, MINUTE])
def test_waiting_for_other_calls_does_not_count_as_an_outage(interval: timedelta) -> None:
    harness = PairingHarness(failover_interval=interval)
    sender = harness.sender()

    with harness.links().lock:
        for call in (
            lambda: sender.send_messages(message("1"), timeout=0.05),
            lambda: sender.schedule_messages(message("1"), WHEN, timeout=0.05),
        ):
            with pytest.raises(SenderInUse):
                call()

    assert harness.status is HEALTHY
    assert harness.called() == []
    sender.send_messages(message("2"))


@pytest.mark.rule("S2a", "S4")
def test_waiting_for_other_calls_in_failover_pulls_no_queue(failed_over: PairingHarness) -> None:
    sender = failed_over.sender()

    with failed_over.links().lock, pytest.raises(SenderInUse):
        sender.send_messages(message("1"), timeout=0.05)

    assert failed_over.pulled() == set()
    assert not failed_over.pairing.secondary_host.is_down
    assert failed_over.all_usable()


class ContendedLock:
    """A lock that another call holds for some seconds of a clock."""

    def __init__(self, harness: PairingHarness, held_s: float) -> None:
        self._harness = harness
        self._held_s = held_s

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking:
            wait_s = min(self._held_s, timeout)
            self._harness.clock += wait_s
            self._held_s -= wait_s
        return self._held_s == 0

    def release(self) -> None:
        assert self._held_s == 0


def contend(harness: PairingHarness, held_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another call use the sender for so many seconds."""
    monkeypatch.setattr(driver_module, "monotonic", lambda: harness.clock)
    harness.links().lock = ContendedLock(harness, held_s)


CALLS: dict[str, Callable[[PairedSender], object]] = {
    "send": lambda sender: sender.send_messages(message("1")),
    "schedule": lambda sender: sender.schedule_messages(message("1"), WHEN),
}


@pytest.mark.rule("S2a")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_time_of_a_call_includes_its_wait_for_other_calls(
    call: Callable[[PairedSender], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = PairingHarness(failover_interval=MINUTE)
    sender = harness.sender()
    contend(harness, 20, monkeypatch)

    call(sender)

    assert harness.called() == ["primary"]
    assert harness.timeouts() == [40]


@pytest.mark.rule("S2a", "S3")
@pytest.mark.parametrize("held_s", [45, 60, 100])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_call_whose_turn_comes_too_late_is_not_made(
    call: Callable[[PairedSender], object], held_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = PairingHarness(failover_interval=MINUTE)
    sender = harness.sender()
    contend(harness, held_s, monkeypatch)

    with pytest.raises(SenderInUse):
        call(sender)

    assert harness.called() == []
    assert harness.status is HEALTHY
    assert harness.clock <= 1000 + 60


@pytest.mark.rule("S2a", "S4")
def test_time_of_a_call_in_failover_includes_its_wait_for_other_calls(
    failed_over: PairingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed_over.send(message("1"))  # opens a link
    began_at = failed_over.clock
    sender = failed_over.sender()
    contend(failed_over, 20, monkeypatch)

    sender.send_messages(message("2"))

    assert failed_over.timeouts() == [60 / 2 - 20]
    assert failed_over.clock == began_at + 20


@pytest.mark.rule("S2a", "S4")
def test_call_in_failover_whose_turn_comes_late_uses_the_time_of_other_queues(
    failed_over: PairingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed_over.send(message("1"))  # opens a link
    began_at = failed_over.clock
    sender = failed_over.sender()
    contend(failed_over, 25, monkeypatch)

    sender.send_messages(message("2"))

    (timeout_s,) = failed_over.timeouts()
    assert 10 < timeout_s <= began_at + 60 - failed_over.clock
    assert failed_over.pulled() == set()


# Sizes.


@pytest.mark.rule("S8")
def test_message_too_large_for_the_backlog_pulls_no_queue(failed_over: PairingHarness) -> None:
    with pytest.raises(MessageTooLargeForBacklog, match="Send a smaller message"):
        failed_over.send(sized("large", 256 * KB))

    assert failed_over.stored() == []
    assert failed_over.pulled() == set()
    assert len(failed_over.called()) == 1


@pytest.mark.rule("S8")
def test_size_limit_is_that_of_the_link(failed_over: PairingHarness) -> None:
    for sender in failed_over.backlog.values():
        sender.limit = 1024 * KB

    failed_over.send(sized("large", 512 * KB))

    assert ids(failed_over.stored()) == ["large"]


@pytest.mark.rule("S8")
def test_queue_that_rejects_a_large_message_is_not_pulled(failed_over: PairingHarness) -> None:
    failed_over.fail_queues(LARGE, "send_error")

    with pytest.raises(MessageTooLargeForBacklog, match="x-servicebus-transfer") as caught:
        failed_over.send(message("1"))

    assert caught.value.__cause__ is LARGE
    assert failed_over.pulled() == set()


@pytest.mark.rule("S8")
def test_check_backlog_size_refuses_large_messages_while_healthy() -> None:
    harness = PairingHarness(check_backlog_size=True)

    with pytest.raises(MessageTooLargeForBacklog):
        harness.send([message("1"), sized("large", 256 * KB)])

    assert harness.called() == []
    harness.send(message("1"))
    assert harness.called() == ["primary"]


# Batches.


@pytest.mark.rule("S9")
def test_batch_that_fits_is_stored_as_one_batch(failed_over: PairingHarness) -> None:
    batch = PairedBatch()
    for number in range(100):
        batch.add_message(message(str(number)))

    failed_over.send(batch)

    (queue,) = failed_over.used()
    (batch_payloads,) = failed_over.backlog[queue].sent
    assert ids(batch_payloads) == [str(number) for number in range(100)]
    assert {property_of(payload, PATH_ALIAS) for payload in batch_payloads} == {"orders"}


@pytest.mark.rule("S9")
def test_batch_that_does_not_fit_is_split_in_order(failed_over: PairingHarness) -> None:
    failed_over.send([sized(str(number), 100 * KB) for number in range(5)])

    (queue,) = failed_over.used()
    stored = [ids(call) for call in failed_over.backlog[queue].sent]
    assert stored == [["0", "1"], ["2", "3"], ["4"]]


@pytest.mark.rule("S4", "S5", "S9")
@pytest.mark.parametrize(("error", "pulled"), [(REJECTED, set()), (BROKEN, set(QUEUES))])
def test_failure_of_a_later_batch_names_the_stored_messages(
    failed_over: PairingHarness, error: Exception, pulled: set[str]
) -> None:
    failed_over.fail_queues(error, "send_error")
    failed_over.choose(QUEUES[0]).fails_after = 1

    with pytest.raises(PartlyStored, match="2 of 5") as caught:
        failed_over.send([sized(str(number), 100 * KB) for number in range(5)])

    assert (caught.value.stored, caught.value.not_sent) == ((0, 1), (2, 3, 4))
    assert ids(failed_over.stored()) == ["0", "1"]
    assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, error)
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert caught.value.__cause__.exceptions == (DOWN, error)
    assert failed_over.pulled() == pulled


@pytest.mark.rule("S9")
def test_later_batch_can_go_to_another_queue(failed_over: PairingHarness) -> None:
    used_queue = failed_over.choose(QUEUES[0])
    used_queue.send_error, used_queue.fails_after = BROKEN, 1

    failed_over.send([sized(str(number), 100 * KB) for number in range(5)])

    assert ids(used_queue.sent[0]) == ["0", "1"]
    assert sorted(ids(failed_over.stored())) == list("01234")


@pytest.mark.rule("S9")
def test_nothing_is_stored_if_one_message_is_too_large(failed_over: PairingHarness) -> None:
    with pytest.raises(MessageTooLargeForBacklog):
        failed_over.send([message("1"), sized("2", 200 * KB), sized("3", 300 * KB)])

    assert failed_over.stored() == []


@pytest.mark.rule("S9")
def test_partly_stored_has_the_primary_error_of_the_same_call(harness: PairingHarness) -> None:
    harness.primary.open_error = OperationTimeoutError(message="late")
    for sender in harness.backlog.values():
        sender.send_error = BROKEN
        sender.fails_after = 1

    with pytest.raises(PartlyStored) as caught:
        harness.send([sized(str(number), 200 * KB) for number in range(5)])

    assert caught.value.primary_error is harness.primary.open_error
    assert (caught.value.stored, caught.value.not_sent) == ((0, 1, 2), (3, 4))


# Timeouts.


@pytest.mark.rule("S2a")
def test_without_an_interval_the_primary_gets_half_of_the_time(harness: PairingHarness) -> None:
    harness.send(message("1"))
    assert harness.timeouts() == [30]

    harness.send(message("1"), timeout=8)
    assert harness.timeouts() == [4]


@pytest.mark.rule("S2a")
def test_with_an_interval_the_primary_gets_all_of_the_time() -> None:
    harness = PairingHarness(failover_interval=SECOND, operation_timeout=20 * SECOND)

    harness.send(message("1"))

    assert harness.timeouts() == [20]


@pytest.mark.rule("S2a")
@pytest.mark.parametrize(
    ("duration_s", "timeouts"),
    [(10, [60, 50, 40]), (30, [60, 30])],
    ids=["all queues", "without time left no more are tried"],
)
def test_opening_a_link_gets_the_rest_of_the_time(
    failed_over: PairingHarness, duration_s: float, timeouts: list[float]
) -> None:
    failed_over.fail_queues()
    for sender in failed_over.backlog.values():
        sender.duration_s = duration_s

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("1"), timeout=60)

    assert failed_over.timeouts() == timeouts
    assert len(failed_over.effects) == len(timeouts)
    assert caught.value.backlog_error is BROKEN


@pytest.mark.rule("S2a")
def test_no_effect_gets_more_time_than_the_call_has(harness: PairingHarness) -> None:
    harness.primary.open_error, harness.primary.duration_s = DOWN, 3
    for sender in harness.backlog.values():
        sender.duration_s = 0.5

    harness.send(message("1"), timeout=8)

    assert harness.timeouts() == [4, 5, 2.25]


@pytest.mark.rule("S2a")
@pytest.mark.parametrize(
    ("duration_s", "timeouts"),
    # Each queue is called twice: to create a batch and to send it.
    [(5, [60, 27.5, 50, 22.5, 40, 35]), (20, [60, 20, 20, 0])],
    ids=["the last gets the rest", "without time left no more are tried"],
)
def test_each_send_to_a_queue_leaves_time_for_the_next(
    failed_over: PairingHarness, duration_s: float, timeouts: list[float]
) -> None:
    failed_over.fail_queues(attribute="send_error")
    for sender in failed_over.backlog.values():
        sender.duration_s = duration_s

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("1"), timeout=60)

    assert failed_over.timeouts() == timeouts
    assert caught.value.backlog_error is BROKEN


@pytest.mark.rule("S2a")
def test_host_that_answers_no_send_gets_a_short_time_after_a_probe(
    failed_over: PairingHarness,
) -> None:
    failed_over.fail_queues(OperationTimeoutError(message="no answer"), "send_error")
    with pytest.raises(SendUnavailable):
        failed_over.send(message("1"), timeout=60)
    assert len(failed_over.timeouts()) == 2 * len(QUEUES)
    host = failed_over.pairing.secondary_host

    for _ in range(2):  # each time that a probe opens a link
        host.probed(QUEUES[0], None, began=failed_over.clock)
        with pytest.raises(SendUnavailable) as caught:
            failed_over.send(message("1"), timeout=60)
        assert failed_over.timeouts() == [10, 10]  # to open a link and to send, to one queue
        assert isinstance(caught.value.backlog_error, OperationTimeoutError)
        with pytest.raises(SendUnavailable):
            failed_over.send(message("1"), timeout=60)
        assert failed_over.timeouts() == []  # the host is known to be down

    host.probed(QUEUES[0], None, began=failed_over.clock)
    failed_over.create_batch()
    assert failed_over.timeouts() == [10]
    failed_over.fail_queues(None, "send_error")
    failed_over.send(message("1"), timeout=60)
    failed_over.send(message("1"), timeout=60)
    assert failed_over.timeouts() == [30]  # as before the outage, over an open link


@pytest.mark.rule("S2a")
@pytest.mark.parametrize("answer", [BUSY, LARGE, REJECTED])
def test_answer_that_rejects_a_message_shows_that_the_host_answers_sends(
    failed_over: PairingHarness, answer: Exception
) -> None:
    failed_over.fail_queues(OperationTimeoutError(message="no answer"), "send_error")
    with pytest.raises(SendUnavailable):
        failed_over.send(message("1"), timeout=60)
    failed_over.pairing.secondary_host.probed(QUEUES[0], None, began=failed_over.clock)
    failed_over.fail_queues(answer, "send_error")
    with pytest.raises(Exception, match=r"."):
        failed_over.send(message("1"), timeout=60)

    failed_over.fail_queues(None, "send_error")
    failed_over.send(message("1"), timeout=60)

    assert failed_over.timeouts() == [60, 30]


@pytest.mark.rule("S2a")
@pytest.mark.parametrize("timeout", [0, -1])
def test_timeout_must_be_positive_as_in_the_sdk(harness: PairingHarness, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be greater than 0"):
        harness.send(message("1"), timeout=timeout)


# Scheduling.


@pytest.mark.rule("S10")
def test_scheduling_returns_the_sequence_numbers_of_the_primary(harness: PairingHarness) -> None:
    assert harness.schedule([message("1"), message("2")]) == [101, 102]


@pytest.mark.rule("S10")
def test_scheduling_in_failover_returns_none_and_stores_the_schedule(
    primary_down: PairingHarness,
) -> None:
    assert primary_down.schedule([message("1"), message("2")]) == [None, None]
    assert primary_down.schedule(message("3")) == [None]
    assert primary_down.schedule([]) == []

    schedules = [property_of(payload, SCHEDULE_ALIAS) for payload in primary_down.stored()]
    assert schedules == [WHEN_MS] * 3


@pytest.mark.rule("S10")
def test_batch_cannot_be_scheduled_as_in_the_sdk(failed_over: PairingHarness) -> None:
    with pytest.raises(TypeError, match="Received instead: PairedBatch"):
        failed_over.schedule(PairedBatch())


@pytest.mark.rule("S10")
@pytest.mark.parametrize("numbers", [7, [7, 8], (7, 8), iter([7, 8])])
def test_messages_of_the_primary_can_be_cancelled(harness: PairingHarness, numbers: Any) -> None:
    harness.cancel(numbers)

    assert harness.cancelled in ([[7]], [[7, 8]])


@pytest.mark.rule("S10")
@pytest.mark.parametrize("numbers", [None, [None], [7, None]])
def test_message_in_the_backlog_cannot_be_cancelled(
    any_state: PairingHarness, numbers: Any
) -> None:
    with pytest.raises(CannotCancel, match="in the backlog"):
        any_state.cancel(numbers)

    assert any_state.called() == []


@pytest.mark.rule("S10")
def test_no_message_can_be_cancelled_in_failover(primary_down: PairingHarness) -> None:
    with pytest.raises(SendUnavailable, match="in failover") as caught:
        primary_down.cancel([7])

    assert caught.value.primary_error is DOWN
    assert primary_down.cancelled == []


# Reserved names, ids and the caller's objects.


@pytest.mark.rule("S7")
@pytest.mark.parametrize("key", ["x-ms-path", b"x-ms-sessionid"])
@pytest.mark.parametrize(
    "make",
    [
        lambda properties: ServiceBusMessage(b"", application_properties=properties),
        lambda properties: {"body": b"", "application_properties": properties},
        lambda properties: AmqpAnnotatedMessage(data_body=b"", application_properties=properties),
        lambda properties: iter([ServiceBusMessage(b"", application_properties=properties)]),
    ],
    ids=["message", "dictionary", "annotated", "generator"],
)
def test_reserved_name_is_refused_in_every_state(
    any_state: PairingHarness, make: Callable[[Any], Any], key: Any
) -> None:
    for call in (any_state.send, any_state.schedule):
        with pytest.raises(ReservedProperty):
            call(make({key: "x"}))
        assert any_state.called() == []

    assert any_state.primary.sent == []
    assert any_state.stored() == []


@pytest.mark.rule("S11")
def test_ambiguous_send_has_the_same_id_in_primary_and_backlog(harness: PairingHarness) -> None:
    sent: list[list[bytes]] = []

    def accept_and_time_out(messages: Any, **options: Any) -> None:
        sent.append(payloads_of(messages))
        raise OperationTimeoutError(message="the response was lost")

    harness.primary.send_messages = accept_and_time_out  # type: ignore[method-assign]
    without_id = ServiceBusMessage(b"1")
    without_id.message_id = None
    raw = AmqpAnnotatedMessage(data_body=b"2")

    harness.send([without_id, raw, {"body": b"3"}])

    assert len(sent) == 1
    assert all(ids(sent[0]))
    assert ids(harness.stored()) == ids(sent[0])
    assert without_id.message_id is None
    assert raw.properties is None


@pytest.mark.rule("S11")
def test_each_call_assigns_a_new_id(failed_over: PairingHarness) -> None:
    raw = AmqpAnnotatedMessage(data_body=b"1")

    failed_over.send(raw)
    failed_over.send(raw)

    first, second = ids(failed_over.stored())
    assert first
    assert second
    assert first != second


def test_messages_of_a_generator_are_stored_after_the_primary_failed(
    harness: PairingHarness,
) -> None:
    harness.primary.open_error = DOWN

    harness.send(message(str(number)) for number in range(3))

    assert ids(harness.stored()) == ["0", "1", "2"]


@pytest.mark.parametrize("messages", [[], PairedBatch()])
def test_empty_call_stores_nothing(failed_over: PairingHarness, messages: Any) -> None:
    failed_over.send(messages)

    assert failed_over.called() == []


def test_invalid_message_raises_the_error_of_the_sdk_in_failover(
    failed_over: PairingHarness,
) -> None:
    with pytest.raises(TypeError, match="Received instead: int"):
        failed_over.send(7)

    assert failed_over.pulled() == set()


# Entering, and creating a batch.


@pytest.mark.rule("S1")
@pytest.mark.parametrize("interval", [NOW, MINUTE])
@pytest.mark.parametrize("error", [DOWN, HIDDEN, OperationTimeoutError(message="late")])
def test_entering_does_not_fail_while_the_primary_is_down(
    interval: timedelta, error: Exception
) -> None:
    harness = PairingHarness(failover_interval=interval)
    harness.primary.open_error = error

    harness.enter()

    assert harness.status is (SUSPECT if interval else FAILOVER)  # entering counts as a send


@pytest.mark.rule("S1")
def test_entering_in_failover_calls_no_sender(failed_over: PairingHarness) -> None:
    failed_over.enter()

    assert failed_over.called() == []


@pytest.mark.rule("S1")
@pytest.mark.parametrize("error", [GONE, BUSY, TypeError("invalid")])
def test_entering_and_creating_a_batch_raise_errors_that_are_no_outage(
    harness: PairingHarness, error: Exception
) -> None:
    harness.primary.open_error = error

    for call in (harness.enter, harness.create_batch):
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error

    assert harness.status is HEALTHY


@pytest.mark.rule("S1")
def test_batch_has_the_limit_of_the_primary_or_of_the_backlog(harness: PairingHarness) -> None:
    harness.primary.limit = 1024 * KB
    assert harness.create_batch().max_size_in_bytes == 1024 * KB
    assert harness.create_batch(500).max_size_in_bytes == 500

    harness.fail_over()
    assert harness.create_batch().max_size_in_bytes == 256 * KB
    assert harness.create_batch(500).max_size_in_bytes == 500


@pytest.mark.rule("S1")
@pytest.mark.parametrize("interval", [NOW, MINUTE])
def test_creating_a_batch_returns_none_if_no_namespace_answers(interval: timedelta) -> None:
    harness = PairingHarness(failover_interval=interval)
    harness.primary.open_error = DOWN
    harness.fail_queues()

    assert harness.create_batch() is None

    assert harness.status is (SUSPECT if interval else FAILOVER)
    harness.pull_all()
    assert harness.create_batch() is None


@pytest.mark.rule("S1")
@pytest.mark.parametrize(
    ("error", "pulled"), [(BROKEN, 1), (GONE, 1), (OSError("broken"), 0), (BUSY, 0)]
)
def test_queue_that_creates_no_batch_is_pulled_unless_it_is_busy_or_unreachable(
    failed_over: PairingHarness, error: Exception, pulled: int
) -> None:
    failed_over.fail_queues(error)

    assert failed_over.create_batch() is None

    assert len(failed_over.called()) == 1
    assert failed_over.pulled() == set(failed_over.called()[:pulled])


@pytest.mark.rule("S1")
def test_batch_larger_than_the_link_allows_is_refused(any_state: PairingHarness) -> None:
    with pytest.raises(ValueError, match="too large"):
        any_state.create_batch(10_000 * KB)

    assert any_state.pulled() == set()


@pytest.mark.rule("S3")
def test_only_a_send_stops_the_timer(suspect: PairingHarness) -> None:
    suspect.create_batch()
    suspect.enter()

    assert suspect.status is SUSPECT


# Order.


@pytest.fixture
def ordered() -> PairingHarness:
    return PairingHarness(failback="after-drain", failback_hold=5 * SECOND)


def of_session(session: str, number: int = 0, **options: Any) -> ServiceBusMessage:
    return ServiceBusMessage(b"", session_id=session, message_id=f"{session} {number}", **options)


@pytest.mark.rule("S12")
def test_messages_of_a_session_go_to_its_queue_from_every_sender(ordered: PairingHarness) -> None:
    ordered.fail_over()
    for number in range(30):
        ordered.send(of_session(f"s{number % 10}", number), sender=number)

    for queue, sender in ordered.backlog.items():
        for (payload,) in sender.sent:
            session = property_of(payload, SESSION_ALIAS)
            assert ordered.pairing.backlog.queue_of_session(ordered.orders, session) == queue
    assert len(ordered.used()) == 3


@pytest.mark.rule("S12")
def test_batch_of_many_sessions_is_split_by_queue_in_order(ordered: PairingHarness) -> None:
    ordered.fail_over()

    ordered.send([of_session(f"s{number % 7}", number) for number in range(70)])

    assert len(ordered.stored()) == 70
    assert all(len(sender.sent) == 1 for sender in ordered.backlog.values())
    for sender in ordered.backlog.values():
        numbers = [int(message_id.split()[1]) for message_id in ids(sender.sent[0])]
        assert numbers == sorted(numbers)


@pytest.mark.rule("S12")
def test_session_never_moves_to_another_queue(ordered: PairingHarness) -> None:
    ordered.fail_over()
    queue = ordered.pairing.backlog.queue_of_session(ordered.orders, "s")
    ordered.backlog[queue].send_error = BROKEN

    for queues in ([queue, queue], []):  # the second time the queue is pulled
        with pytest.raises(SendUnavailable) as caught:
            ordered.send(of_session("s"))
        assert ordered.called() == queues
        assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, BROKEN)

    assert ordered.stored() == []
    ordered.send(message("without a session"))
    assert ids(ordered.stored()) == ["without a session"]


@pytest.mark.rule("S12", "S9")
def test_error_names_the_messages_whose_session_queue_failed(ordered: PairingHarness) -> None:
    ordered.fail_over()
    sessions = [f"s{number}" for number in range(8)]
    queues = [
        ordered.pairing.backlog.queue_of_session(ordered.orders, session) for session in sessions
    ]
    failed = queues[-1]
    ordered.backlog[failed].open_error = BROKEN

    with pytest.raises(PartlyStored) as caught:
        ordered.send([of_session(session) for session in sessions])

    stored = {sessions.index(message_id.split()[0]) for message_id in ids(ordered.stored())}
    assert set(caught.value.stored) == stored
    assert stored.isdisjoint(caught.value.not_sent)
    assert sorted((*caught.value.stored, *caught.value.not_sent)) == list(range(8))
    assert all(queues[index] != failed for index in stored)


@pytest.mark.rule("S12")
def test_held_call_goes_to_the_primary_when_the_backlog_is_empty(ordered: PairingHarness) -> None:
    ordered.hold()
    ordered.on_wait = ordered.peek

    ordered.send(of_session("s"))

    assert ordered.called() == ["wait", "wait", "primary"]
    assert ordered.stored() == []


@pytest.mark.rule("S12")
def test_held_call_goes_to_the_backlog_after_the_hold(ordered: PairingHarness) -> None:
    ordered.hold()

    def wait() -> None:
        ordered.clock += 2.5

    ordered.on_wait = wait
    ordered.send(of_session("s"))

    assert ordered.waits() == [5.0, 2.5]
    assert ids(ordered.stored()) == ["s 0"]


@pytest.mark.rule("S2a")
def test_held_call_times_out_with_its_own_timeout(ordered: PairingHarness) -> None:
    ordered.hold()

    def wait() -> None:
        ordered.clock += 1

    ordered.on_wait = wait
    with pytest.raises(SendUnavailable, match="timed out") as caught:
        ordered.send(of_session("s"), timeout=2)

    assert ordered.waits() == [2.0, 1.0]
    assert caught.value.primary_error is DOWN


@pytest.mark.rule("S14")
def test_held_call_raises_state_error_when_the_pairing_is_closed(ordered: PairingHarness) -> None:
    ordered.hold()

    def wait() -> None:
        ordered.pairing.primary.set_closed()

    ordered.on_wait = wait
    with pytest.raises(StateError, match="closed"):
        ordered.send(of_session("s"))


@pytest.mark.rule("S12")
def test_call_that_joins_a_failover_late_is_not_overtaken(ordered: PairingHarness) -> None:
    late = operations.send(ordered.call(), of_session("s", 1), None, {})
    next(late)
    assert isinstance(late.send(nullcontext(30.0)), CallSdk)  # the primary does not answer
    ordered.hold()
    ordered.peek()

    effect = late.throw(DOWN)  # the message is stored during the second peek
    assert isinstance(effect, AcquireLock)
    ordered.peek()

    assert ordered.status is DRAINING
    assert not ordered.pairing.peek_begins(ordered.orders).idle
    late.close()


# Closed and faulted pairings.


@pytest.mark.rule("S14", "Y7")
@pytest.mark.parametrize("fault", [None, OSError("partner")])
def test_closed_or_faulted_pairing_refuses_every_call(
    harness: PairingHarness, fault: BaseException | None
) -> None:
    harness.pairing.primary.set_closed()
    if fault is not None:
        harness.pairing.primary.set_fault(fault)
    kind = StateError if fault is None else PairingFaulted

    calls: list[Callable[[], Any]] = [
        lambda: harness.send(message("1")),
        lambda: harness.schedule(message("1")),
        lambda: harness.cancel(7),
        harness.enter,
        harness.create_batch,
    ]
    for call in calls:
        with pytest.raises(kind):
            call()
    assert harness.called() == []


# Outcomes of messages.

NOT_KNOWN, STORED, NOT_SENT = SendOutcome.UNKNOWN, SendOutcome.STORED, SendOutcome.NOT_SENT


def outcomes_of(error: SendUnavailable) -> list[SendOutcome]:
    return [each.outcome for each in error.messages]


@pytest.mark.rule("S5", "S11")
@pytest.mark.parametrize("attribute", ["open_error", "send_error"])
def test_message_that_was_never_transferred_is_not_sent(
    harness: PairingHarness, attribute: str
) -> None:
    setattr(harness.primary, attribute, DOWN)
    harness.fail_queues(attribute=attribute)

    with pytest.raises(SendUnavailable, match="was not sent") as caught:
        harness.send(message("1"))

    assert outcomes_of(caught.value) == [NOT_SENT]


@pytest.mark.rule("S5", "S11")
@pytest.mark.parametrize("error", [BROKEN, HIDDEN])
def test_message_that_a_queue_did_not_answer_is_unknown(
    failed_over: PairingHarness, error: Exception
) -> None:
    failed_over.fail_queues(error, "send_error")
    lossy = failed_over.choose(QUEUES[0])
    lossy.loses_answers = lossy.stores_unanswered = True

    with pytest.raises(SendUnavailable, match="not known whether the message '1'") as caught:
        failed_over.send(message("1"))

    assert outcomes_of(caught.value) == [NOT_KNOWN]
    assert {ids(payloads)[0] for payloads in lossy.lost} == {"1"}


@pytest.mark.rule("S5", "S11")
@pytest.mark.parametrize("schedule", [False, True])
def test_message_that_the_primary_did_not_answer_is_unknown(
    harness: PairingHarness, schedule: bool
) -> None:
    harness.primary.send_error = DOWN
    harness.primary.loses_answers = True
    harness.fail_queues()

    with pytest.raises(SendUnavailable) as caught:
        (harness.schedule if schedule else harness.send)([message("1"), message("2")])

    assert outcomes_of(caught.value) == [NOT_KNOWN] * 2
    assert caught.value.primary_error is DOWN


@pytest.mark.rule("S5", "S11")
@pytest.mark.parametrize("loses_answers", [False, True])
def test_call_without_time_for_the_primary_reports_the_lost_answer_of_a_queue(
    failed_over: PairingHarness, used_queue: FakeSender, loses_answers: bool
) -> None:
    """The path becomes healthy while the queue does not answer, until the call has timed out."""

    def recover() -> None:
        failed_over.primary.open_error = None
        failed_over.pairing.mark_healthy(failed_over.orders)
        failed_over.clock += 60

    used_queue.on_call = recover
    used_queue.send_error = DOWN
    used_queue.loses_answers = loses_answers

    with pytest.raises(SendUnavailable if loses_answers else SenderInUse) as caught:
        failed_over.send(message("2"))

    assert failed_over.status is HEALTHY
    assert failed_over.called() == [used_queue.name]
    if loses_answers:
        assert isinstance(caught.value, SendUnavailable)
        assert outcomes_of(caught.value) == [NOT_KNOWN]
        assert caught.value.backlog_error is DOWN


@pytest.mark.rule("S5", "S11")
def test_lost_answer_of_an_earlier_call_does_not_count(harness: PairingHarness) -> None:
    harness.primary.send_error = DOWN
    harness.primary.loses_answers = True
    harness.send(message("1"))
    assert harness.status is FAILOVER
    harness.fail_queues()

    with pytest.raises(SendUnavailable) as caught:
        harness.send(message("2"))

    assert outcomes_of(caught.value) == [NOT_SENT]


@pytest.mark.rule("S4", "S11")
def test_call_succeeds_after_a_lost_answer_if_another_queue_accepts_the_message(
    failed_over: PairingHarness,
) -> None:
    lossy = failed_over.choose(QUEUES[0])
    lossy.send_error = BROKEN
    lossy.loses_answers = lossy.stores_unanswered = True

    failed_over.send(AmqpAnnotatedMessage(data_body=b"without an id"))

    (copy,) = [payload for payloads in lossy.lost for payload in payloads]
    assert ids(failed_over.stored()) == ids([copy]) != [None]


FIT = [sized(str(number), 100 * KB) for number in range(5)]
"""Messages of which two fit into one batch."""


@pytest.mark.rule("S9", "S11")
@pytest.mark.parametrize("error", [BROKEN, HIDDEN, BUSY])
def test_each_part_of_a_split_batch_has_its_outcome(
    failed_over: PairingHarness, error: Exception
) -> None:
    for sender in failed_over.backlog.values():
        sender.send_error, sender.fails_after, sender.loses_answers = error, 0, True
    failed_over.choose(QUEUES[0]).fails_after = 1

    with pytest.raises(PartlyStored, match="2 of 5") as caught:
        failed_over.send(FIT)

    assert outcomes_of(caught.value) == [STORED] * 2 + [NOT_KNOWN] * 2 + [NOT_SENT]
    assert [each.message_id for each in caught.value.messages] == ["0", "1", "2", "3", "4"]


@pytest.mark.rule("S9", "S11")
def test_part_whose_answer_was_lost_is_stored_after_another_queue_accepted_it(
    failed_over: PairingHarness,
) -> None:
    lossy = failed_over.choose(QUEUES[0])
    lossy.send_error, lossy.fails_after, lossy.loses_answers = BROKEN, 1, True
    for queue in QUEUES[1:]:
        failed_over.backlog[queue].send_error = BROKEN
        failed_over.backlog[queue].fails_after = 1

    with pytest.raises(PartlyStored) as caught:
        failed_over.send([*FIT, *FIT])

    assert caught.value.stored == (0, 1, 2, 3, 4, 5)
    assert caught.value.unknown == ()
    assert caught.value.not_sent == (6, 7, 8, 9)


def close_sender(harness: PairingHarness) -> None:
    harness.links().closed = True


def fault_pairing(harness: PairingHarness) -> None:
    harness.links().closed = True
    harness.pairing.primary.set_fault(OSError("partner"))


def shrink_limits(harness: PairingHarness) -> None:
    for sender in harness.backlog.values():
        sender.limit = 50 * KB
        sender.opened = False  # an open link keeps its limits


def fail_sends(error: BaseException) -> Callable[[PairingHarness], None]:
    return lambda harness: harness.fail_queues(error, "send_error")


CERTAIN: dict[str, tuple[Callable[[PairingHarness], None], type[BaseException]]] = {
    "closed": (close_sender, StateError),
    "faulted": (fault_pairing, PairingFaulted),
    "too large": (shrink_limits, MessageTooLargeForBacklog),
    "too large for the queue": (fail_sends(LARGE), MessageTooLargeForBacklog),
    "rejected": (fail_sends(REJECTED), ServiceBusError),
    "not encodable": (fail_sends(TypeError("invalid")), TypeError),
}
"""Changes during a call, and the errors of the backlog that follow. None of them is about a lost
answer, so that a caller would take it to mean that nothing was sent."""
each_certain_error = pytest.mark.parametrize("name", CERTAIN)


@pytest.mark.rule("S5")
@each_certain_error
def test_error_is_raised_as_it_is_if_nothing_was_sent(
    failed_over: PairingHarness, name: str
) -> None:
    change, kind = CERTAIN[name]
    first = failed_over.choose(QUEUES[0])
    first.on_call = lambda: change(failed_over)

    with pytest.raises(kind) as caught:
        failed_over.send(FIT)

    assert not isinstance(caught.value, SendUnavailable)
    assert failed_over.stored() == []


@pytest.mark.rule("S5", "S9")
@each_certain_error
def test_error_after_some_messages_were_stored_becomes_partly_stored(
    failed_over: PairingHarness, name: str
) -> None:
    change, kind = CERTAIN[name]
    first = failed_over.choose(QUEUES[0])
    first.on_sent = lambda: change(failed_over)

    with pytest.raises(PartlyStored) as caught:
        failed_over.send(FIT)

    assert isinstance(caught.value.backlog_error, kind)
    assert outcomes_of(caught.value) == [STORED] * 2 + [NOT_SENT] * 3
    assert ids(failed_over.stored()) == ["0", "1"]


@pytest.mark.rule("S5", "S11")
@each_certain_error
def test_error_after_a_lost_answer_of_the_primary_becomes_send_unavailable(
    harness: PairingHarness, name: str
) -> None:
    change, kind = CERTAIN[name]
    harness.primary.send_error = DOWN
    harness.primary.loses_answers = True
    harness.choose(QUEUES[0]).on_call = lambda: change(harness)

    with pytest.raises(SendUnavailable) as caught:
        harness.send(FIT)

    assert type(caught.value) is SendUnavailable
    assert isinstance(caught.value.backlog_error, kind)
    assert caught.value.primary_error is DOWN
    assert outcomes_of(caught.value) == [NOT_KNOWN] * 5
    assert "Nothing was sent" not in str(caught.value)


@pytest.mark.rule("S5", "S11")
@each_certain_error
def test_error_after_a_lost_answer_of_a_queue_becomes_send_unavailable(
    failed_over: PairingHarness, name: str
) -> None:
    change, kind = CERTAIN[name]
    lossy = failed_over.choose(QUEUES[0])
    lossy.send_error, lossy.loses_answers = BROKEN, True
    for queue in QUEUES[1:]:
        failed_over.backlog[queue].on_call = lambda: change(failed_over)

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(FIT)

    assert isinstance(caught.value.backlog_error, kind)
    assert outcomes_of(caught.value) == [NOT_KNOWN] * 2 + [NOT_SENT] * 3


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt, SystemExit])
def test_interruption_is_never_replaced_by_outcomes(
    failed_over: PairingHarness, error: type[BaseException]
) -> None:
    first = failed_over.choose(QUEUES[0])
    first.send_error, first.fails_after, first.loses_answers = error(), 1, True

    with pytest.raises(error):
        failed_over.send(FIT)

    assert ids(failed_over.stored()) == ["0", "1"]


@pytest.mark.rule("S5", "S12")
def test_messages_of_a_held_call_that_times_out_are_not_sent() -> None:
    harness = PairingHarness(failback="after-drain", failback_hold=MINUTE / 2)
    harness.hold()
    harness.on_wait = lambda: setattr(harness, "clock", harness.clock + 10)

    with pytest.raises(SendUnavailable, match=r"Nothing was sent.*timed out") as caught:
        harness.send([message("1"), message("2")], timeout=5)

    assert outcomes_of(caught.value) == [NOT_SENT] * 2
    assert [each.message_id for each in caught.value.messages] == ["1", "2"]


def test_failed_cancelling_has_no_messages(failed_over: PairingHarness) -> None:
    with pytest.raises(SendUnavailable) as caught:
        failed_over.cancel(7)

    assert caught.value.messages == ()


# Cancelled calls.

OPERATIONS: dict[str, Callable[[PairingHarness], Operation[Any]]] = {
    "send": lambda harness: operations.send(
        harness.call(), [sized("1", 200 * KB), sized("2", 200 * KB)], None, {}
    ),
    "schedule": lambda harness: operations.schedule(harness.call(), message("1"), WHEN, None, {}),
    "cancel": lambda harness: operations.cancel(harness.call(), 7, None, {}),
    "open_link": lambda harness: operations.open_link(
        harness.call(), lambda sender: sender.__enter__()
    ),
    "create_batch": lambda harness: operations.create_batch(
        harness.call(), lambda sender: sender.create_message_batch()
    ),
}


def is_cancelled(harness: PairingHarness, operation: Operation[Any], after: int) -> bool:
    """Cancel an operation after a number of effects, like a driver does.

    Return False if the operation had already ended.
    """

    def resume(effect: Effect) -> Effect:
        try:
            result = harness.driver._carry_out(effect)
        except Exception as exc:  # noqa: BLE001  the operation handles it
            return operation.throw(exc)
        return operation.send(result)

    try:
        effect = next(operation)
        for _ in range(after):
            effect = resume(effect)
    except (StopIteration, SendUnavailable):
        return False
    try:
        effect = operation.throw(asyncio.CancelledError())
        while True:
            effect = resume(effect)
    except asyncio.CancelledError:
        return True


def cool_down(harness: PairingHarness) -> None:
    harness.fail_over()
    harness.pull_all()
    harness.clock += 60


def break_queues(harness: PairingHarness) -> None:
    harness.fail_over()
    harness.fail_queues()


STATES: list[Callable[[PairingHarness], object]] = [
    lambda harness: None,
    lambda harness: setattr(harness.primary, "open_error", DOWN),
    lambda harness: setattr(harness.primary, "open_error", HIDDEN),
    PairingHarness.fail_over,
    cool_down,
    break_queues,
]
"""Healthy, primary down, primary down with an error of unknown kind, in failover, in failover with
queues whose cool-down is over, and in failover with broken queues."""


@pytest.mark.rule("S4")
@pytest.mark.parametrize("name", OPERATIONS)
def test_primary_is_not_called_if_the_path_failed_over_while_the_call_waited_for_its_turn(
    harness: PairingHarness, name: str
) -> None:
    def fail_over() -> None:
        harness.on_turn = lambda: None
        harness.fail_over()
        harness.effects.clear()

    harness.on_turn = fail_over

    with suppress(SendUnavailable):  # cancelling is not possible in failover
        harness.driver.run(OPERATIONS[name](harness))

    assert harness.status is FAILOVER
    assert "primary" not in harness.called()


@pytest.mark.rule("S12", "S4")
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_cancelled_at_any_effect_releases_everything(name: str) -> None:
    cancelled = 0
    for failback, prepare, after in product(("immediate", "after-drain"), STATES, range(10)):
        harness = PairingHarness(failback=failback)
        prepare(harness)
        cancelled += is_cancelled(harness, OPERATIONS[name](harness), after)

        assert harness.orders.health.in_flight == 0
        assert not harness.links().lock.locked()
        harness.clock += 1000  # the cool-down of every queue is over
        assert harness.all_usable()
    assert cancelled >= 6


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_that_is_never_started_holds_nothing(
    failed_over: PairingHarness, name: str
) -> None:
    OPERATIONS[name](failed_over).close()

    assert failed_over.orders.health.in_flight == 0


@pytest.mark.rule("S4")
def test_call_without_time_left_releases_the_queue(failed_over: PairingHarness) -> None:
    failed_over.pull_all()
    failed_over.clock += 60
    call = failed_over.call(timeout=5)
    failed_over.clock += 5

    with pytest.raises(SendUnavailable):
        failed_over.driver.run(operations.send(call, message("1"), None, {}))

    assert failed_over.all_usable()


@pytest.mark.rule("S4")
@pytest.mark.parametrize("error", [None, BUSY, LARGE, BROKEN])
def test_queues_can_be_claimed_after_any_send(
    failed_over: PairingHarness, error: Exception | None
) -> None:
    failed_over.pull_all()
    for sender in failed_over.backlog.values():
        sender.send_error = error
    failed_over.clock += 60

    try:
        failed_over.send(message("1"))
    except (SendUnavailable, MessageTooLargeForBacklog):
        assert error is not None

    failed_over.clock += 60
    assert failed_over.all_usable()


@pytest.mark.rule("S4")
@pytest.mark.parametrize("size", [None, 10_000 * KB])
def test_queues_can_be_claimed_after_creating_a_batch(
    failed_over: PairingHarness, size: int | None
) -> None:
    failed_over.pull_all()
    failed_over.clock += 60

    try:
        failed_over.create_batch(size)
    except ValueError:
        assert size is not None

    assert failed_over.all_usable()
