"""What a call does, step by step. Senders of the SDK are played by fakes: here only decisions are
tested, and no I/O."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from random import Random
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
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing import operations
from pairbus.pairing.failures import FailureKind, classify_failure
from pairbus.pairing.health import PeekResult
from pairbus.pairing.operations import OnBacklog, OnPrimary, Operation, Ping, SenderCall, Wait
from pairbus.pairing.sdk import PairedBatch, encode, members
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


class Sender:
    """A sender of the SDK: remembers what it was asked, and fails as it is told."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.limit = 256 * KB
        self.opening: BaseException | None = None
        """What opening the link meets, as for a batch."""
        self.sending: BaseException | None = None
        self.fails_after: int | None = None
        """So many sends succeed first."""
        self.failures: int | None = None
        """So many sends fail, and then no more."""
        self.takes_s = 0.0
        self.sent: list[list[bytes]] = []
        """What was accepted, by call."""

    def _open(self) -> None:
        self.world.clock += self.takes_s
        if self.opening is not None:
            raise self.opening

    def _meet(self) -> None:
        self._open()
        if self.sending is not None and (
            self.fails_after is None or len(self.sent) >= self.fails_after
        ):
            if self.failures is not None:
                if self.failures == 0:
                    return
                self.failures -= 1
            raise self.sending

    def __enter__(self) -> "Sender":
        self._open()
        return self

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        self._open()
        if max_size_in_bytes is not None and max_size_in_bytes > self.limit:
            raise ValueError(f"Max message size: {max_size_in_bytes} is too large")
        wanted = self.limit if max_size_in_bytes is None else max_size_in_bytes
        return ServiceBusMessageBatch(max_size_in_bytes=wanted)

    def send_messages(self, messages: Any, **options: Any) -> None:
        self._meet()
        self.world.options.append(options)
        self.sent.append(payloads_of(messages))

    def schedule_messages(self, messages: Any, at: datetime, **options: Any) -> list[int]:
        self._meet()
        self.sent.append(payloads_of(messages))
        return list(range(101, 101 + len(self.sent[-1])))

    def cancel_scheduled_messages(self, numbers: Any, **options: Any) -> None:
        self._meet()
        self.world.cancelled.append(numbers)


def payloads_of(messages: Any) -> list[bytes]:
    if isinstance(messages, ServiceBusMessageBatch):
        return members(messages)
    return [encode(one) for one in (messages if isinstance(messages, list) else [messages])]


class World:
    """A pairing, a primary and backlog queues that are played, and a clock."""

    def __init__(self, **options: Any) -> None:
        self.clock = 1000.0
        self.events: list[Event] = []
        self.options: list[dict[str, Any]] = []
        self.cancelled: list[Any] = []
        self.effects: list[operations.Effect] = []
        self.ping: BaseException | None = DOWN
        self.waiting: Callable[[], None] = lambda: None
        """What happens while a call waits."""
        given = {"failover_interval": NOW, "ping_jitter": 0.0, **options}
        self.pairing = PairingState(
            SendAvailabilityOptions(**given, on_event=self.events.append),
            primary="one",
            secondary="two",
            queues=QUEUES,
            now=lambda: self.clock,
            random=Random(1),
        )
        self.pairing.classify = lambda error: (
            FailureKind.UNKNOWN if error is HIDDEN else classify_failure(error)
        )
        self.orders = self.pairing.path("orders")
        self.primary = Sender(self, "primary")
        self.backlog = {queue: Sender(self, queue) for queue in QUEUES}

    # Calls.

    def call(self, who: object = "me", timeout: float | None = None) -> SenderCall:
        return SenderCall.of(self.pairing, self.orders, who, timeout)

    def send(self, messages: Any, who: object = "me", timeout: float | None = None) -> None:
        self.drive(operations.send(self.call(who, timeout), messages, timeout, {}))

    def schedule(self, messages: Any) -> list[int | None]:
        return self.drive(operations.schedule(self.call(), messages, WHEN, None, {}))

    def cancel(self, numbers: Any) -> None:
        self.drive(operations.cancel(self.call(), numbers, None, {}))

    def enter(self) -> None:
        self.drive(operations.enter(self.call(), lambda sender: sender.__enter__()))

    def make_batch(self, size: int | None = None) -> Any:
        create = lambda sender: sender.create_message_batch(size)  # noqa: E731
        return self.drive(operations.make_batch(self.call(), create))

    def drive(self, steps: Operation[Any]) -> Any:
        """As the shells do it."""
        self.effects.clear()
        try:
            effect = next(steps)
            while True:
                self.effects.append(effect)
                try:
                    result = self.perform(effect)
                except Exception as exc:  # noqa: BLE001  the flow decides what it means
                    effect = steps.throw(exc)
                else:
                    effect = steps.send(result)
        except StopIteration as done:
            return done.value
        finally:
            steps.close()
            assert self.orders.health.in_flight == 0

    def perform(self, effect: operations.Effect) -> Any:
        match effect:
            case OnPrimary():
                return effect.call(self.primary)
            case OnBacklog():
                return effect.call(self.backlog[effect.queue])
            case Ping():
                return self.ping
            case Wait():
                self.waiting()
                return None

    # What came of it.

    @property
    def state(self) -> PathStatus:
        return self.orders.health.state

    def tried(self) -> list[str]:
        """Who was called, in order."""
        return [
            effect.queue if isinstance(effect, OnBacklog) else type(effect).__name__
            for effect in self.effects
        ]

    def stored(self) -> list[bytes]:
        return [one for sender in self.backlog.values() for call in sender.sent for one in call]

    def used(self) -> list[str]:
        return [queue for queue, sender in self.backlog.items() if sender.sent]

    def out(self) -> set[str]:
        return set(self.pairing.rotation.out())

    def break_all(self, error: BaseException = BROKEN) -> None:
        for sender in self.backlog.values():
            sender.opening = error

    def fail_over(self) -> None:
        self.primary.opening = DOWN
        self.send(ServiceBusMessage(b"first"), who="somebody")
        assert self.state is FAILOVER
        for sender in self.backlog.values():
            sender.sent.clear()
        self.events.clear()

    def hold(self) -> None:
        """The primary is back, and the last of the backlog is waited for."""
        self.fail_over()
        self.primary.opening = None
        self.pairing.pinged(self.orders, None)
        self.look()
        assert self.state is DRAINING

    def look(self) -> None:
        self.pairing.peeked(self.orders, [PeekResult(0)] * 3, quiet=True)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def failed_over(world: World) -> World:
    world.fail_over()
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
def test_a_healthy_path_sends_to_the_primary_and_nowhere_else(world: World) -> None:
    one = message("1")

    world.send(one, timeout=7)

    assert world.tried() == ["OnPrimary"]
    assert ids(world.primary.sent[0]) == ["1"]
    assert world.options == [{"timeout": 7}]
    assert world.events == []


