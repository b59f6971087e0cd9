"""Limits of the backlog to the byte: reserved names, message sizes, and split batches."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
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
from pairbus.amqp.batch import BATCH_FORMAT, size_in_batch
from pairbus.amqp.sections import Message
from pairbus.errors import ReservedProperty
from pairbus.events import PathStatus
from pairbus.servicebus.application_properties import ALIASES
from tests.integration.deliveries import Deliveries
from tests.integration.pairs import Make, Pair, body_of, id_of

# The limits of premium are others: test_pairing_tiers.py has them.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.unlimited]

KB = 1024
LIMIT = 256 * KB
LATER = datetime(2999, 1, 1, tzinfo=UTC)


class Limits:
    """The pairing of the module, with a limit of 256 KB in its backlog queue."""

    def __init__(self, pair: Pair, healthy: Any, failed: Any, deliveries: Deliveries) -> None:
        self.pair = pair
        (self.backlog,) = pair.backlog_queues
        self.healthy = healthy
        self.failed = failed
        self._deliveries = deliveries
        self.forget()

    def forget(self) -> None:
        """Forget all messages and deliveries."""
        self.nothing_was_sent()

    def sizes_in_backlog(self) -> list[int]:
        """Return the sizes of the deliveries to the backlog since the last call."""
        made = self._deliveries.new(self.pair.secondary, self.backlog)
        assert {delivery.message_format for delivery in made} <= {BATCH_FORMAT, 0}
        return [len(delivery.payload) for delivery in made]

    def nothing_was_sent(self) -> bool:
        return not any(
            [
                self.pair.new_in_backlog(),
                self._deliveries.new(self.pair.secondary, self.backlog),
                *(
                    self._deliveries.new(self.pair.primary, sender.entity_name)
                    for sender in (self.healthy, self.failed)
                ),
            ]
        )

    def new_ids(self) -> list[Any]:
        """Return the ids of the messages that were stored in the backlog since the last call."""
        return [id_of(payload) for payload in self.pair.new_in_backlog()]

    def is_in_rotation(self) -> bool:
        return self.pair.bus.status().backlog[self.backlog].in_rotation


@pytest.fixture
def limits(pair: Pair, healthy: Any, failed: Any, deliveries: Deliveries) -> Iterator[Limits]:
    yield Limits(pair, healthy, failed, deliveries)
    pair.secondary.clear_faults()


# Reserved names.


@pytest.fixture(params=["healthy", "failed"])
def sender(request: pytest.FixtureRequest, healthy: Any, failed: Any) -> Any:
    """A sender whose path is healthy, and one whose path is in failover."""
    return healthy if request.param == "healthy" else failed


def annotated(properties: dict[Any, Any]) -> AmqpAnnotatedMessage:
    return AmqpAnnotatedMessage(data_body=b"b", application_properties=properties)


def foreign_batch(properties: dict[Any, Any]) -> ServiceBusMessageBatch:
    batch = ServiceBusMessageBatch()
    batch.add_message(ServiceBusMessage("fine"))
    batch.add_message(ServiceBusMessage("b", application_properties=properties))
    return batch


RESERVED: dict[str, Callable[[Any, dict[Any, Any]], Awaitable[Any]]] = {
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
        item for item in (ServiceBusMessage("fine"), annotated(names))
    ),
    "in a batch": lambda sender, names: batch_of(sender, annotated(names)),
    "in a batch, a dictionary": lambda sender, names: batch_of(
        sender, {"body": "b", "application_properties": names}
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
@pytest.mark.parametrize("send", RESERVED.values(), ids=RESERVED.keys())
async def test_message_with_a_reserved_name_is_refused(
    limits: Limits, sender: Any, send: Callable[[Any, dict[Any, Any]], Awaitable[Any]]
) -> None:
    before = limits.pair.state(sender.entity_name)
    for name, key in product(ALIASES, (str, str.encode)):
        with pytest.raises(ReservedProperty, match=name):
            await send(sender, {"mine": 1, key(name): None})

    assert limits.nothing_was_sent()
    assert limits.pair.state(sender.entity_name) is before


@pytest.mark.rule("S7")
async def test_batch_can_be_used_after_it_refused_a_message(limits: Limits, sender: Any) -> None:
    batch = await batch_of(sender, ServiceBusMessage("one"))
    with pytest.raises(ReservedProperty):
        batch.add_message(annotated({"x-ms-path": "p"}))
    batch.add_message(ServiceBusMessage("two"))
    assert len(batch) == 2
    pair = limits.pair
    pair.new_in(pair.primary, sender.entity_name)

    await sender.send_messages(batch)

    stored = pair.new_in(pair.primary, sender.entity_name) + pair.new_in_backlog()
    assert [body_of(payload) for payload in stored] == [b"one", b"two"]
    assert (pair.state(sender.entity_name) is PathStatus.FAILOVER) == (sender is limits.failed)


@pytest.mark.rule("S7")
async def test_similar_names_are_allowed(limits: Limits, sender: Any) -> None:
    names = {name.upper(): 1 for name in ALIASES} | {"x-ms-pat": 2, "x-ms-path ": 3, "": 4}

    await sender.send_messages(ServiceBusMessage("b", application_properties=names))

    assert not limits.nothing_was_sent()


# Sizes.


def sized(body: int, **options: Any) -> ServiceBusMessage:
    return ServiceBusMessage(b"x" * body, message_id="id", **options)


async def body_for(limits: Limits, limit: int, **options: Any) -> int:
    """Return the body size with which one message has the largest size in the backlog."""
    body = 200 * KB
    await limits.failed.send_messages(sized(body, **options))
    (stored,) = limits.pair.new_in_backlog()
    limits.forget()
    return body + limit - len(stored)


EVERY_ALIAS: dict[str, Any] = {
    "session_id": "s" * 128,
    "time_to_live": timedelta(days=1),
    "scheduled_enqueue_time_utc": LATER,
}


@pytest.mark.rule("S8")
@pytest.mark.parametrize("options", [{}, EVERY_ALIAS], ids=["path only", "every alias"])
async def test_message_size_in_the_backlog_is_limited_to_the_byte(
    limits: Limits, options: dict[str, Any]
) -> None:
    most = await body_for(limits, LIMIT, **options)

    await limits.failed.send_messages(sized(most, **options))

    assert limits.sizes_in_backlog() == [LIMIT]
    assert len(limits.new_ids()) == 1
    with pytest.raises(MessageTooLargeForBacklog, match=f"{LIMIT + 1} bytes.*{LIMIT}"):
        await limits.failed.send_messages(sized(most + 1, **options))
    assert limits.nothing_was_sent()
    assert limits.pair.state(limits.failed.entity_name) is PathStatus.FAILOVER
    assert limits.is_in_rotation()
    # The message fits the primary.
    await limits.healthy.send_messages(sized(most + 1, **options))


def message_with_header(size: int) -> ServiceBusMessage:
    return ServiceBusMessage(b"body", message_id="id", application_properties={"large": "h" * size})


def header_size(payload: bytes) -> int:
    return len(payload) - len(Message.parse(payload).body)


@pytest.mark.rule("S8")
async def test_header_size_in_the_backlog_is_limited_to_the_byte(limits: Limits) -> None:
    await limits.failed.send_messages(message_with_header(60 * KB))
    (stored,) = limits.pair.new_in_backlog()
    most = 60 * KB + 64 * KB - header_size(stored)

    await limits.failed.send_messages(message_with_header(most))

    (stored,) = limits.pair.new_in_backlog()
    assert header_size(stored) == 64 * KB
    limits.forget()
    with pytest.raises(MessageTooLargeForBacklog, match=f"{64 * KB + 1} bytes.*{64 * KB}"):
        await limits.failed.send_messages(message_with_header(most + 1))
    assert limits.nothing_was_sent()
    # The message fits the primary.
    await limits.healthy.send_messages(message_with_header(most + 1))


@pytest.mark.rule("S8", "S9")
async def test_list_with_one_message_that_is_too_large_is_not_sent(limits: Limits) -> None:
    most = await body_for(limits, LIMIT)

    with pytest.raises(MessageTooLargeForBacklog):
        await limits.failed.send_messages([sized(10), sized(most + 1), sized(10)])

    assert limits.nothing_was_sent()


@pytest.mark.rule("S8")
async def test_check_backlog_size_refuses_large_messages_while_healthy(
    limits: Limits, make: Make
) -> None:
    pair = await make(check_backlog_size=True)
    path = pair.queue()
    sender = pair.sender(path)
    # The path is part of the message in the backlog.
    longer = len(limits.failed.entity_name) - len(path)
    most = longer + await body_for(limits, LIMIT)
    scheduled = longer + await body_for(limits, LIMIT, scheduled_enqueue_time_utc=LATER)

    await sender.send_messages(sized(most))
    await sender.send_messages([sized(most - 100)])  # a batch is a little larger
    assert await sender.schedule_messages(sized(scheduled), LATER)

    assert len(pair.arrived(path)) == 3
    for send in (
        sender.send_messages(sized(most + 1)),
        sender.send_messages([sized(1), sized(most + 1)]),
        sender.send_messages(message_with_header(64 * KB - 50)),
        sender.schedule_messages(sized(scheduled + 1), LATER),
    ):
        with pytest.raises(MessageTooLargeForBacklog):
            await send
    with pytest.raises(TypeError, match="Received instead: int"):
        await sender.send_messages(5)
    assert len(pair.arrived(path)) == 3
    assert pair.state(path) is PathStatus.HEALTHY


@pytest.mark.rule("S8", "S9")
async def test_size_limit_is_that_of_the_backlog_link(make: Make) -> None:
    pair = await make(start=False)
    queue = f"{pair.name}/x-servicebus-transfer/0"
    pair.secondary.create_queue(queue, max_message_size_in_kilobytes=1024)
    await pair.start(backlog_queue_count=1)
    sender = pair.sender(pair.queue(max_message_size_in_kilobytes=2048))
    assert (await sender.create_message_batch()).max_size_in_bytes == 2048 * KB
    await pair.fail_over(sender)

    await sender.send_messages(sized(1000 * KB))
    with pytest.raises(MessageTooLargeForBacklog, match=f"allows {1024 * KB} bytes"):
        await sender.send_messages(sized(1024 * KB))

    assert len(pair.in_queue(queue)) == 2
    assert (await sender.create_message_batch()).max_size_in_bytes == 1024 * KB


# Batches.


async def batch_of(sender: Any, *messages: Any) -> Any:
    batch = await sender.create_message_batch()
    for message in messages:
        batch.add_message(message)
    return batch


async def list_of(_: Any, *messages: Any) -> Any:
    return list(messages)


def numbered(number: int, size: int = 100) -> ServiceBusMessage:
    return ServiceBusMessage(b"x" * size, message_id=f"{number:06}")


@pytest.mark.rule("S9")
@pytest.mark.parametrize("several", [batch_of, list_of])
async def test_batch_is_split_when_it_is_one_byte_too_large(
    limits: Limits, several: Callable[..., Awaitable[Any]]
) -> None:
    sender = limits.failed
    some = [numbered(number, 20 * KB) for number in range(10)]
    await sender.send_messages(await several(sender, *some))
    (size,) = limits.sizes_in_backlog()
    last = 20 * KB + LIMIT - size
    limits.forget()

    await sender.send_messages(await several(sender, *some[:-1], numbered(9, last)))

    assert limits.sizes_in_backlog() == [LIMIT]
    assert limits.new_ids() == [f"{number:06}" for number in range(10)]
    await sender.send_messages(await several(sender, *some[:-1], numbered(9, last + 1)))
    first, second = limits.sizes_in_backlog()
    assert first + size_in_batch(second) == LIMIT + 1  # the second is a single message
    assert limits.new_ids() == [f"{number:06}" for number in range(10)]


async def full_batch(sender: Any) -> Any:
    """Return a batch that is too large with its aliases."""
    batch = await sender.create_message_batch()
    with contextlib.suppress(MessageSizeExceededError):
        for number in range(10_000):
            batch.add_message(numbered(number))
    assert 0 < len(batch) < 10_000
    return batch


async def large_list(_: Any) -> Any:
    return [numbered(number, 100 * KB) for number in range(5)]


@pytest.mark.rule("S9")
async def test_full_batch_is_split_in_order(limits: Limits) -> None:
    batch = await full_batch(limits.failed)

    await limits.failed.send_messages(batch)

    sizes = limits.sizes_in_backlog()
    assert len(sizes) == 2
    assert max(sizes) <= LIMIT
    assert limits.new_ids() == [f"{number:06}" for number in range(len(batch))]
    sends = limits.pair.secondary.meter()[limits.backlog, "send"]
    assert sends.operations == sends.messages


@pytest.mark.rule("S9")
@pytest.mark.parametrize(
    ("fault", "error"),
    [("throttle", ServiceBusServerBusyError), ("internal-error", ServiceBusError)],
)
@pytest.mark.parametrize("several", [full_batch, large_list])
async def test_failure_of_the_second_batch_names_the_stored_messages(
    limits: Limits, several: Callable[[Any], Awaitable[Any]], fault: str, error: type[Exception]
) -> None:
    batch = await several(limits.failed)
    injected = limits.pair.secondary.add_fault(fault, limits.backlog, after=1)

    with pytest.raises(PartlyStored) as raised:
        await limits.failed.send_messages(batch)

    assert injected.fired == 1
    limits.pair.secondary.clear_faults()
    partly = raised.value
    assert partly.stored
    assert partly.not_sent
    assert partly.stored + partly.not_sent == tuple(range(len(batch)))
    assert limits.new_ids() == [f"{number:06}" for number in partly.stored]
    assert type(partly.backlog_error) is error
    assert isinstance(partly.primary_error, MessagingEntityDisabledError)
    assert f"{len(partly.stored)} of {len(batch)} messages" in str(partly)


@pytest.mark.rule("S9")
async def test_messages_that_were_not_stored_can_be_sent_again(limits: Limits) -> None:
    messages = [numbered(number, 100 * KB) for number in range(5)]
    limits.pair.secondary.add_fault("throttle", limits.backlog, after=1, count=1)
    with pytest.raises(PartlyStored) as raised:
        await limits.failed.send_messages(messages)

    await limits.failed.send_messages([messages[place] for place in raised.value.not_sent])

    assert limits.new_ids() == [f"{number:06}" for number in range(5)]


@pytest.mark.rule("S9")
async def test_failure_of_the_first_batch_is_not_partly_stored(limits: Limits) -> None:
    injected = limits.pair.secondary.add_fault("throttle", limits.backlog, count=1)

    with pytest.raises(Exception, match="Nothing was sent") as raised:
        await limits.failed.send_messages(await full_batch(limits.failed))

    assert injected.fired == 1
    assert not isinstance(raised.value, PartlyStored)
    assert limits.pair.new_in_backlog() == []


@pytest.mark.rule("S1", "S9")
async def test_batch_created_in_failover_has_the_limit_of_the_backlog(limits: Limits) -> None:
    pair = limits.pair
    sender = pair.sender(pair.queue(max_message_size_in_kilobytes=1024))
    large = await sender.create_message_batch()
    assert large.max_size_in_bytes == 1024 * KB
    for number in range(9):
        large.add_message(numbered(number, 100 * KB))
    await pair.fail_over(sender)
    limits.forget()

    assert (await sender.create_message_batch()).max_size_in_bytes == LIMIT
    assert (await sender.create_message_batch(1000)).max_size_in_bytes == 1000
    with pytest.raises(ValueError, match=f"acceptable max batch size is: {LIMIT} bytes"):
        await sender.create_message_batch(LIMIT + 1)

    # A batch that was created before is split.
    await sender.send_messages(large)
    assert len(limits.sizes_in_backlog()) == 5
    assert limits.new_ids() == [f"{number:06}" for number in range(9)]


@pytest.mark.rule("S8")
async def test_message_that_cannot_be_encoded_raises_in_failover_too(limits: Limits) -> None:
    await limits.failed.send_messages(
        ServiceBusMessage("the queue is in rotation, whatever was before")
    )
    limits.forget()

    for wrong in (
        5,
        [ServiceBusMessage("fine"), object()],
        {"body": 5},
        ServiceBusMessage("b", application_properties={"a": {1}}),
        AmqpAnnotatedMessage(data_body=b"b", properties=AmqpMessageProperties(group_sequence="x")),
    ):
        with pytest.raises((TypeError, ValueError)):
            await limits.failed.send_messages(wrong)

    assert limits.nothing_was_sent()
    assert limits.is_in_rotation()
    await limits.failed.send_messages(ServiceBusMessage("next"))
