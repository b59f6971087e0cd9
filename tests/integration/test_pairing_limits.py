"""Limits of the backlog to the byte: reserved names, message sizes, and split batches."""

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from pairbus import MessageTooLargeForBacklog, PartlyStored
from pairbus.amqp.batch import BATCH_FORMAT
from pairbus.amqp.sections import Message
from pairbus.errors import ReservedProperty
from pairbus.events import PathStatus
from pairbus.servicebus.application_properties import ALIASES
from tests.integration.pairing_kit import BACKLOG, NAME, World, body_of, quick_sender, state

pytestmark = [
    # The SDK does not close its sockets.
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"),
]

KB = 1024
LIMIT = 256 * KB
LATER = datetime(2999, 1, 1, tzinfo=UTC)


class Limits(World):
    """A healthy path and one in failover, with one backlog queue with a limit of 256 KB."""

    def __enter__(self) -> "Limits":
        super().__enter__()
        # Without a cool-down, because the tests share one queue.
        self.bus = self.pair(backlog_cool_down=timedelta())
        self.healthy = self.keep(quick_sender(self.bus, self.queue()))
        self.failed = self.keep(quick_sender(self.bus, self.queue()))
        self.fail_over(self.failed)
        self.forget()
        return self

    def forget(self) -> None:
        self.in_backlog()
        self.arrived(self.secondary, BACKLOG)
        for sender in (self.healthy, self.failed):
            self.arrived(self.primary, sender.entity_name)

    def sender(self, name: str) -> Any:
        return self.healthy if name == "healthy" else self.failed

    def sizes_in_backlog(self) -> list[int]:
        """Return the sizes of the deliveries to the backlog since the last call."""
        arrived = self.arrived(self.secondary, BACKLOG)
        assert {one.message_format for one in arrived} <= {BATCH_FORMAT}
        return [len(one.payload) for one in arrived]

    def nothing_was_sent(self) -> bool:
        return not any(
            (
                self.in_backlog(),
                self.arrived(self.secondary, BACKLOG),
                self.arrived(self.primary, self.healthy.entity_name),
                self.arrived(self.primary, self.failed.entity_name),
            )
        )


@pytest.fixture(scope="module", params=["sync", "aio"])
def module_world(request: pytest.FixtureRequest) -> Iterator[Limits]:
    with Limits(request.param) as world:
        yield world


@pytest.fixture
def world(module_world: Limits) -> Iterator[Limits]:
    yield module_world
    module_world.secondary.clear_faults()
    module_world.forget()


# Reserved names.

in_both_states = pytest.mark.parametrize("where", ["healthy", "failed"])


def annotated(properties: dict[Any, Any]) -> AmqpAnnotatedMessage:
    return AmqpAnnotatedMessage(data_body=b"b", application_properties=properties)


def foreign_batch(properties: dict[Any, Any]) -> ServiceBusMessageBatch:
    batch = ServiceBusMessageBatch()
    batch.add_message(ServiceBusMessage("fine"))
    batch.add_message(ServiceBusMessage("b", application_properties=properties))
    return batch


RESERVED: dict[str, Callable[[Any, dict[Any, Any]], Any]] = {
    "a message": lambda sender, names: sender.send_messages(
        ServiceBusMessage("b", application_properties=names)
    ),
    "an annotated message": lambda sender, names: sender.send_messages(annotated(names)),
    "a dictionary": lambda sender, names: sender.send_messages(
        {"body": "b", "application_properties": names}
    ),
    "in a list": lambda sender, names: sender.send_messages(
        [ServiceBusMessage("fine"), ServiceBusMessage("b", application_properties=names)]
    ),
    "in a generator": lambda sender, names: sender.send_messages(
        one for one in (ServiceBusMessage("fine"), annotated(names))
    ),
    "in a batch": lambda sender, names: sender.create_message_batch().add_message(annotated(names)),
    "in a batch, a dictionary": lambda sender, names: sender.create_message_batch().add_message(
        {"body": "b", "application_properties": names}
    ),
    "in a batch of the SDK": lambda sender, names: sender.send_messages(foreign_batch(names)),
    "scheduled": lambda sender, names: sender.schedule_messages(
        ServiceBusMessage("b", application_properties=names), LATER
    ),
    "scheduled, in a list": lambda sender, names: sender.schedule_messages(
        [ServiceBusMessage("fine"), annotated(names)], LATER
    ),
}