@pytest.mark.rule("S1")
def test_an_empty_list_is_left_to_the_sdk(world: World) -> None:
    world.send([])

    assert world.tried() == ["OnPrimary"]


@pytest.mark.rule("S2")
@pytest.mark.parametrize("error", [GONE, BUSY, LARGE, TypeError("mine")])
def test_what_is_not_the_primarys_fault_goes_to_the_caller(world: World, error: Exception) -> None:
    world.primary.sending = error

    with pytest.raises(type(error)) as caught:
        world.send(message("1"))

    assert caught.value is error
    assert world.state is HEALTHY
    assert world.stored() == []


# The timer.


@pytest.mark.rule("S3")
def test_with_no_interval_the_call_that_failed_goes_on_into_the_backlog(world: World) -> None:
    world.primary.opening = DOWN

    world.send(message("1"))

    assert world.state is FAILOVER
    assert ids(world.stored()) == ["1"]
    assert [type(event) for event in world.events] == [StateChanged]


@pytest.mark.rule("S3")
@pytest.mark.parametrize("interval", [SECOND, MINUTE])
def test_with_an_interval_the_caller_gets_the_original_error(interval: timedelta) -> None:
    world = World(failover_interval=interval)
    world.primary.opening = DOWN

    for _ in range(2):
        with pytest.raises(ServiceBusConnectionError) as caught:
            world.send(message("1"))
        assert caught.value is DOWN

    assert world.state is SUSPECT
    assert world.stored() == []


@pytest.mark.rule("S3")
def test_a_success_cancels_the_timer() -> None:
    world = World(failover_interval=MINUTE)
    world.primary.opening = DOWN
    with pytest.raises(ServiceBusConnectionError):
        world.send(message("1"))
    world.primary.opening = None

    world.send(message("2"), who="you")

    assert world.state is HEALTHY


@pytest.mark.rule("S3")
def test_a_call_during_which_others_failed_over_goes_with_them() -> None:
    world = World(failover_interval=SECOND)
    steps = operations.send(world.call(), message("1"), None, {})
    next(steps)
    world.pairing.failed(world.orders, DOWN)
    world.clock += 1
    world.pairing.engage(world.orders)

    effect = steps.throw(DOWN)

    assert isinstance(effect, OnBacklog)
    steps.close()
    assert world.orders.health.in_flight == 0


# Failures that hide their reason.


@pytest.mark.rule("S2")
def test_a_hidden_failure_is_looked_into_and_then_stored(world: World) -> None:
    world.primary.opening = HIDDEN

    world.send(message("1"))

    assert world.tried()[:2] == ["OnPrimary", "Ping"]
    assert ids(world.stored()) == ["1"]
    assert world.orders.health.cause is HIDDEN


@pytest.mark.rule("S2")
@pytest.mark.parametrize("met", [None, GONE, BUSY])
def test_where_the_primary_answers_the_look_the_caller_gets_the_original_error(
    world: World, met: BaseException | None
) -> None:
    world.primary.opening, world.ping = HIDDEN, met

    with pytest.raises(ServiceBusConnectionError) as caught:
        world.send(message("1"))

    assert caught.value is HIDDEN
    assert world.tried() == ["OnPrimary", "Ping"]
    assert world.state is HEALTHY


# In failover.


@pytest.mark.rule("S4")
def test_in_failover_nothing_is_sent_to_the_primary(failed_over: World) -> None:
    failed_over.primary.opening = None
    for number in range(5):
        failed_over.send(message(str(number)), who=number)
        assert "OnPrimary" not in failed_over.tried()

    assert failed_over.primary.sent == []
    assert len(failed_over.stored()) == 5


@pytest.mark.rule("S4")
def test_a_sender_stays_with_its_queue(failed_over: World) -> None:
    for number in range(20):
        failed_over.send(message(str(number)))

    assert len(failed_over.used()) == 1


