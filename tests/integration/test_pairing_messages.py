"""Every kind of message in the backlog and restored, compared with the bytes of the plain SDK."""

from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from enum import Enum
from typing import Any

import pytest
import pytest_asyncio
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from pairbus.amqp.client import Receiver
from pairbus.amqp.sections import ABSOLUTE_EXPIRY_TIME, CREATION_TIME, GROUP_ID, TTL, Message
from pairbus.amqp.types import Timestamp
from pairbus.events import PathStatus
from pairbus.servicebus.application_properties import ALIASES
from pairbus.transfer import from_backlog
from tests.integration.deliveries import Deliveries
from tests.integration.emulator_clients import client_of
from tests.integration.pairs import Pair
from tests.interop.sdk_cases import FROM_THE_SDK, NESTED_FROM_THE_SDK
from tests.unit.amqp.same import same
from tests.unit.test_transfer import (
    EVERY_PROPERTY,
    PLAIN,
    SCHEDULE,
    WHEN,
    WHEN_MS,
    check_same,
    fields_of,
    without_derived_times,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

KINDS: dict[str, Callable[[], Any]] = {
    **PLAIN,
    "every type of application property": lambda: AmqpAnnotatedMessage(
        data_body=b"body",
        application_properties={name: deepcopy(value) for name, value, _ in FROM_THE_SDK}
        | {"decimal": EVERY_PROPERTY["decimal"]},
    ),
    "every type of annotation": lambda: AmqpAnnotatedMessage(
        data_body=b"body",
        annotations={
            f"x-opt-{name}": deepcopy(value)
            for name, value, _ in (*FROM_THE_SDK, *NESTED_FROM_THE_SDK)
        },
    ),
    **{
        f"value of type {name}": lambda value=value: AmqpAnnotatedMessage(value_body=value)
        for name, value, _ in (*FROM_THE_SDK, *NESTED_FROM_THE_SDK)
        if name not in ("typed uint", "typed ulong", "typed long")  # the SDK loses their types
    },
    "sequences": lambda: AmqpAnnotatedMessage(sequence_body=[[1, 2], [], ["three", None]]),
    "every header": lambda: AmqpAnnotatedMessage(
        data_body=b"body",
        # Without the delivery count, which the queue writes.
        header=AmqpMessageHeader(
            durable=True, priority=9, time_to_live=61_001, first_acquirer=True
        ),
    ),
    "everything at once": lambda: AmqpAnnotatedMessage(
        sequence_body=[1, "two"],
        header=AmqpMessageHeader(priority=1, time_to_live=90_000),
        properties=AmqpMessageProperties(
            message_id="id",
            user_id=b"u",
            subject="s",
            correlation_id="c",
            group_id="session",
            group_sequence=7,
            reply_to_group_id="r",
        ),
        annotations={
            "x-opt-partition-key": "session",
            SCHEDULE: WHEN,
            "x-opt-mine": [1, {"a": None}],
        },
        delivery_annotations={"x-opt-d": 1},
        footer={"x-opt-f": "2"},
        application_properties={"a": 1, b"b": b"bytes"},
    ),
}


class SenderPair:
    """A plain sender of the SDK, and a paired sender whose path is in failover."""

    def __init__(self, pair: Pair, deliveries: Deliveries, *, topic: bool) -> None:
        self._pair = pair
        self._deliveries = deliveries
        make = pair.topic if topic else pair.queue
        self.plain = pair.sender(make(), topic=topic, client=pair.connect())
        self.paired = pair.sender(make(), topic=topic)

    async def payload_of_plain_send(self, message: Any) -> bytes:
        """Return the bytes that the plain SDK sends."""
        await self.plain.send_messages(message)
        (made,) = self._deliveries.new(self._pair.primary, self.plain.entity_name)
        return made.payload

    def reached_the_primary(self) -> bool:
        """Return True if the paired sender reached the primary since the last call."""
        return bool(self._deliveries.new(self._pair.primary, self.paired.entity_name))


class Failover:
    """Senders of a queue and of a topic in failover, and a receiver of the backlog."""

    def __init__(self, pair: Pair, deliveries: Deliveries, backlog: Receiver) -> None:
        self.pair = pair
        self.deliveries = deliveries
        self.senders = {topic: SenderPair(pair, deliveries, topic=topic) for topic in (False, True)}
        self._backlog = backlog

    def received(self, count: int) -> list[bytes]:
        """Receive messages of the backlog, and forget that they were stored."""
        deliveries: list[Any] = []
        while len(deliveries) < count:
            some = self._backlog.receive(count - len(deliveries), timeout_s=20)
            assert some
            self._backlog.settle(some)
            deliveries += some
        assert len(self.pair.new_in_backlog()) <= count  # those that are not settled yet
        return [bytes(delivery.payload) for delivery in deliveries]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def failover(pair: Pair, deliveries: Deliveries) -> AsyncIterator[Failover]:
    with client_of(pair.secondary) as client:
        failover = Failover(pair, deliveries, Receiver(client, pair.backlog_queues[0]))
        for sender_pair in failover.senders.values():
            await pair.fail_over(sender_pair.paired)
            sender_pair.reached_the_primary()
        failover.received(2)
        yield failover


def with_id(message: Any, message_id: Any) -> Any:
    """Return the message with the id that the paired sender assigned, for the plain SDK."""
    if isinstance(message, dict):
        return {**message, "message_id": message_id}
    if isinstance(message, AmqpAnnotatedMessage):
        if message.properties is None:
            message.properties = AmqpMessageProperties()
        if message.properties.message_id is None:
            message.properties.message_id = message_id
    return message


def snapshot(value: Any) -> Any:
    """Return all values inside an object, with their types."""
    if isinstance(value, dict):
        return dict, [(snapshot(key), snapshot(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [snapshot(item) for item in value]
    if type(value).__module__.startswith("azure.") and not isinstance(value, Enum | type):
        return type(value), {key: snapshot(item) for key, item in vars(value).items()}
    return type(value), value


@pytest.mark.rule("S6", "Y3")
@pytest.mark.parametrize("topic", [False, True], ids=["queue", "topic"])
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
async def test_restored_message_equals_the_message_of_the_sdk(
    failover: Failover, make: Callable[[], Any], topic: bool
) -> None:
    sender_pair = failover.senders[topic]
    message = make()
    before = snapshot(message)

    await sender_pair.paired.send_messages(message)

    assert snapshot(message) == before
    (stored,) = failover.pair.new_in_backlog()
    (received,) = failover.received(1)
    back = from_backlog(received)
    assert (back.path, back.payload) == (
        sender_pair.paired.entity_name,
        from_backlog(stored).payload,
    )
    plain = await sender_pair.payload_of_plain_send(with_id(message, back.message_id))
    check_same(back.payload, without_derived_times(plain))
    check_stored(Message.parse(stored), Message.parse(plain), sender_pair.paired.entity_name)
    assert not sender_pair.reached_the_primary()


def check_stored(stored: Message, plain: Message, path: str) -> None:
    """The stored message differs from the plain one only in the cleared properties and aliases."""
    aliases = stored.edit_application_properties({}, ALIASES)
    header, properties = plain.read_header(), plain.read_properties()
    scheduled = plain.read_message_annotations().get(SCHEDULE)
    expected = {
        "x-ms-sessionid": properties.group_id,
        "x-ms-timetolive": None if header.ttl is None else int(header.ttl),
        "x-ms-scheduledenqueuetimeutc": scheduled,
        "x-ms-path": path,
    }
    assert same(aliases, {name: item for name, item in expected.items() if item is not None})
    cleared: dict[int, None] = {GROUP_ID: None}
    if header.ttl:
        cleared |= {ABSOLUTE_EXPIRY_TIME: None, CREATION_TIME: None}
    plain.edit_properties(cleared)
    plain.edit_header({TTL: None})
    plain.edit_message_annotations({}, [SCHEDULE])
    assert stored.read_header() == plain.read_header()
    assert same(fields_of(stored), fields_of(plain))
    for name in (
        "message_annotations",
        "delivery_annotations",
        "application_properties",
        "body",
        "footer",
    ):
        assert getattr(stored, name) == getattr(plain, name), name


@pytest.mark.rule("S6")
@pytest.mark.parametrize("how", ["list", "generator", "batch"])
async def test_list_of_all_kinds_is_stored_in_order(failover: Failover, how: str) -> None:
    sender_pair = failover.senders[False]
    messages = [make() for name, make in KINDS.items() if name != "large body"]
    before = [snapshot(item) for item in messages]

    if how == "batch":
        batch = await sender_pair.paired.create_message_batch()
        for message in deepcopy(messages):
            batch.add_message(message)
        await sender_pair.paired.send_messages(batch)
    else:
        await sender_pair.paired.send_messages(
            messages if how == "list" else (item for item in messages)
        )

    assert [snapshot(item) for item in messages] == before
    received = failover.received(len(messages))
    for message, payload in zip(messages, received, strict=True):
        back = from_backlog(payload)
        plain = await sender_pair.payload_of_plain_send(with_id(message, back.message_id))
        check_same(back.payload, without_derived_times(plain))


@pytest.mark.rule("S6")
async def test_message_that_failed_at_the_primary_is_stored_unchanged(failover: Failover) -> None:
    """The SDK has already encoded the message in this case."""
    paired = failover.pair.sender(failover.pair.queue())
    message = KINDS["everything at once"]()
    fault = failover.pair.fault("internal-error", paired.entity_name)

    await paired.send_messages(message)

    assert fault.fired == 1
    assert failover.pair.state(paired.entity_name) is PathStatus.FAILOVER
    (arrived,) = failover.deliveries.new(failover.pair.primary, paired.entity_name)
    (received,) = failover.received(1)
    check_same(from_backlog(received).payload, without_derived_times(arrived.payload))


@pytest.mark.rule("S6")
async def test_destination_is_spelled_as_the_sender_was_opened(failover: Failover) -> None:
    pair = failover.pair
    path = pair.queue()
    senders = [pair.sender(spelled) for spelled in (path.lower(), path.upper(), path)]
    await pair.fail_over(senders[0])
    for sender in senders:
        await sender.send_messages(ServiceBusMessage("b"))

    paths = [from_backlog(payload).path for payload in failover.received(4)]

    assert paths == [path.lower(), path.lower(), path.upper(), path]
    assert list(pair.bus.status().paths).count(path.lower()) == 1


@pytest.mark.rule("S6")
async def test_received_message_can_be_sent_to_the_backlog(failover: Failover) -> None:
    sender_pair, pair = failover.senders[False], failover.pair
    path, client = pair.queue(), pair.connect()
    await pair.sender(path, client=client).send_messages(
        ServiceBusMessage("b", application_properties={"a": "text", "n": 1}, message_id="id")
    )
    receiver = pair.keep(client.get_queue_receiver(path, prefetch_count=1))
    (message,) = await receiver.receive_messages(1, max_wait_time=20)
    before = snapshot(message.raw_amqp_message)

    await sender_pair.paired.send_messages(message)

    assert snapshot(message.raw_amqp_message) == before
    (received,) = failover.received(1)
    back = Message.parse(from_backlog(received).payload)
    plain = Message.parse(await sender_pair.payload_of_plain_send(message))
    assert back.read_application_properties() == plain.read_application_properties()
    assert same(fields_of(back), fields_of(plain))
    assert back.body == plain.body


@pytest.mark.rule("S6")
async def test_backlog_neither_schedules_nor_expires_nor_groups_messages(
    failover: Failover,
) -> None:
    (queue,) = failover.pair.backlog_queues
    await failover.senders[False].paired.send_messages(PLAIN["all of it"]())

    (stored,) = failover.pair.secondary.call(
        lambda core: core.entities.get(queue).queue.peek(0, 100)
    )
    assert (stored.due_ms, stored.expires_ms, stored.session) == (None, None, None)
    (received,) = failover.received(1)
    back = from_backlog(received)
    assert (back.session, back.ttl_ms, back.scheduled_ms) == ("s", 60_000, Timestamp(WHEN_MS))
    assert Message.parse(back.payload).read_properties().message_id is not None