@pytest.mark.rule("S7")
@in_both_states
@pytest.mark.parametrize("send", RESERVED.values(), ids=RESERVED.keys())
def test_message_with_a_reserved_name_is_refused(
    world: Limits, send: Callable[[Any, dict[Any, Any]], Any], where: str
):
    before = state(world.bus, world.sender(where).entity_name)
    for name, key in product(ALIASES, (str, str.encode)):
        with pytest.raises(ReservedProperty, match=name):
            send(world.sender(where), {"mine": 1, key(name): None})

    assert world.nothing_was_sent()
    assert state(world.bus, world.sender(where).entity_name) is before


@pytest.mark.rule("S7")
@in_both_states
def test_batch_can_be_used_after_it_refused_a_message(world: Limits, where: str):
    sender = world.sender(where)
    batch = sender.create_message_batch()
    batch.add_message(ServiceBusMessage("one"))
    with pytest.raises(ReservedProperty):
        batch.add_message(annotated({"x-ms-path": "p"}))
    batch.add_message(ServiceBusMessage("two"))
    assert len(batch) == 2

    sender.send_messages(batch)

    stored = (
        world.in_backlog() if where == "failed" else world.stored(world.primary, sender.entity_name)
    )
    assert [body_of(Message.parse(one)) for one in stored] == [b"one", b"two"]


@pytest.mark.rule("S7")
@in_both_states
def test_similar_names_are_allowed(world: Limits, where: str):
    names = {name.upper(): 1 for name in ALIASES} | {"x-ms-pat": 2, "x-ms-path ": 3, "": 4}

    world.sender(where).send_messages(ServiceBusMessage("b", application_properties=names))

    assert not world.nothing_was_sent()


# Sizes.


def sized(body: int, **options: Any) -> ServiceBusMessage:
    return ServiceBusMessage(b"x" * body, message_id="id", **options)


def body_for(world: Limits, limit: int, **options: Any) -> int:
    """Return the body size with which one message fills a delivery to the backlog."""
    body = 200 * KB
    world.failed.send_messages(sized(body, **options))
    (size,) = world.sizes_in_backlog()
    world.in_backlog()
    return body + limit - size


EVERY_ALIAS: dict[str, Any] = {
    "session_id": "s" * 128,
    "time_to_live": timedelta(days=1),
    "scheduled_enqueue_time_utc": LATER,
}


@pytest.mark.rule("S8")
@pytest.mark.parametrize("options", [{}, EVERY_ALIAS], ids=["path only", "every alias"])
def test_message_size_in_the_backlog_is_limited_to_the_byte(world: Limits, options: dict[str, Any]):
    most = body_for(world, LIMIT, **options)

    world.failed.send_messages(sized(most, **options))

    assert world.sizes_in_backlog() == [LIMIT]
    assert len(world.in_backlog()) == 1
    with pytest.raises(MessageTooLargeForBacklog, match=f"{LIMIT + 1} bytes.*{LIMIT}"):
        world.failed.send_messages(sized(most + 1, **options))
    assert world.nothing_was_sent()
    assert state(world.bus, world.failed.entity_name) is PathStatus.FAILOVER
    assert world.bus.status().backlog[BACKLOG].in_rotation
    # The message fits the primary.
    world.healthy.send_messages(sized(most + 1, **options))


def headed(size: int) -> ServiceBusMessage:
    return ServiceBusMessage(b"body", message_id="id", application_properties={"large": "h" * size})


def head_of(payload: bytes) -> int:
    return len(payload) - len(Message.parse(payload).body)


@pytest.mark.rule("S8")
def test_header_size_in_the_backlog_is_limited_to_the_byte(world: Limits):
    world.failed.send_messages(headed(60 * KB))
    (stored,) = world.in_backlog()
    most = 60 * KB + 64 * KB - head_of(stored)

    world.failed.send_messages(headed(most))

    (stored,) = world.in_backlog()
    assert head_of(stored) == 64 * KB
    world.forget()
    with pytest.raises(MessageTooLargeForBacklog, match=f"{64 * KB + 1} bytes.*{64 * KB}"):
        world.failed.send_messages(headed(most + 1))
    assert world.nothing_was_sent()
    # The message fits the primary.
    world.healthy.send_messages(headed(most + 1))