@pytest.mark.rule("S4")
@pytest.mark.parametrize("stage", ["opening", "sending"])
def test_a_sender_whose_queue_fails_moves_to_another_and_others_learn_of_it(
    failed_over: World, stage: str
) -> None:
    failed_over.send(message("1"))
    (mine,) = failed_over.used()
    failed_over.orders.chosen["you"] = mine
    setattr(failed_over.backlog[mine], stage, BROKEN)

    failed_over.send(message("2"))

    assert failed_over.tried()[0] == mine
    assert failed_over.out() == {mine}
    assert sorted(ids(failed_over.stored())) == ["1", "2"]
    (event,) = failed_over.events
    assert isinstance(event, BacklogQueuePulled)
    assert (event.queue, event.cause) == (mine, BROKEN)
    for who in ("you", "me"):
        failed_over.send(message("3"), who=who)
        assert mine not in failed_over.tried()


@pytest.mark.rule("S4")
@pytest.mark.parametrize("error", [GONE, OperationTimeoutError(message="late"), ValueError("odd")])
def test_a_queue_is_pulled_whatever_it_fails_with(failed_over: World, error: Exception) -> None:
    failed_over.send(message("1"))
    (mine,) = failed_over.used()
    failed_over.backlog[mine].opening = error

    failed_over.send(message("2"))

    assert failed_over.out() == {mine}


@pytest.mark.rule("S4")
def test_a_pulled_queue_is_tried_after_its_cool_down_and_is_in_again(failed_over: World) -> None:
    failed_over.send(message("1"))
    (mine,) = failed_over.used()
    failed_over.pairing.queue_failed(mine, BROKEN)
    failed_over.clock += 60

    failed_over.send(message("2"))

    assert set(failed_over.tried()) == {mine}
    assert failed_over.out() == set()


@pytest.mark.rule("S5")
def test_when_no_queue_takes_it_the_caller_gets_both_causes(failed_over: World) -> None:
    failed_over.break_all()

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("1"))

    error = caught.value
    assert type(error) is SendUnavailable
    assert (error.primary_error, error.backlog_error) == (DOWN, BROKEN)
    assert isinstance(error.__cause__, ExceptionGroup)
    assert error.__cause__.exceptions == (DOWN, BROKEN)
    assert sorted(failed_over.tried()) == sorted(QUEUES)  # each once
    assert failed_over.out() == set(QUEUES)
    assert failed_over.stored() == []


@pytest.mark.rule("S5")
def test_when_all_queues_are_out_nobody_is_called(failed_over: World) -> None:
    for queue in QUEUES:
        failed_over.pairing.queue_failed(queue, BROKEN)

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("1"))

    assert failed_over.tried() == []
    assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, BROKEN)


@pytest.mark.rule("S5")
@pytest.mark.parametrize("stage", ["opening", "sending"])
def test_a_queue_that_throttles_is_not_pulled_and_the_caller_learns(
    failed_over: World, stage: str
) -> None:
    failed_over.send(message("1"))
    (mine,) = failed_over.used()
    setattr(failed_over.backlog[mine], stage, BUSY)

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("2"))

    assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, BUSY)
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert failed_over.out() == set()
    assert failed_over.events == []


# A message that the backlog rejects, and what is wrong with a queue.


@pytest.mark.rule("S4")
@pytest.mark.parametrize("error", [REJECTED, TypeError("cannot be encoded")])
def test_rejected_message_fails_its_own_call_and_nothing_else(
    failed_over: World, error: Exception
) -> None:
    failed_over.send(message("1"))
    (mine,) = failed_over.used()
    for sender in failed_over.backlog.values():
        sender.sending = error

    with pytest.raises(type(error)) as caught:
        failed_over.send(message("2"))

    assert caught.value is error
    assert failed_over.tried() == [mine, mine]  # to make a batch and to send it
    assert failed_over.out() == set()
    assert failed_over.events == []
    assert failed_over.orders.chosen["me"] == mine
    for sender in failed_over.backlog.values():
        sender.sending = None
    failed_over.send(message("3"), who="you")
    assert sorted(ids(failed_over.stored())) == ["1", "3"]


@pytest.mark.rule("S4")
def test_rejected_message_leaves_a_queue_that_was_out_to_the_next_sender(
    failed_over: World,
) -> None:
    for queue in QUEUES:
        failed_over.pairing.queue_failed(queue, BROKEN)
        failed_over.backlog[queue].sending = REJECTED
    failed_over.clock += 60
    with pytest.raises(ServiceBusError):
        failed_over.send(message("1"))
    (mine,) = set(failed_over.tried())
    failed_over.backlog[mine].sending = None
    failed_over.orders.chosen["you"] = mine

    failed_over.send(message("2"), who="you")

    assert failed_over.used() == [mine]
    assert failed_over.out() == set(QUEUES) - {mine}


@pytest.mark.rule("S4", "S9")
def test_rejection_of_a_later_part_says_which_messages_were_stored(failed_over: World) -> None:
    for sender in failed_over.backlog.values():
        sender.sending = REJECTED
        sender.fails_after = 1

    with pytest.raises(PartlyStored) as caught:
        failed_over.send([sized(str(number), 100 * KB) for number in range(5)])

    assert (caught.value.stored, caught.value.not_stored) == ((0, 1), (2, 3, 4))
    assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, REJECTED)
    assert ids(failed_over.stored()) == ["0", "1"]
    assert failed_over.out() == set()


@pytest.mark.rule("S4", "S10")
def test_message_that_is_rejected_when_it_is_scheduled_pulls_nothing(failed_over: World) -> None:
    for sender in failed_over.backlog.values():
        sender.sending = REJECTED

    with pytest.raises(ServiceBusError) as caught:
        failed_over.schedule(message("1"))

    assert caught.value is REJECTED
    assert failed_over.out() == set()


