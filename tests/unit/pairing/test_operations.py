"""The calls of a paired sender, with fake senders of the SDK: decisions, without I/O."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
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

from pairbus.amqp.sections import Message
from pairbus.errors import (
    CannotCancel,
    MessageTooLargeForBacklog,
    PairingFaulted,
    PartlyStored,
    ReservedProperty,
    SendUnavailable,
    StateError,
)
from pairbus.events import BacklogQueuePulled, Event, PathStatus, StateChanged
from pairbus.options import FailureKind, SendAvailabilityOptions
from pairbus.pairing import operations
from pairbus.pairing.deadlines import DeadlineMonitor
from pairbus.pairing.driver import ThreadDriver
from pairbus.pairing.effects import AcquireLock, CallSdk, Effect, Operation, WaitForChange
from pairbus.pairing.failures import classify_failure
from pairbus.pairing.health import PeekResult
from pairbus.pairing.link_factory import LinkFactory
from pairbus.pairing.payloads import PairedBatch
from pairbus.pairing.sdk import encode, members
from pairbus.pairing.sender import PairedSender
from pairbus.pairing.sender_base import SenderCall, SenderLinks
from pairbus.pairing.state import PairingState
from pairbus.servicebus.application_properties import PATH_ALIAS, SCHEDULE_ALIAS, SESSION_ALIAS

QUEUES = tuple(f"one/x-servicebus-transfer/{index}" for index in range(3))
HEALTHY, SUSPECT = PathStatus.HEALTHY, PathStatus.SUSPECT
FAILOVER, DRAINING = PathStatus.FAILOVER, PathStatus.DRAINING
NOW, SECOND, MINUTE = timedelta(), timedelta(seconds=1), timedelta(minutes=1)
WHEN = datetime(2030, 1, 2, tzinfo=UTC)
WHEN_MS = 1_893_542_400_000
DOWN = ServiceBusConnectionError(message="down")
BROKEN = ServiceBusConnectionError(message="the queue is broken")
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

    _open = _handler = None
    _running = True
    client_identifier = "fake"
    fully_qualified_namespace = "one"

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self._config = SimpleNamespace(use_tls=False)
        self.limit = 256 * KB
        self.opening: BaseException | None = None
        """The error of opening the link, which creating a batch needs too."""
        self.sending: BaseException | None = None
        """The error of a send."""
        self.fails_after: int | None = None
        """The number of sends that succeed before they fail."""
        self.failures: int | None = None
        """The number of sends that fail before they succeed."""
        self.takes_s = 0.0
        self.meanwhile: Callable[[], object] = lambda: None
        """Called at the beginning of each call."""
        self.sent: list[list[bytes]] = []
        """The messages that were accepted, by call."""

    def open_link(self) -> None:
        self.meanwhile()
        self.world.clock += self.takes_s
        if self.opening is not None:
            raise self.opening

    def accept_or_fail(self) -> None:
        self.open_link()
        if self.sending is not None and (
            self.fails_after is None or len(self.sent) >= self.fails_after
        ):
            if self.failures is not None:
                if self.failures == 0:
                    return
                self.failures -= 1
            raise self.sending

    def __enter__(self) -> "FakeSender":
        self.open_link()
        return self

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        self.open_link()
        if max_size_in_bytes is not None and max_size_in_bytes > self.limit:
            raise ValueError(f"Max message size: {max_size_in_bytes} is too large")
        size = self.limit if max_size_in_bytes is None else max_size_in_bytes
        return ServiceBusMessageBatch(max_size_in_bytes=size)

    def send_messages(self, messages: Any, **options: Any) -> None:
        self.accept_or_fail()
        self.world.options.append(options)
        self.sent.append(payloads_of(messages))

    def schedule_messages(self, messages: Any, at: datetime, **options: Any) -> list[int]:
        self.accept_or_fail()
        self.sent.append(payloads_of(messages))
        return list(range(101, 101 + len(self.sent[-1])))

    def cancel_scheduled_messages(self, numbers: Any, **options: Any) -> None:
        self.accept_or_fail()
        self.world.cancelled.append(numbers)

    def close(self) -> None:
        pass


class FakeClient:
    """A client of the SDK with senders of this world."""

    def __init__(self, world: "World", senders: Callable[[str, bool], FakeSender]) -> None:
        self._config = SimpleNamespace(retry_total=3)
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
    """Records calls and waits. A wait calls `World.waiting`."""

    def __init__(self, world: "World") -> None:
        super().__init__()
        self.deadlines = RecordingMonitor(world.effects)
        self._world = world

    def close(self, target: Any) -> None:
        target.close()

    def _carry_out(self, effect: Effect) -> Any:
        if isinstance(effect, WaitForChange):
            self._world.effects.append(effect)
            return self._world.waiting()
        return super()._carry_out(effect)


def payloads_of(messages: Any) -> list[bytes]:
    if isinstance(messages, ServiceBusMessageBatch):
        return members(messages)
    return [encode(one) for one in (messages if isinstance(messages, list) else [messages])]


class World:
    """A pairing whose SDK clients are fakes, paired senders of it, and a clock."""

    def __init__(self, **options: Any) -> None:
        self.clock = 1000.0
        self.events: list[Event] = []
        self.options: list[dict[str, Any]] = []
        self.cancelled: list[Any] = []
        self.effects: list[Effect] = []
        """The calls and waits of the last call."""
        self.waiting: Callable[[], None] = lambda: None
        """Called while a call waits."""
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
        self.ping.sending = DOWN
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

    def links(self, name: object = "me") -> SenderLinks:
        if name not in self._links:
            self._links[name] = SenderLinks(
                self.pairing, self.orders, "orders", self.factory, lambda: self.primary, Lock()
            )
        return self._links[name]

    def sender(self, name: object = "me") -> PairedSender:
        """A paired sender of this name."""
        self.effects.clear()
        if name not in self._senders:
            self._senders[name] = PairedSender(self.links(name), self.driver, None)
        return self._senders[name]

    def call(self, timeout: float = 60) -> SenderCall:
        return SenderCall(self.pairing, self.orders, self.links(), self.clock + timeout)

    def send(self, messages: Any, sender: object = "me", timeout: float | None = None) -> None:
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
        """The batch of the SDK; None if no namespace answered."""
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
        """The senders that the last call used, in order, and its waits."""
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
            self.pairing.pull_queue(queue, BROKEN)

    def all_usable(self) -> bool:
        """Return whether every queue can be claimed; the claims are released."""
        claims = [self.pairing.claim_queue(queue) for queue in QUEUES]
        for claim in claims:
            if claim is not None:
                with claim:
                    pass
        return None not in claims

    def fail_queues(self, error: BaseException = BROKEN, stage: str = "opening") -> None:
        """Let opening the links of all backlog queues fail, or sending."""
        for sender in self.backlog.values():
            setattr(sender, stage, error)

    def choose(self, queue: str, sender: object = "me") -> FakeSender:
        """Let a sender use this backlog queue."""
        self.orders.queue_of_sender[self.links(sender)] = queue
        return self.backlog[queue]

    def fail_over(self) -> None:
        self.primary.opening = DOWN
        self.send(ServiceBusMessage(b"first"), sender="another")
        assert self.status is FAILOVER
        for sender in self.backlog.values():
            sender.sent.clear()
        self.events.clear()

    def hold(self) -> None:
        """Let the primary come back, and begin a hold."""
        self.fail_over()
        self.primary.opening = None
        self.pairing.pinged(self.orders, None)
        self.peek()
        assert self.status is DRAINING

    def peek(self) -> None:
        """Report that the backlog is empty."""
        self.pairing.peeked(
            self.orders, [PeekResult(0)] * 3, idle=self.pairing.is_idle(self.orders)
        )


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def failed_over(world: World) -> World:
    world.fail_over()
    return world


@pytest.fixture
def mine(failed_over: World) -> FakeSender:
    """The backlog queue in which a sender stored the message "1"."""
    failed_over.send(message("1"))
    (queue,) = failed_over.used()
    return failed_over.backlog[queue]


@pytest.fixture
def suspect() -> World:
    """A path whose first send failed, with a failover interval of a minute."""
    world = World(failover_interval=MINUTE)
    world.primary.sending = DOWN
    with pytest.raises(ServiceBusConnectionError):
        world.send(message("1"))
    return world


@pytest.fixture(params=["healthy", "failed over"])
def either(request: pytest.FixtureRequest, world: World) -> World:
    """A healthy path, and one in failover."""
    if request.param == "failed over":
        world.fail_over()
    return world


@pytest.fixture(params=["fails over now", "failed over"])
def down(request: pytest.FixtureRequest, world: World) -> World:
    """A path that fails over with the next call, and one that is in failover."""
    if request.param == "failed over":
        world.fail_over()
    world.primary.opening = DOWN
    return world


def property_of(payload: bytes, name: str) -> Any:
    return Message.parse(payload).read_application_properties().get(name)


def ids(payloads: list[bytes]) -> list[Any]:
    return [Message.parse(one).read_properties().message_id for one in payloads]


def message(body: str, **more: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, message_id=body, **more)


def sized(name: str, size: int) -> ServiceBusMessage:
    return ServiceBusMessage(b"x" * size, message_id=name)


# While the primary is healthy.


@pytest.mark.rule("S1")
def test_healthy_path_sends_only_to_the_primary(world: World) -> None:
    one = message("1")

    world.send(one, timeout=7)

    assert world.called() == ["primary"]
    assert ids(world.primary.sent[0]) == ["1"]
    assert world.options == [{"timeout": 7}]
    assert world.events == []


@pytest.mark.rule("S1")
def test_empty_list_is_passed_to_the_sdk(world: World) -> None:
    world.send([])

    assert world.called() == ["primary"]


@pytest.mark.rule("S2")
@pytest.mark.parametrize("error", [GONE, BUSY, LARGE, TypeError("mine")])
def test_error_that_is_no_outage_is_raised(world: World, error: Exception) -> None:
    world.primary.sending = error

    with pytest.raises(type(error)) as caught:
        world.send(message("1"))

    assert caught.value is error
    assert world.status is HEALTHY
    assert world.stored() == []


# The timer.


@pytest.mark.rule("S3")
def test_without_an_interval_the_failed_call_continues_with_the_backlog(world: World) -> None:
    world.primary.opening = DOWN

    world.send(message("1"))

    assert world.status is FAILOVER
    assert ids(world.stored()) == ["1"]
    assert [type(event) for event in world.events] == [StateChanged]


@pytest.mark.rule("S3")
@pytest.mark.parametrize("interval", [SECOND, MINUTE])
def test_with_an_interval_the_original_error_is_raised(interval: timedelta) -> None:
    world = World(failover_interval=interval)
    world.primary.opening = DOWN

    for _ in range(2):
        with pytest.raises(ServiceBusConnectionError) as caught:
            world.send(message("1"))
        assert caught.value is DOWN

    assert world.status is SUSPECT
    assert world.stored() == []


@pytest.mark.rule("S3")
def test_success_stops_the_timer(suspect: World) -> None:
    suspect.primary.sending = None

    suspect.send(message("2"), sender="you")

    assert suspect.status is HEALTHY


@pytest.mark.rule("S3")
def test_call_goes_to_the_backlog_if_the_path_failed_over_meanwhile() -> None:
    world = World(failover_interval=SECOND)

    def fail_over() -> None:
        world.pairing.send_failed(world.orders, DOWN)
        world.clock += 1
        world.pairing.failover_timer_fired(world.orders)
        world.primary.opening = DOWN

    world.primary.meanwhile = fail_over

    world.send(message("1"))

    assert ids(world.stored()) == ["1"]


# Failures of unknown kind.


@pytest.mark.rule("S2")
def test_unknown_failure_is_probed_before_the_message_is_stored(world: World) -> None:
    world.primary.opening = HIDDEN

    world.send(message("1"))

    assert world.called()[:2] == ["primary", "ping"]
    assert ids(world.stored()) == ["1"]
    assert world.orders.health.cause is HIDDEN


@pytest.mark.rule("S2")
@pytest.mark.parametrize("met", [None, GONE, BUSY])
def test_original_error_is_raised_if_the_primary_answers_the_probe(
    world: World, met: BaseException | None
) -> None:
    world.primary.opening, world.ping.sending = HIDDEN, met

    with pytest.raises(ServiceBusConnectionError) as caught:
        world.send(message("1"))

    assert caught.value is HIDDEN
    assert world.called() == ["primary", "ping"]
    assert world.status is HEALTHY


# In failover.


@pytest.mark.rule("S4")
def test_no_message_is_sent_to_the_primary_in_failover(failed_over: World) -> None:
    failed_over.primary.opening = None
    for number in range(5):
        failed_over.send(message(str(number)), sender=number)
        assert "primary" not in failed_over.called()

    assert failed_over.primary.sent == []
    assert len(failed_over.stored()) == 5


@pytest.mark.rule("S4")
def test_sender_keeps_its_backlog_queue(failed_over: World) -> None:
    for number in range(20):
        failed_over.send(message(str(number)))

    assert len(failed_over.used()) == 1


@pytest.mark.rule("S4")
@pytest.mark.parametrize("stage", ["opening", "sending"])
def test_failed_queue_is_left_by_all_senders(
    failed_over: World, mine: FakeSender, stage: str
) -> None:
    failed_over.choose(mine.name, "you")
    setattr(mine, stage, BROKEN)

    failed_over.send(message("2"))

    assert failed_over.called()[0] == mine.name
    (event,) = failed_over.events
    assert isinstance(event, BacklogQueuePulled)
    assert (event.queue, event.cause) == (mine.name, BROKEN)
    for who in ("you", "me"):
        failed_over.send(message("3"), sender=who)
        assert mine.name not in failed_over.called()


@pytest.mark.rule("S4")
@pytest.mark.parametrize(
    ("stage", "error", "calls"),
    [
        ("opening", GONE, 1),
        ("opening", OperationTimeoutError(message="late"), 1),
        ("opening", ValueError("odd"), 1),
        ("opening", BROKEN, 1),
        ("sending", FULL, 2),  # to create a batch and to send it
        ("sending", GONE, 2),
        ("sending", NO_RIGHTS, 2),
        ("sending", BROKEN, 2),
        ("sending", HIDDEN, 4),  # the link is opened again
    ],
)
def test_queue_is_pulled_after_any_error_and_another_stores_the_message(
    failed_over: World, mine: FakeSender, stage: str, error: Exception, calls: int
) -> None:
    setattr(mine, stage, error)

    failed_over.send(message("2"))

    assert failed_over.called()[:calls] == [mine.name] * calls
    assert mine.name not in failed_over.called()[calls:]
    assert failed_over.pulled() == {mine.name}
    assert sorted(ids(failed_over.stored())) == ["1", "2"]


@pytest.mark.rule("S4")
def test_pulled_queue_is_tried_and_restored_after_its_cool_down(
    failed_over: World, mine: FakeSender
) -> None:
    failed_over.pairing.pull_queue(mine.name, BROKEN)
    failed_over.clock += 60

    failed_over.send(message("2"))

    assert set(failed_over.called()) == {mine.name}
    assert failed_over.pulled() == set()


@pytest.mark.rule("S5")
def test_error_has_both_causes_if_no_queue_accepts_the_message(failed_over: World) -> None:
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
def test_no_queue_is_called_if_all_are_pulled(failed_over: World) -> None:
    failed_over.pull_all()

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("1"))

    assert failed_over.called() == []
    assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, BROKEN)


@pytest.mark.rule("S5")
@pytest.mark.parametrize("stage", ["opening", "sending"])
def test_busy_queue_is_not_pulled_and_the_error_is_raised(
    failed_over: World, mine: FakeSender, stage: str
) -> None:
    setattr(mine, stage, BUSY)

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("2"))

    assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, BUSY)
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert failed_over.pulled() == set()
    assert failed_over.events == []


# Rejected messages, and failures of queues.


@pytest.mark.rule("S4")
@pytest.mark.parametrize("error", [REJECTED, TypeError("cannot be encoded")])
def test_rejected_message_fails_its_own_call_and_nothing_else(
    failed_over: World, mine: FakeSender, error: Exception
) -> None:
    failed_over.fail_queues(error, "sending")

    with pytest.raises(type(error)) as caught:
        failed_over.send(message("2"))

    assert caught.value is error
    assert failed_over.called() == [mine.name] * 2  # to create a batch and to send it
    assert failed_over.pulled() == set()
    assert failed_over.events == []
    assert failed_over.orders.queue_of_sender[failed_over.links()] == mine.name
    for sender in failed_over.backlog.values():
        sender.sending = None
    failed_over.send(message("3"), sender="you")
    assert sorted(ids(failed_over.stored())) == ["1", "3"]


@pytest.mark.rule("S4")
def test_rejected_message_leaves_a_pulled_queue_to_the_next_sender(failed_over: World) -> None:
    failed_over.pull_all()
    failed_over.fail_queues(REJECTED, "sending")
    failed_over.clock += 60
    with pytest.raises(ServiceBusError):
        failed_over.send(message("1"))
    (mine,) = set(failed_over.called())
    failed_over.choose(mine, "you").sending = None

    failed_over.send(message("2"), sender="you")

    assert failed_over.used() == [mine]
    assert failed_over.pulled() == set(QUEUES) - {mine}


@pytest.mark.rule("S4", "S10")
def test_rejected_scheduled_message_pulls_no_queue(failed_over: World) -> None:
    failed_over.fail_queues(REJECTED, "sending")

    with pytest.raises(ServiceBusError) as caught:
        failed_over.schedule(message("1"))

    assert caught.value is REJECTED
    assert failed_over.pulled() == set()


@pytest.mark.rule("S4", "S12")
def test_rejected_message_of_a_session_does_not_pull_the_queue_of_the_session() -> None:
    world = World(failback="after-drain")
    world.fail_over()
    queue = world.pairing.queue_of_session(world.orders, "s")
    world.backlog[queue].sending = REJECTED

    with pytest.raises(ServiceBusError) as caught:
        world.send(of_session("s"))

    assert caught.value is REJECTED
    assert world.pulled() == set()
    world.backlog[queue].sending = None
    world.send(of_session("s"))
    assert ids(world.stored()) == ["s 0"]


@pytest.mark.rule("S4")
def test_lost_link_is_reopened_once(failed_over: World, mine: FakeSender) -> None:
    mine.sending, mine.failures = HIDDEN, 1

    failed_over.send(message("2"))

    assert failed_over.called() == [mine.name] * 4
    assert failed_over.pulled() == set()
    assert ids(failed_over.stored()) == ["1", "2"]


@pytest.mark.rule("S4")
def test_error_of_the_new_link_decides_about_the_queue(
    failed_over: World, mine: FakeSender
) -> None:
    mine.sending = HIDDEN
    calls: list[None] = []

    def fail_when_the_link_is_opened_again() -> None:
        calls.append(None)
        if len(calls) == 3:  # after a batch was created and its send failed
            mine.opening = GONE

    mine.meanwhile = fail_when_the_link_is_opened_again

    failed_over.send(message("2"))

    assert failed_over.called()[:3] == [mine.name] * 3
    assert failed_over.called()[3] != mine.name
    assert failed_over.pulled() == {mine.name}
    (pulled,) = failed_over.events
    assert isinstance(pulled, BacklogQueuePulled)
    assert pulled.cause is GONE


@pytest.mark.rule("S4", "S5")
def test_message_that_breaks_the_link_of_every_queue_pulls_none(failed_over: World) -> None:
    failed_over.fail_queues(HIDDEN, "sending")

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("1"))

    assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, HIDDEN)
    assert set(failed_over.called()) == set(QUEUES)
    assert failed_over.pulled() == set()


# Sizes.


@pytest.mark.rule("S8")
def test_message_too_large_for_the_backlog_pulls_no_queue(failed_over: World) -> None:
    with pytest.raises(MessageTooLargeForBacklog, match="not sent"):
        failed_over.send(sized("large", 256 * KB))

    assert failed_over.stored() == []
    assert failed_over.pulled() == set()
    assert len(failed_over.called()) == 1


@pytest.mark.rule("S8")
def test_size_limit_is_that_of_the_link(failed_over: World) -> None:
    for sender in failed_over.backlog.values():
        sender.limit = 1024 * KB

    failed_over.send(sized("large", 512 * KB))

    assert ids(failed_over.stored()) == ["large"]


@pytest.mark.rule("S8")
def test_queue_that_rejects_a_large_message_is_not_pulled(failed_over: World) -> None:
    failed_over.fail_queues(LARGE, "sending")

    with pytest.raises(MessageTooLargeForBacklog, match="x-servicebus-transfer") as caught:
        failed_over.send(message("1"))

    assert caught.value.__cause__ is LARGE
    assert failed_over.pulled() == set()


@pytest.mark.rule("S8")
def test_check_backlog_size_refuses_large_messages_while_healthy() -> None:
    world = World(check_backlog_size=True)

    with pytest.raises(MessageTooLargeForBacklog):
        world.send([message("1"), sized("large", 256 * KB)])

    assert world.called() == []
    world.send(message("1"))
    assert world.called() == ["primary"]


# Batches.


@pytest.mark.rule("S9")
def test_batch_that_fits_is_stored_as_one_batch(failed_over: World) -> None:
    batch = PairedBatch()
    for number in range(100):
        batch.add_message(message(str(number)))

    failed_over.send(batch)

    (queue,) = failed_over.used()
    (only,) = failed_over.backlog[queue].sent
    assert ids(only) == [str(number) for number in range(100)]
    assert {property_of(one, PATH_ALIAS) for one in only} == {"orders"}


@pytest.mark.rule("S9")
def test_batch_that_does_not_fit_is_split_in_order(failed_over: World) -> None:
    failed_over.send([sized(str(number), 100 * KB) for number in range(5)])

    (queue,) = failed_over.used()
    stored = [ids(call) for call in failed_over.backlog[queue].sent]
    assert stored == [["0", "1"], ["2", "3"], ["4"]]


@pytest.mark.rule("S4", "S5", "S9")
@pytest.mark.parametrize(("error", "pulled"), [(REJECTED, set()), (BROKEN, set(QUEUES))])
def test_failure_of_a_later_batch_names_the_stored_messages(
    failed_over: World, error: Exception, pulled: set[str]
) -> None:
    failed_over.fail_queues(error, "sending")
    failed_over.choose(QUEUES[0]).fails_after = 1

    with pytest.raises(PartlyStored, match="2 of 5") as caught:
        failed_over.send([sized(str(number), 100 * KB) for number in range(5)])

    assert (caught.value.stored, caught.value.not_stored) == ((0, 1), (2, 3, 4))
    assert ids(failed_over.stored()) == ["0", "1"]
    assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, error)
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert caught.value.__cause__.exceptions == (DOWN, error)
    assert failed_over.pulled() == pulled


@pytest.mark.rule("S9")
def test_later_batch_can_go_to_another_queue(failed_over: World) -> None:
    mine = failed_over.choose(QUEUES[0])
    mine.sending, mine.fails_after = BROKEN, 1

    failed_over.send([sized(str(number), 100 * KB) for number in range(5)])

    assert ids(mine.sent[0]) == ["0", "1"]
    assert sorted(ids(failed_over.stored())) == list("01234")


@pytest.mark.rule("S9")
def test_nothing_is_stored_if_one_message_is_too_large(failed_over: World) -> None:
    with pytest.raises(MessageTooLargeForBacklog):
        failed_over.send([message("1"), sized("2", 200 * KB), sized("3", 300 * KB)])

    assert failed_over.stored() == []


@pytest.mark.rule("S9")
def test_partly_stored_has_the_primary_error_of_the_same_call(world: World) -> None:
    world.primary.opening = OperationTimeoutError(message="mine")
    for sender in world.backlog.values():
        sender.sending = BROKEN
        sender.fails_after = 1

    with pytest.raises(PartlyStored) as caught:
        world.send([sized(str(number), 200 * KB) for number in range(5)])

    assert caught.value.primary_error is world.primary.opening
    assert (caught.value.stored, caught.value.not_stored) == ((0, 1, 2), (3, 4))


# Timeouts.


@pytest.mark.rule("S2a")
def test_without_an_interval_the_primary_gets_half_of_the_time(world: World) -> None:
    world.send(message("1"))
    assert world.timeouts() == [30]

    world.send(message("1"), timeout=8)
    assert world.timeouts() == [4]


@pytest.mark.rule("S2a")
def test_with_an_interval_the_primary_gets_all_of_the_time() -> None:
    world = World(failover_interval=SECOND, operation_timeout=20 * SECOND)

    world.send(message("1"))

    assert world.timeouts() == [20]


@pytest.mark.rule("S2a")
@pytest.mark.parametrize(
    ("takes_s", "timeouts"),
    [(10, [30, 25, 40]), (30, [30, 15])],
    ids=["the last gets the rest", "without time left no more are tried"],
)
def test_each_queue_leaves_time_for_the_next(
    failed_over: World, takes_s: float, timeouts: list[float]
) -> None:
    failed_over.fail_queues()
    for sender in failed_over.backlog.values():
        sender.takes_s = takes_s

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("1"), timeout=60)

    assert failed_over.timeouts() == timeouts
    assert len(failed_over.effects) == len(timeouts)
    assert caught.value.backlog_error is BROKEN


@pytest.mark.rule("S2a")
def test_no_effect_gets_more_time_than_the_call_has(world: World) -> None:
    world.primary.opening, world.primary.takes_s = DOWN, 3
    for sender in world.backlog.values():
        sender.takes_s = 0.5

    world.send(message("1"), timeout=8)

    assert world.timeouts() == [4, 2.5, 2.25]


@pytest.mark.rule("S2a")
@pytest.mark.parametrize("timeout", [0, -1])
def test_timeout_must_be_positive_as_in_the_sdk(world: World, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be greater than 0"):
        world.send(message("1"), timeout=timeout)


# Scheduling.


@pytest.mark.rule("S10")
def test_scheduling_returns_the_sequence_numbers_of_the_primary(world: World) -> None:
    assert world.schedule([message("1"), message("2")]) == [101, 102]


@pytest.mark.rule("S10")
def test_scheduling_in_failover_returns_none_and_stores_the_schedule(down: World) -> None:
    assert down.schedule([message("1"), message("2")]) == [None, None]
    assert down.schedule(message("3")) == [None]
    assert down.schedule([]) == []

    assert [property_of(one, SCHEDULE_ALIAS) for one in down.stored()] == [WHEN_MS] * 3


@pytest.mark.rule("S10")
def test_batch_cannot_be_scheduled_as_in_the_sdk(failed_over: World) -> None:
    with pytest.raises(TypeError, match="Received instead: PairedBatch"):
        failed_over.schedule(PairedBatch())


@pytest.mark.rule("S10")
@pytest.mark.parametrize("numbers", [7, [7, 8], (7, 8), iter([7, 8])])
def test_messages_of_the_primary_can_be_cancelled(world: World, numbers: Any) -> None:
    world.cancel(numbers)

    assert world.cancelled in ([[7]], [[7, 8]])


@pytest.mark.rule("S10")
@pytest.mark.parametrize("numbers", [None, [None], [7, None]])
def test_message_in_the_backlog_cannot_be_cancelled(either: World, numbers: Any) -> None:
    with pytest.raises(CannotCancel, match="in the backlog"):
        either.cancel(numbers)

    assert either.called() == []


@pytest.mark.rule("S10")
def test_no_message_can_be_cancelled_in_failover(down: World) -> None:
    with pytest.raises(SendUnavailable, match="in failover") as caught:
        down.cancel([7])

    assert caught.value.primary_error is DOWN
    assert down.cancelled == []


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
    either: World, make: Callable[[Any], Any], key: Any
) -> None:
    for call in (either.send, either.schedule):
        with pytest.raises(ReservedProperty):
            call(make({key: "x"}))
        assert either.called() == []

    assert either.primary.sent == []
    assert either.stored() == []


@pytest.mark.rule("S11")
def test_ambiguous_send_has_the_same_id_in_primary_and_backlog(world: World) -> None:
    sent: list[list[bytes]] = []

    def accepts_and_is_lost(messages: Any, **options: Any) -> None:
        sent.append(payloads_of(messages))
        raise OperationTimeoutError(message="the answer was lost")

    world.primary.send_messages = accepts_and_is_lost  # type: ignore[method-assign]
    nameless = ServiceBusMessage(b"1")
    nameless.message_id = None
    raw = AmqpAnnotatedMessage(data_body=b"2")

    world.send([nameless, raw, {"body": b"3"}])

    assert len(sent) == 1
    assert all(ids(sent[0]))
    assert ids(world.stored()) == ids(sent[0])
    assert nameless.message_id is None
    assert raw.properties is None


@pytest.mark.rule("S11")
def test_each_call_assigns_a_new_id(failed_over: World) -> None:
    raw = AmqpAnnotatedMessage(data_body=b"1")

    failed_over.send(raw)
    failed_over.send(raw)

    first, second = ids(failed_over.stored())
    assert first
    assert second
    assert first != second


def test_messages_of_a_generator_are_stored_after_the_primary_failed(world: World) -> None:
    world.primary.opening = DOWN

    world.send(message(str(number)) for number in range(3))

    assert ids(world.stored()) == ["0", "1", "2"]


@pytest.mark.parametrize("none", [[], PairedBatch()])
def test_empty_call_stores_nothing(failed_over: World, none: Any) -> None:
    failed_over.send(none)

    assert failed_over.called() == []


def test_invalid_message_raises_the_error_of_the_sdk_in_failover(failed_over: World) -> None:
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
    world = World(failover_interval=interval)
    world.primary.opening = error

    world.enter()

    assert world.status is (SUSPECT if interval else FAILOVER)  # it counts as a failed send


@pytest.mark.rule("S1")
def test_entering_in_failover_calls_no_sender(failed_over: World) -> None:
    failed_over.enter()

    assert failed_over.called() == []


@pytest.mark.rule("S1")
@pytest.mark.parametrize("error", [GONE, BUSY, TypeError("mine")])
def test_entering_and_creating_a_batch_raise_errors_that_are_no_outage(
    world: World, error: Exception
) -> None:
    world.primary.opening = error

    for call in (world.enter, world.create_batch):
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error

    assert world.status is HEALTHY


@pytest.mark.rule("S1")
def test_batch_has_the_limit_of_the_primary_or_of_the_backlog(world: World) -> None:
    world.primary.limit = 1024 * KB
    assert world.create_batch().max_size_in_bytes == 1024 * KB
    assert world.create_batch(500).max_size_in_bytes == 500

    world.fail_over()
    assert world.create_batch().max_size_in_bytes == 256 * KB
    assert world.create_batch(500).max_size_in_bytes == 500


@pytest.mark.rule("S1")
@pytest.mark.parametrize("interval", [NOW, MINUTE])
def test_creating_a_batch_returns_none_if_no_namespace_answers(interval: timedelta) -> None:
    world = World(failover_interval=interval)
    world.primary.opening = DOWN
    world.fail_queues()

    assert world.create_batch() is None

    assert world.status is (SUSPECT if interval else FAILOVER)
    world.pull_all()
    assert world.create_batch() is None


@pytest.mark.rule("S1")
@pytest.mark.parametrize(
    ("error", "pulled"), [(BROKEN, 1), (GONE, 1), (OSError("broken"), 1), (BUSY, 0)]
)
def test_queue_that_creates_no_batch_is_pulled_unless_it_is_busy(
    failed_over: World, error: Exception, pulled: int
) -> None:
    failed_over.fail_queues(error)

    assert failed_over.create_batch() is None

    assert len(failed_over.called()) == 1
    assert failed_over.pulled() == set(failed_over.called()[:pulled])


@pytest.mark.rule("S1")
def test_batch_larger_than_the_link_allows_is_refused(either: World) -> None:
    with pytest.raises(ValueError, match="too large"):
        either.create_batch(10_000 * KB)

    assert either.pulled() == set()


@pytest.mark.rule("S3")
def test_only_a_send_stops_the_timer(suspect: World) -> None:
    suspect.create_batch()
    suspect.enter()

    assert suspect.status is SUSPECT


# Order.


@pytest.fixture
def ordered() -> World:
    return World(failback="after-drain", failback_hold=5 * SECOND)


def of_session(session: str, number: int = 0, **more: Any) -> ServiceBusMessage:
    return ServiceBusMessage(b"", session_id=session, message_id=f"{session} {number}", **more)


@pytest.mark.rule("S12")
def test_messages_of_a_session_go_to_its_queue_from_every_sender(ordered: World) -> None:
    ordered.fail_over()
    for number in range(30):
        ordered.send(of_session(f"s{number % 10}", number), sender=number)

    for queue, sender in ordered.backlog.items():
        for (payload,) in sender.sent:
            session = property_of(payload, SESSION_ALIAS)
            assert ordered.pairing.queue_of_session(ordered.orders, session) == queue
    assert len(ordered.used()) == 3


@pytest.mark.rule("S12")
def test_batch_of_many_sessions_is_split_by_queue_in_order(ordered: World) -> None:
    ordered.fail_over()

    ordered.send([of_session(f"s{number % 7}", number) for number in range(70)])

    assert len(ordered.stored()) == 70
    assert all(len(sender.sent) == 1 for sender in ordered.backlog.values())
    for sender in ordered.backlog.values():
        numbers = [int(one.split()[1]) for one in ids(sender.sent[0])]
        assert numbers == sorted(numbers)


@pytest.mark.rule("S12")
def test_session_never_moves_to_another_queue(ordered: World) -> None:
    ordered.fail_over()
    queue = ordered.pairing.queue_of_session(ordered.orders, "s")
    ordered.backlog[queue].sending = BROKEN

    for tried in ([queue, queue], []):  # the second time the queue is pulled
        with pytest.raises(SendUnavailable) as caught:
            ordered.send(of_session("s"))
        assert ordered.called() == tried
        assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, BROKEN)

    assert ordered.stored() == []
    ordered.send(message("without a session"))
    assert ids(ordered.stored()) == ["without a session"]


@pytest.mark.rule("S12", "S9")
def test_error_names_the_messages_whose_session_queue_failed(ordered: World) -> None:
    ordered.fail_over()
    sessions = [f"s{number}" for number in range(8)]
    queues = [ordered.pairing.queue_of_session(ordered.orders, one) for one in sessions]
    lost = queues[-1]
    ordered.backlog[lost].opening = BROKEN

    with pytest.raises(PartlyStored) as caught:
        ordered.send([of_session(one) for one in sessions])

    stored = {sessions.index(one.split()[0]) for one in ids(ordered.stored())}
    assert set(caught.value.stored) == stored
    assert stored.isdisjoint(caught.value.not_stored)
    assert sorted((*caught.value.stored, *caught.value.not_stored)) == list(range(8))
    assert all(queues[place] != lost for place in stored)


@pytest.mark.rule("S12")
def test_held_call_goes_to_the_primary_when_the_backlog_is_empty(ordered: World) -> None:
    ordered.hold()
    ordered.waiting = ordered.peek

    ordered.send(of_session("s"))

    assert ordered.called() == ["wait", "wait", "primary"]
    assert ordered.stored() == []


@pytest.mark.rule("S12")
def test_held_call_goes_to_the_backlog_after_the_hold(ordered: World) -> None:
    ordered.hold()

    def wait() -> None:
        ordered.clock += 2.5

    ordered.waiting = wait
    ordered.send(of_session("s"))

    assert ordered.waits() == [5.0, 2.5]
    assert ids(ordered.stored()) == ["s 0"]


@pytest.mark.rule("S2a")
def test_held_call_times_out_with_its_own_timeout(ordered: World) -> None:
    ordered.hold()

    def wait() -> None:
        ordered.clock += 1

    ordered.waiting = wait
    with pytest.raises(SendUnavailable, match="timed out") as caught:
        ordered.send(of_session("s"), timeout=2)

    assert ordered.waits() == [2.0, 1.0]
    assert caught.value.primary_error is DOWN


@pytest.mark.rule("S14")
def test_held_call_raises_state_error_when_the_pairing_is_closed(ordered: World) -> None:
    ordered.hold()

    def wait() -> None:
        ordered.pairing.primary.set_closed()

    ordered.waiting = wait
    with pytest.raises(StateError, match="closed"):
        ordered.send(of_session("s"))


@pytest.mark.rule("S12")
def test_call_that_joins_a_failover_late_is_not_overtaken(ordered: World) -> None:
    late = operations.send(ordered.call(), of_session("s", 1), None, {})
    next(late)
    assert isinstance(late.send(nullcontext()), CallSdk)  # the primary does not answer
    ordered.hold()
    ordered.peek()

    effect = late.throw(DOWN)  # the message is stored during the second peek
    assert isinstance(effect, AcquireLock)
    ordered.peek()

    assert ordered.status is DRAINING
    assert not ordered.pairing.is_idle(ordered.orders)
    late.close()


# Closed and faulted pairings.


@pytest.mark.rule("S14", "Y7")
@pytest.mark.parametrize("fault", [None, OSError("partner")])
def test_closed_or_faulted_pairing_refuses_every_call(
    world: World, fault: BaseException | None
) -> None:
    world.pairing.primary.set_closed()
    if fault is not None:
        world.pairing.primary.set_fault(fault)
    kind = StateError if fault is None else PairingFaulted

    calls: list[Callable[[], Any]] = [
        lambda: world.send(message("1")),
        lambda: world.schedule(message("1")),
        lambda: world.cancel(7),
        world.enter,
        world.create_batch,
    ]
    for call in calls:
        with pytest.raises(kind):
            call()
    assert world.called() == []


# Cancelled calls.

OPERATIONS: dict[str, Callable[[World], Operation[Any]]] = {
    "send": lambda world: operations.send(
        world.call(), [sized("1", 200 * KB), sized("2", 200 * KB)], None, {}
    ),
    "schedule": lambda world: operations.schedule(world.call(), message("1"), WHEN, None, {}),
    "cancel": lambda world: operations.cancel(world.call(), 7, None, {}),
    "open_link": lambda world: operations.open_link(
        world.call(), lambda sender: sender.__enter__()
    ),
    "create_batch": lambda world: operations.create_batch(
        world.call(), lambda sender: sender.create_message_batch()
    ),
}


def is_cancelled(world: World, operation: Operation[Any], after: int) -> bool:
    """Carry out so many effects, and then cancel the operation as a driver does. Return whether it
    was still in progress."""

    def resume(effect: Effect) -> Effect:
        try:
            result = world.driver._carry_out(effect)
        except Exception as exc:  # noqa: BLE001  the operation decides
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


def cool_down(world: World) -> None:
    world.fail_over()
    world.pull_all()
    world.clock += 60


def break_queues(world: World) -> None:
    world.fail_over()
    world.fail_queues()


STATES: list[Callable[[World], object]] = [
    lambda world: None,
    lambda world: setattr(world.primary, "opening", DOWN),
    lambda world: setattr(world.primary, "opening", HIDDEN),
    World.fail_over,
    cool_down,
    break_queues,
]
"""Healthy, down, down for a hidden reason, in failover, in failover with queues whose cool-down is
over, and in failover with broken queues."""


@pytest.mark.rule("S12", "S4")
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_that_is_cancelled_anywhere_releases_everything(name: str) -> None:
    cancelled = 0
    for failback, reach, after in product(("immediate", "after-drain"), STATES, range(10)):
        world = World(failback=failback)
        reach(world)
        cancelled += is_cancelled(world, OPERATIONS[name](world), after)

        assert world.orders.health.in_flight == 0
        assert not world.links().lock.locked()
        world.clock += 1000  # the cool-down of every queue is over
        assert world.all_usable()
    assert cancelled >= 6


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_that_is_never_started_holds_nothing(failed_over: World, name: str) -> None:
    OPERATIONS[name](failed_over).close()

    assert failed_over.orders.health.in_flight == 0


@pytest.mark.rule("S4")
def test_call_without_time_left_releases_the_queue(failed_over: World) -> None:
    failed_over.pull_all()
    failed_over.clock += 60
    call = failed_over.call(timeout=5)
    failed_over.clock += 5

    with pytest.raises(SendUnavailable):
        failed_over.driver.run(operations.send(call, message("1"), None, {}))

    assert failed_over.all_usable()


@pytest.mark.rule("S4")
@pytest.mark.parametrize("error", [None, BUSY, LARGE, BROKEN])
def test_queues_can_be_claimed_after_any_send(failed_over: World, error: Exception | None) -> None:
    failed_over.pull_all()
    for sender in failed_over.backlog.values():
        sender.sending = error
    failed_over.clock += 60

    try:
        failed_over.send(message("1"))
    except (SendUnavailable, MessageTooLargeForBacklog):
        assert error is not None

    failed_over.clock += 60
    assert failed_over.all_usable()


@pytest.mark.rule("S4")
@pytest.mark.parametrize("size", [None, 10_000 * KB])
def test_queues_can_be_claimed_after_creating_a_batch(failed_over: World, size: int | None) -> None:
    failed_over.pull_all()
    failed_over.clock += 60

    try:
        failed_over.create_batch(size)
    except ValueError:
        assert size is not None

    assert failed_over.all_usable()