@pytest.mark.rule("S8", "S9")
def test_list_with_one_message_that_is_too_large_is_not_sent(world: Limits):
    most = body_for(world, LIMIT)

    with pytest.raises(MessageTooLargeForBacklog):
        world.failed.send_messages([sized(10), sized(most + 1), sized(10)])

    assert world.nothing_was_sent()


@pytest.mark.rule("S8")
def test_check_backlog_size_refuses_large_messages_while_healthy(world: Limits):
    most = body_for(world, LIMIT)
    path = world.queue()
    bus = world.pair(check_backlog_size=True)
    sender = world.keep(quick_sender(bus, path))
    # The path is part of the message in the backlog.
    most += len(world.failed.entity_name) - len(path)
    scheduled = body_for(world, LIMIT, scheduled_enqueue_time_utc=LATER)
    scheduled += len(world.failed.entity_name) - len(path)

    sender.send_messages(sized(most))
    sender.send_messages([sized(most)])
    assert sender.schedule_messages(sized(scheduled), LATER)

    assert len(world.stored(world.primary, path)) == 3
    for send in (
        lambda: sender.send_messages(sized(most + 1)),
        lambda: sender.send_messages([sized(1), sized(most + 1)]),
        lambda: sender.send_messages(headed(64 * KB - 50)),
        lambda: sender.schedule_messages(sized(scheduled + 1), LATER),
    ):
        with pytest.raises(MessageTooLargeForBacklog):
            send()
    with pytest.raises(TypeError, match="Received instead: int"):
        sender.send_messages(5)
    assert len(world.stored(world.primary, path)) == 0
    assert state(bus, path) is PathStatus.HEALTHY


@pytest.mark.rule("S8", "S9")
def test_size_limit_is_that_of_the_backlog_link(world: Limits):
    world.secondary.create_queue(
        f"large-{NAME}/x-servicebus-transfer/0", max_message_size_in_kilobytes=1024
    )
    path = world.queue(max_message_size_in_kilobytes=2048)
    bus = world.pair(primary_name=f"large-{NAME}", client=world.client())
    sender = world.keep(quick_sender(bus, path))
    assert sender.create_message_batch().max_size_in_bytes == 2048 * KB
    world.fail_over(sender)

    sender.send_messages(sized(1000 * KB))
    with pytest.raises(MessageTooLargeForBacklog, match=f"allows {1024 * KB} bytes"):
        sender.send_messages(sized(1024 * KB))

    assert len(world.in_backlog(f"large-{NAME}/x-servicebus-transfer/0")) == 2
    assert sender.create_message_batch().max_size_in_bytes == 1024 * KB


# Batches.


def batch_of(sender: Any, *messages: Any) -> Any:
    batch = sender.create_message_batch()
    for message in messages:
        batch.add_message(message)
    return batch


def numbered(number: int, size: int = 100) -> ServiceBusMessage:
    return ServiceBusMessage(b"x" * size, message_id=f"{number:06}")


def ids(payloads: list[bytes]) -> list[str]:
    return [Message.parse(one).read_properties().message_id for one in payloads]


@pytest.mark.rule("S9")
@pytest.mark.parametrize("make", [batch_of, lambda _, *some: list(some)], ids=["batch", "list"])
def test_batch_is_split_when_it_is_one_byte_too_large(world: Limits, make: Callable[..., Any]):
    sender = world.failed
    some = [numbered(number, 20 * KB) for number in range(10)]
    sender.send_messages(make(sender, *some))
    (size,) = world.sizes_in_backlog()
    last = 20 * KB + LIMIT - size
    world.forget()

    sender.send_messages(make(sender, *some[:-1], numbered(9, last)))

    assert world.sizes_in_backlog() == [LIMIT]
    assert ids(world.in_backlog()) == [f"{number:06}" for number in range(10)]
    sender.send_messages(make(sender, *some[:-1], numbered(9, last + 1)))
    first, second = world.sizes_in_backlog()
    assert first + second == LIMIT + 1
    assert ids(world.in_backlog()) == [f"{number:06}" for number in range(10)]


def full_batch(sender: Any) -> Any:
    """Return a batch that is too large with its aliases."""
    batch = sender.create_message_batch()
    with contextlib.suppress(MessageSizeExceededError):
        for number in range(10_000):
            batch.add_message(numbered(number))
    assert 0 < len(batch) < 10_000
    return batch