@pytest.mark.rule("S4")
@pytest.mark.parametrize("error", [FULL, GONE, NO_RIGHTS])
def test_queue_that_cannot_take_any_message_is_pulled_and_another_is_tried(
    failed_over: World, error: Exception
) -> None:
    failed_over.send(message("1"))
    (mine,) = failed_over.used()
    failed_over.backlog[mine].sending = error

    failed_over.send(message("2"))

    assert failed_over.out() == {mine}
    assert sorted(ids(failed_over.stored())) == ["1", "2"]


@pytest.mark.rule("S4", "S12")
def test_rejected_message_of_a_session_does_not_pull_the_queue_of_the_session() -> None:
    world = World(failback="after-drain")
    world.fail_over()
    queue = world.pairing.queue_of_session(world.orders, "s")
    world.backlog[queue].sending = REJECTED

    with pytest.raises(ServiceBusError) as caught:
        world.send(of_session("s"))

    assert caught.value is REJECTED
    assert world.out() == set()
    world.backlog[queue].sending = None
    world.send(of_session("s"))
    assert ids(world.stored()) == ["s 0"]


@pytest.mark.rule("S4")
def test_lost_link_to_a_queue_is_opened_again_once(failed_over: World) -> None:
    failed_over.send(message("1"))
    (mine,) = failed_over.used()
    failed_over.backlog[mine].sending = HIDDEN
    failed_over.backlog[mine].failures = 1

    failed_over.send(message("2"))

    assert failed_over.tried() == [mine] * 4
    assert failed_over.out() == set()
    assert ids(failed_over.stored()) == ["1", "2"]


@pytest.mark.rule("S4")
def test_what_the_new_link_meets_decides_about_the_queue(failed_over: World) -> None:
    failed_over.send(message("1"))
    (mine,) = failed_over.used()
    sender = failed_over.backlog[mine]
    steps = operations.send(failed_over.call(), message("2"), None, {})
    failed_over.perform(next(steps))
    steps.send(sender.create_message_batch())
    again = steps.throw(HIDDEN)
    assert isinstance(again, OnBacklog)
    assert again.queue == mine

    other = steps.throw(GONE)

    assert isinstance(other, OnBacklog)
    assert other.queue != mine
    steps.close()
    assert failed_over.out() == {mine}
    (pulled,) = failed_over.events
    assert isinstance(pulled, BacklogQueuePulled)
    assert pulled.cause is GONE


@pytest.mark.rule("S4")
def test_queue_that_loses_every_link_is_pulled_once_another_takes_the_message(
    failed_over: World,
) -> None:
    failed_over.send(message("1"))
    (mine,) = failed_over.used()
    failed_over.backlog[mine].sending = HIDDEN

    failed_over.send(message("2"))

    assert failed_over.tried()[:4] == [mine] * 4
    assert failed_over.out() == {mine}
    assert sorted(ids(failed_over.stored())) == ["1", "2"]


@pytest.mark.rule("S4", "S5")
def test_message_that_costs_every_queue_its_link_pulls_none(failed_over: World) -> None:
    for sender in failed_over.backlog.values():
        sender.sending = HIDDEN

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("1"))

    assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, HIDDEN)
    assert set(failed_over.tried()) == set(QUEUES)
    assert failed_over.out() == set()


# Sizes.


@pytest.mark.rule("S8")
def test_a_message_too_large_for_the_backlog_is_refused_and_pulls_nothing(
    failed_over: World,
) -> None:
    with pytest.raises(MessageTooLargeForBacklog, match="not sent"):
        failed_over.send(sized("large", 256 * KB))

    assert failed_over.stored() == []
    assert failed_over.out() == set()
    assert len(failed_over.tried()) == 1


@pytest.mark.rule("S8")
def test_the_limit_is_what_the_link_reports(failed_over: World) -> None:
    for sender in failed_over.backlog.values():
        sender.limit = 1024 * KB

    failed_over.send(sized("large", 512 * KB))

    assert ids(failed_over.stored()) == ["large"]


@pytest.mark.rule("S8")
def test_a_queue_that_says_too_large_is_not_pulled(failed_over: World) -> None:
    for sender in failed_over.backlog.values():
        sender.sending = LARGE

    with pytest.raises(MessageTooLargeForBacklog, match="x-servicebus-transfer") as caught:
        failed_over.send(message("1"))

    assert caught.value.__cause__ is LARGE
    assert failed_over.out() == set()


@pytest.mark.rule("S8")
def test_on_request_what_would_not_fit_is_refused_while_healthy() -> None:
    world = World(check_backlog_size=True)

    with pytest.raises(MessageTooLargeForBacklog):
        world.send([message("1"), sized("large", 256 * KB)])

    assert world.tried() == []
    world.send(message("1"))
    assert world.tried() == ["OnPrimary"]


# Batches.


@pytest.mark.rule("S9")
def test_a_batch_that_fits_arrives_whole(failed_over: World) -> None:
    batch = PairedBatch()
    for number in range(100):
        batch.add_message(message(str(number)))

    failed_over.send(batch)

    (queue,) = failed_over.used()
    (only,) = failed_over.backlog[queue].sent
    assert ids(only) == [str(number) for number in range(100)]
    assert {property_of(one, PATH_ALIAS) for one in only} == {"orders"}


@pytest.mark.rule("S9")
def test_a_batch_that_does_not_fit_is_split_in_order(failed_over: World) -> None:
    failed_over.send([sized(str(number), 100 * KB) for number in range(5)])

    (queue,) = failed_over.used()
    assert [ids(call) for call in failed_over.backlog[queue].sent] == [
        ["0", "1"],
        ["2", "3"],
        ["4"],
    ]


@pytest.mark.rule("S9", "S5")
def test_when_a_later_part_fails_the_error_says_which_were_stored(failed_over: World) -> None:
    for sender in failed_over.backlog.values():
        sender.sending = BROKEN
    mine = failed_over.pairing.claim(failed_over.orders, "me", ())
    assert mine is not None
    failed_over.backlog[mine].fails_after = 1

    with pytest.raises(PartlyStored) as caught:
        failed_over.send([sized(str(number), 100 * KB) for number in range(5)])

    error = caught.value
    assert (error.stored, error.not_stored) == ((0, 1), (2, 3, 4))
    assert ids(failed_over.stored()) == ["0", "1"]
    assert (error.primary_error, error.backlog_error) == (DOWN, BROKEN)
    assert isinstance(error.__cause__, ExceptionGroup)
    assert error.__cause__.exceptions == (DOWN, BROKEN)
    assert "2 of 5" in str(error)


@pytest.mark.rule("S9")
def test_when_a_later_part_fails_it_can_go_to_another_queue(failed_over: World) -> None:
    mine = failed_over.pairing.claim(failed_over.orders, "me", ())
    assert mine is not None
    failed_over.backlog[mine].sending = BROKEN
    failed_over.backlog[mine].fails_after = 1

    failed_over.send([sized(str(number), 100 * KB) for number in range(5)])

    assert ids(failed_over.backlog[mine].sent[0]) == ["0", "1"]
    assert sorted(ids(failed_over.stored())) == list("01234")


@pytest.mark.rule("S9")
def test_when_one_of_a_batch_is_too_large_nothing_is_stored(failed_over: World) -> None:
    with pytest.raises(MessageTooLargeForBacklog):
        failed_over.send([message("1"), sized("2", 200 * KB), sized("3", 300 * KB)])

    assert failed_over.stored() == []


@pytest.mark.rule("S9")
def test_the_part_that_failed_in_this_very_call_names_its_own_cause(world: World) -> None:
    world.primary.opening = OperationTimeoutError(message="mine")
    for sender in world.backlog.values():
        sender.sending = BROKEN
        sender.fails_after = 1

    with pytest.raises(PartlyStored) as caught:
        world.send([sized(str(number), 200 * KB) for number in range(5)])

    assert caught.value.primary_error is world.primary.opening
    assert (caught.value.stored, caught.value.not_stored) == ((0, 1, 2), (3, 4))


# Budgets.


@pytest.mark.rule("S2a")
def test_with_no_interval_the_primary_gets_half_of_the_time(world: World) -> None:
    world.send(message("1"))
    (effect,) = world.effects
    assert isinstance(effect, OnPrimary)
    assert effect.budget_s == 30

    world.send(message("1"), timeout=8)
    (effect,) = world.effects
    assert isinstance(effect, OnPrimary)
    assert effect.budget_s == 4


@pytest.mark.rule("S2a")
def test_with_an_interval_it_gets_all_of_it() -> None:
    world = World(failover_interval=SECOND, operation_timeout=20 * SECOND)

    world.send(message("1"))

    (effect,) = world.effects
    assert isinstance(effect, OnPrimary)
    assert effect.budget_s == 20


@pytest.mark.rule("S2a")
def test_each_backlog_queue_leaves_time_for_the_next_and_the_last_has_the_rest(
    failed_over: World,
) -> None:
    failed_over.break_all()
    for sender in failed_over.backlog.values():
        sender.takes_s = 10

    with pytest.raises(SendUnavailable):
        failed_over.send(message("1"), timeout=60)

    budgets = [effect.budget_s for effect in failed_over.effects if isinstance(effect, OnBacklog)]
    assert budgets == [30, 25, 40]


@pytest.mark.rule("S2a")
def test_a_call_whose_time_is_over_tries_no_more_queues(failed_over: World) -> None:
    failed_over.break_all()
    for sender in failed_over.backlog.values():
        sender.takes_s = 30

    with pytest.raises(SendUnavailable) as caught:
        failed_over.send(message("1"), timeout=60)

    assert len(failed_over.effects) == 2
    assert caught.value.backlog_error is BROKEN


@pytest.mark.rule("S2a")
def test_no_effect_is_given_more_time_than_the_call_has(world: World) -> None:
    world.primary.opening, world.primary.takes_s = DOWN, 3
    for sender in world.backlog.values():
        sender.takes_s = 0.5

    world.send(message("1"), timeout=8)

    assert [
        effect.budget_s for effect in world.effects if isinstance(effect, OnPrimary | OnBacklog)
    ] == [4, 2.5, 2.25]