@pytest.mark.rule("S9")
def test_full_batch_is_split_in_order(world: Limits):
    batch = full_batch(world.failed)

    world.failed.send_messages(batch)

    sizes = world.sizes_in_backlog()
    assert len(sizes) == 2
    assert max(sizes) <= LIMIT
    assert ids(world.in_backlog()) == [f"{number:06}" for number in range(len(batch))]
    sends = world.secondary.meter()[BACKLOG, "send"]
    assert sends.operations == sends.messages


@pytest.mark.rule("S9")
@pytest.mark.parametrize(
    ("fault", "error"),
    [("throttle", ServiceBusServerBusyError), ("internal-error", ServiceBusError)],
)
@pytest.mark.parametrize("make", [full_batch, lambda _: [numbered(n, 100 * KB) for n in range(5)]])
def test_failure_of_the_second_batch_names_the_stored_messages(
    world: Limits, make: Callable[[Any], Any], fault: str, error: type[Exception]
):
    batch = make(world.failed)
    trouble = world.secondary.add_fault(fault, BACKLOG, after=1)

    with pytest.raises(PartlyStored) as raised:
        world.failed.send_messages(batch)

    assert trouble.fired == 1
    world.secondary.clear_faults()
    partly = raised.value
    assert partly.stored
    assert partly.not_stored
    assert partly.stored + partly.not_stored == tuple(range(len(batch)))
    assert ids(world.in_backlog()) == [f"{number:06}" for number in partly.stored]
    assert type(partly.backlog_error) is error
    assert isinstance(partly.primary_error, MessagingEntityDisabledError)
    assert f"{len(partly.stored)} of {len(batch)} messages" in str(partly)


@pytest.mark.rule("S9")
def test_messages_that_were_not_stored_can_be_sent_again(world: Limits):
    messages = [numbered(number, 100 * KB) for number in range(5)]
    world.secondary.add_fault("throttle", BACKLOG, after=1, count=1)
    with pytest.raises(PartlyStored) as raised:
        world.failed.send_messages(messages)

    world.failed.send_messages([messages[place] for place in raised.value.not_stored])

    assert ids(world.in_backlog()) == [f"{number:06}" for number in range(5)]


@pytest.mark.rule("S9")
def test_failure_of_the_first_batch_is_not_partly_stored(world: Limits):
    trouble = world.secondary.add_fault("throttle", BACKLOG, count=1)

    with pytest.raises(Exception, match="Nothing was sent") as raised:
        world.failed.send_messages(full_batch(world.failed))

    assert trouble.fired == 1
    assert not isinstance(raised.value, PartlyStored)
    assert world.in_backlog() == []


@pytest.mark.rule("S1", "S9")
def test_batch_created_in_failover_has_the_limit_of_the_backlog(world: Limits):
    path = world.queue(max_message_size_in_kilobytes=1024)
    sender = world.keep(quick_sender(world.bus, path))
    large = sender.create_message_batch()
    assert large.max_size_in_bytes == 1024 * KB
    for number in range(9):
        large.add_message(numbered(number, 100 * KB))
    world.fail_over(sender)
    world.forget()

    assert sender.create_message_batch().max_size_in_bytes == LIMIT
    assert sender.create_message_batch(1000).max_size_in_bytes == 1000
    with pytest.raises(ValueError, match=f"acceptable max batch size is: {LIMIT} bytes"):
        sender.create_message_batch(LIMIT + 1)

    # A batch that was created before is split.
    sender.send_messages(large)
    assert len(world.sizes_in_backlog()) == 5
    assert ids(world.in_backlog()) == [f"{number:06}" for number in range(9)]


@pytest.mark.rule("S8")
def test_message_that_cannot_be_encoded_raises_in_failover_too(world: Limits):
    world.failed.send_messages(ServiceBusMessage("the queue is in rotation, whatever was before"))
    world.forget()

    for wrong in (
        5,
        [ServiceBusMessage("fine"), object()],
        {"body": 5},
        ServiceBusMessage("b", application_properties={"a": {1}}),
        AmqpAnnotatedMessage(data_body=b"b", properties=AmqpMessageProperties(group_sequence="x")),
    ):
        with pytest.raises((TypeError, ValueError)):
            world.failed.send_messages(wrong)

    assert world.nothing_was_sent()
    assert world.bus.status().backlog[BACKLOG].in_rotation
    world.failed.send_messages(ServiceBusMessage("goes on"))