@pytest.mark.rule("S2a")
@pytest.mark.parametrize("timeout", [0, -1])
def test_a_timeout_is_positive_as_in_the_sdk(world: World, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be greater than 0"):
        world.call(timeout=timeout)


# Scheduling.


@pytest.mark.rule("S10")
def test_a_healthy_path_gives_the_numbers_of_the_primary(world: World) -> None:
    assert world.schedule([message("1"), message("2")]) == [101, 102]


@pytest.mark.rule("S10")
@pytest.mark.parametrize("healthy_first", [True, False])
def test_in_failover_there_is_none_for_each_message_and_the_schedule_rides_along(
    world: World, healthy_first: bool
) -> None:
    if healthy_first:
        world.primary.opening = DOWN
    else:
        world.fail_over()

    assert world.schedule([message("1"), message("2")]) == [None, None]
    assert world.schedule(message("3")) == [None]
    assert world.schedule([]) == []

    assert [property_of(one, SCHEDULE_ALIAS) for one in world.stored()] == [WHEN_MS] * 3


@pytest.mark.rule("S10")
def test_a_batch_cannot_be_scheduled_as_in_the_sdk(failed_over: World) -> None:
    with pytest.raises(TypeError, match="Received instead: PairedBatch"):
        failed_over.schedule(PairedBatch())


@pytest.mark.rule("S10")
@pytest.mark.parametrize("numbers", [7, [7, 8], (7, 8), iter([7, 8])])
def test_the_primarys_numbers_can_be_cancelled(world: World, numbers: Any) -> None:
    world.cancel(numbers)

    assert world.cancelled in ([[7]], [[7, 8]])


@pytest.mark.rule("S10")
@pytest.mark.parametrize("numbers", [None, [None], [7, None]])
@pytest.mark.parametrize("healthy", [True, False])
def test_one_that_went_to_the_backlog_cannot_and_the_error_says_why(
    world: World, numbers: Any, healthy: bool
) -> None:
    if not healthy:
        world.fail_over()

    with pytest.raises(CannotCancel, match="in the backlog"):
        world.cancel(numbers)

    assert world.effects == []


@pytest.mark.rule("S10")
@pytest.mark.parametrize("healthy_first", [True, False])
def test_in_failover_nothing_can_be_cancelled(world: World, healthy_first: bool) -> None:
    if healthy_first:
        world.primary.opening = DOWN
    else:
        world.fail_over()

    with pytest.raises(SendUnavailable, match="in failover") as caught:
        world.cancel([7])

    assert caught.value.primary_error is DOWN
    assert world.cancelled == []


# Reserved names, ids and the caller's objects.


@pytest.mark.rule("S7")
@pytest.mark.parametrize("healthy", [True, False])
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
def test_a_reserved_name_is_refused_healthy_or_not(
    world: World, make: Callable[[Any], Any], key: Any, healthy: bool
) -> None:
    if not healthy:
        world.fail_over()

    with pytest.raises(ReservedProperty):
        world.send(make({key: "x"}))
    with pytest.raises(ReservedProperty):
        world.schedule(make({key: "x"}))

    assert world.effects == []
    assert world.primary.sent == []
    assert world.stored() == []


@pytest.mark.rule("S11")
def test_an_ambiguous_send_has_one_id_in_both_places(world: World) -> None:
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
def test_each_call_gives_an_id_of_its_own(failed_over: World) -> None:
    raw = AmqpAnnotatedMessage(data_body=b"1")

    failed_over.send(raw)
    failed_over.send(raw)

    first, second = ids(failed_over.stored())
    assert first
    assert second
    assert first != second


def test_a_generator_reaches_the_backlog_after_the_primary_failed(world: World) -> None:
    world.primary.opening = DOWN

    world.send(message(str(number)) for number in range(3))

    assert ids(world.stored()) == ["0", "1", "2"]


@pytest.mark.parametrize("none", [[], PairedBatch()])
def test_nothing_to_send_is_nothing_to_store(failed_over: World, none: Any) -> None:
    failed_over.send(none)

    assert failed_over.effects == []


def test_what_is_no_message_is_the_callers_error_in_failover_too(failed_over: World) -> None:
    with pytest.raises(TypeError, match="Received instead: int"):
        failed_over.send(7)

    assert failed_over.out() == set()


# Entering, and making a batch.


@pytest.mark.rule("S1")
@pytest.mark.parametrize("interval", [NOW, MINUTE])
@pytest.mark.parametrize("error", [DOWN, HIDDEN, OperationTimeoutError(message="late")])
def test_entering_does_not_fail_because_the_primary_is_down(
    interval: timedelta, error: Exception
) -> None:
    world = World(failover_interval=interval)
    world.primary.opening = error

    world.enter()

    assert world.state is (SUSPECT if interval else FAILOVER)  # it counts as a send does


@pytest.mark.rule("S1")
def test_entering_in_failover_calls_nobody(failed_over: World) -> None:
    failed_over.enter()

    assert failed_over.effects == []


@pytest.mark.rule("S1")
@pytest.mark.parametrize("error", [GONE, BUSY, TypeError("mine")])
def test_entering_and_making_a_batch_raise_what_is_not_the_primarys_fault(
    world: World, error: Exception
) -> None:
    world.primary.opening = error

    for call in (world.enter, world.make_batch):
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error

    assert world.state is HEALTHY


@pytest.mark.rule("S1")
def test_a_batch_has_the_limit_of_the_primary_or_of_the_backlog(world: World) -> None:
    world.primary.limit = 1024 * KB
    assert world.make_batch().max_size_in_bytes == 1024 * KB
    assert world.make_batch(500).max_size_in_bytes == 500

    world.fail_over()
    assert world.make_batch().max_size_in_bytes == 256 * KB
    assert world.make_batch(500).max_size_in_bytes == 500


@pytest.mark.rule("S1")
@pytest.mark.parametrize("interval", [NOW, MINUTE])
def test_where_neither_answers_there_is_no_batch_and_no_error(interval: timedelta) -> None:
    world = World(failover_interval=interval)
    world.primary.opening = DOWN
    world.break_all()

    assert world.make_batch() is None

    assert world.state is (SUSPECT if interval else FAILOVER)
    for queue in QUEUES:
        world.pairing.queue_failed(queue, BROKEN)
    assert world.make_batch() is None


@pytest.mark.rule("S1")
@pytest.mark.parametrize("error", [BROKEN, GONE, OSError("broken")])
def test_a_queue_that_makes_no_batch_is_pulled_as_if_a_send_had_failed(
    failed_over: World, error: Exception
) -> None:
    failed_over.break_all(error)

    assert failed_over.make_batch() is None

    assert failed_over.out() == set(failed_over.tried())
    assert len(failed_over.out()) == 1


@pytest.mark.rule("S1")
def test_a_queue_that_throttles_a_batch_is_not_pulled(failed_over: World) -> None:
    failed_over.break_all(BUSY)

    assert failed_over.make_batch() is None
    assert failed_over.out() == set()


@pytest.mark.rule("S1")
@pytest.mark.parametrize("healthy", [True, False])
def test_a_batch_larger_than_the_link_allows_is_the_callers_error(
    world: World, healthy: bool
) -> None:
    if not healthy:
        world.fail_over()

    with pytest.raises(ValueError, match="too large"):
        world.make_batch(10_000 * KB)

    assert world.out() == set()


@pytest.mark.rule("S3")
def test_only_a_send_cancels_the_timer() -> None:
    world = World(failover_interval=MINUTE)
    world.primary.sending = DOWN
    with pytest.raises(ServiceBusConnectionError):
        world.send(message("1"))

    world.make_batch()
    world.enter()

    assert world.state is SUSPECT


# Order.


@pytest.fixture
def ordered() -> World:
    return World(failback="after-drain", failback_hold=5 * SECOND)


def of_session(session: str, number: int = 0, **more: Any) -> ServiceBusMessage:
    return ServiceBusMessage(b"", session_id=session, message_id=f"{session} {number}", **more)


@pytest.mark.rule("S12")
def test_the_messages_of_a_session_go_to_its_queue_whoever_sends(ordered: World) -> None:
    ordered.fail_over()
    for number in range(30):
        ordered.send(of_session(f"s{number % 10}", number), who=number)

    for queue, sender in ordered.backlog.items():
        for (payload,) in sender.sent:
            session = property_of(payload, SESSION_ALIAS)
            assert ordered.pairing.queue_of_session(ordered.orders, session) == queue
    assert len(ordered.used()) == 3


@pytest.mark.rule("S12")
def test_a_batch_of_many_sessions_is_shared_out_each_in_order(ordered: World) -> None:
    ordered.fail_over()

    ordered.send([of_session(f"s{number % 7}", number) for number in range(70)])

    assert len(ordered.stored()) == 70
    assert all(len(sender.sent) == 1 for sender in ordered.backlog.values())
    for sender in ordered.backlog.values():
        numbers = [int(one.split()[1]) for one in ids(sender.sent[0])]
        assert numbers == sorted(numbers)


@pytest.mark.rule("S12")
def test_a_session_whose_queue_fails_never_moves_to_another(ordered: World) -> None:
    ordered.fail_over()
    queue = ordered.pairing.queue_of_session(ordered.orders, "s")
    ordered.backlog[queue].sending = BROKEN

    for tried in ([queue, queue], []):  # and then it is out
        with pytest.raises(SendUnavailable) as caught:
            ordered.send(of_session("s"))
        assert ordered.tried() == tried
        assert (caught.value.primary_error, caught.value.backlog_error) == (DOWN, BROKEN)

    assert ordered.stored() == []
    ordered.send(message("without a session"))
    assert ids(ordered.stored()) == ["without a session"]


@pytest.mark.rule("S12", "S9")
def test_where_the_queue_of_some_sessions_is_out_the_error_says_which(ordered: World) -> None:
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
def test_in_a_hold_a_call_waits_and_goes_to_the_primary_when_the_backlog_is_empty(
    ordered: World,
) -> None:
    ordered.hold()
    ordered.waiting = ordered.look

    ordered.send(of_session("s"))

    assert ordered.tried() == ["Wait", "Wait", "OnPrimary"]
    assert ordered.stored() == []


@pytest.mark.rule("S12")
def test_a_hold_in_vain_ends_and_the_call_goes_to_the_backlog(ordered: World) -> None:
    ordered.hold()

    def wait() -> None:
        ordered.clock += 2.5

    ordered.waiting = wait
    ordered.send(of_session("s"))

    waits = [effect.seconds for effect in ordered.effects if isinstance(effect, Wait)]
    assert waits == [5.0, 2.5]
    assert ids(ordered.stored()) == ["s 0"]


@pytest.mark.rule("S2a")
def test_a_hold_is_not_waited_for_beyond_the_time_of_the_call(ordered: World) -> None:
    ordered.hold()

    def wait() -> None:
        ordered.clock += 1

    ordered.waiting = wait
    with pytest.raises(SendUnavailable, match="time of this call is over") as caught:
        ordered.send(of_session("s"), timeout=2)

    waits = [effect.seconds for effect in ordered.effects if isinstance(effect, Wait)]
    assert waits == [2.0, 1.0]
    assert caught.value.primary_error is DOWN


@pytest.mark.rule("S14")
def test_a_call_that_waits_when_the_pairing_is_closed_says_so(ordered: World) -> None:
    ordered.hold()

    def wait() -> None:
        ordered.pairing.primary.closed = True

    ordered.waiting = wait
    with pytest.raises(StateError, match="closed"):
        ordered.send(of_session("s"))


@pytest.mark.rule("S12")
def test_a_call_that_joins_late_is_not_overtaken(ordered: World) -> None:
    late = operations.send(ordered.call("late"), of_session("s", 1), None, {})
    next(late)  # to the primary, which does not answer
    ordered.hold()
    ordered.look()

    effect = late.throw(DOWN)  # stored in the middle of the second look
    assert isinstance(effect, OnBacklog)
    ordered.look()

    assert ordered.state is DRAINING
    assert not ordered.pairing.quiet(ordered.orders)
    late.close()


# A pairing that is no more.


@pytest.mark.rule("S14", "Y7")
@pytest.mark.parametrize("fault", [None, OSError("partner")])
def test_no_call_gets_through_a_pairing_that_is_closed_or_given_up(
    world: World, fault: BaseException | None
) -> None:
    world.pairing.primary.closed, world.pairing.primary.fault = True, fault
    kind = StateError if fault is None else PairingFaulted

    calls: list[Callable[[], Any]] = [
        lambda: world.send(message("1")),
        lambda: world.schedule(message("1")),
        lambda: world.cancel(7),
        world.enter,
        world.make_batch,
    ]
    for call in calls:
        with pytest.raises(kind):
            call()
    assert world.effects == []


# Calls that are cancelled.

FLOWS: dict[str, Callable[[World], Operation[Any]]] = {
    "send": lambda world: operations.send(
        world.call(), [sized("1", 200 * KB), sized("2", 200 * KB)], None, {}
    ),
    "schedule": lambda world: operations.schedule(world.call(), message("1"), WHEN, None, {}),
    "cancel": lambda world: operations.cancel(world.call(), 7, None, {}),
    "enter": lambda world: operations.enter(world.call(), lambda sender: sender.__enter__()),
    "make_batch": lambda world: operations.make_batch(
        world.call(), lambda sender: sender.create_message_batch()
    ),
}


def stops(world: World, steps: Operation[Any], after: int) -> bool:
    """Carry out so many effects, then close the flow. Whether it was still under way."""
    try:
        effect = next(steps)
        for _ in range(after):
            try:
                result = world.perform(effect)
            except Exception as exc:  # noqa: BLE001  the flow decides what it means
                effect = steps.throw(exc)
            else:
                effect = steps.send(result)
    except (StopIteration, SendUnavailable):
        return False
    steps.close()
    return True


def worlds() -> Iterator[World]:
    """Healthy, down with no interval, hidden, in failover, with a queue to be tried, and broken."""
    for after_drain in ("immediate", "after-drain"):
        yield World(failback=after_drain)
        down = World(failback=after_drain)
        down.primary.opening = DOWN
        yield down
        hidden = World(failback=after_drain)
        hidden.primary.opening = HIDDEN
        yield hidden
        over = World(failback=after_drain)
        over.fail_over()
        yield over
        cooled = World(failback=after_drain)
        cooled.fail_over()
        for queue in QUEUES:
            cooled.pairing.queue_failed(queue, BROKEN)
        cooled.clock += 60
        yield cooled
        broken = World(failback=after_drain)
        broken.fail_over()
        broken.break_all()
        yield broken


@pytest.mark.rule("S12", "S4")
@pytest.mark.parametrize("name", FLOWS)
def test_a_call_that_is_cancelled_anywhere_leaves_nothing_behind(name: str) -> None:
    cancelled = 0
    for number, _ in enumerate(worlds()):
        for after in range(10):
            world = list(worlds())[number]
            cancelled += stops(world, FLOWS[name](world), after)

            assert world.orders.health.in_flight == 0
            world.clock += 1000  # whatever is out can be tried: nobody is at it any more
            assert all(world.pairing.claim_this(queue) for queue in QUEUES)
    assert cancelled >= 6


@pytest.mark.parametrize("name", FLOWS)
def test_a_call_that_is_never_begun_leaves_nothing_behind(name: str) -> None:
    world = World()
    world.fail_over()

    FLOWS[name](world).close()

    assert world.orders.health.in_flight == 0


@pytest.mark.rule("S4")
def test_a_try_that_ends_with_the_time_of_the_call_leaves_the_queue_to_others(
    failed_over: World,
) -> None:
    for queue in QUEUES:
        failed_over.pairing.queue_failed(queue, BROKEN)
    failed_over.clock += 60
    call = failed_over.call(timeout=5)
    failed_over.clock += 5

    with pytest.raises(SendUnavailable):
        failed_over.drive(operations.send(call, message("1"), None, {}))

    assert all(failed_over.pairing.claim_this(queue) for queue in QUEUES)


@pytest.mark.rule("S4")
@pytest.mark.parametrize("error", [None, BUSY, LARGE, BROKEN])
def test_after_any_send_the_queues_can_be_tried_by_others(
    failed_over: World, error: Exception | None
) -> None:
    for queue in QUEUES:
        failed_over.pairing.queue_failed(queue, BROKEN)
        failed_over.backlog[queue].sending = error
    failed_over.clock += 60

    try:
        failed_over.send(message("1"))
    except (SendUnavailable, MessageTooLargeForBacklog):
        assert error is not None

    failed_over.clock += 60
    assert all(failed_over.pairing.claim_this(queue) for queue in QUEUES)


@pytest.mark.rule("S4")
@pytest.mark.parametrize("size", [None, 10_000 * KB])
def test_after_making_a_batch_too(failed_over: World, size: int | None) -> None:
    for queue in QUEUES:
        failed_over.pairing.queue_failed(queue, BROKEN)
    failed_over.clock += 60

    try:
        failed_over.make_batch(size)
    except ValueError:
        assert size is not None

    assert all(failed_over.pairing.claim_this(queue) for queue in QUEUES)
