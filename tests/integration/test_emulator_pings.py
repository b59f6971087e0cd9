"""Pings to a local namespace, with the sync and the async SDK and by hand."""

import datetime
import uuid

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus.amqp.client import Management, Sender
from pairbus.amqp.sections import Header, Message, Properties
from pairbus.amqp.types import Symbol, Timestamp, UInt
from tests.integration.sdk_flavours import SDK_MARKS, Flavour, is_empty, listed, take_one

pytestmark = [*SDK_MARKS, pytest.mark.rule("G3")]

PING = "application/vnd.ms-servicebus-ping"


def ping() -> ServiceBusMessage:
    return ServiceBusMessage(
        b"",
        content_type=PING,
        time_to_live=datetime.timedelta(seconds=1),
        session_id=str(uuid.uuid4()),
    )


def sends(sdk: Flavour, path: str) -> int:
    reading = sdk.namespace.meter().get((path, "send"))
    return 0 if reading is None else reading.messages


async def test_ping_to_a_queue_is_accepted_and_metered_but_not_stored(sdk: Flavour) -> None:
    queue = sdk.queue()
    sender, receiver = await sdk.pair(queue)
    await sender.send_messages(ping())
    assert sends(sdk, queue) == 1
    assert sdk.stored_count(queue) == 0
    assert sdk.runtime(queue).size_in_bytes == 0
    assert await receiver.peek_messages(5) == []
    assert await is_empty(receiver)
    await sender.send_messages(ServiceBusMessage("real"))
    assert (await take_one(receiver)).sequence_number == 1


async def test_ping_to_a_queue_with_sessions_creates_no_session(sdk: Flavour) -> None:
    queue = sdk.queue(requires_session=True)
    sender = sdk.sender(queue)
    await sender.send_messages(ping())
    assert sends(sdk, queue) == 1
    assert sdk.stored_count(queue) == 0
    assert await listed(sdk.client.list_queue_sessions(queue)) == []


async def test_ping_to_a_topic_reaches_no_subscription(sdk: Flavour) -> None:
    topic = sdk.topic()
    sdk.namespace.create_subscription(topic, "plain")
    sdk.namespace.create_subscription(topic, "sessions", requires_session=True)
    await sdk.topic_sender(topic).send_messages(ping())
    assert sends(sdk, topic) == 1
    assert sdk.stored_count(topic) == 0
    for name in ("plain", "sessions"):
        assert sdk.stored_count(f"{topic}/Subscriptions/{name}") == 0


async def test_ping_in_a_batch_is_not_stored(sdk: Flavour) -> None:
    queue = sdk.queue()
    sender, receiver = await sdk.pair(queue)
    await sender.send_messages([ServiceBusMessage("a"), ping(), ServiceBusMessage("b")])
    assert sends(sdk, queue) == 3
    assert sdk.stored_count(queue) == 2
    assert [str(message) for message in await receiver.peek_messages(5)] == ["a", "b"]


async def test_ping_is_neither_dead_lettered_nor_recorded_for_duplicate_detection(
    sdk: Flavour,
) -> None:
    queue = sdk.queue(requires_duplicate_detection=True, dead_lettering_on_message_expiration=True)
    sender = sdk.sender(queue)
    same = ping()
    same.message_id = "same"
    await sender.send_messages(same)
    await sender.send_messages(ServiceBusMessage("x", message_id="same"))
    assert sdk.stored_count(queue) == 1


async def test_ping_is_recognized_by_its_content_type_in_any_encoding(sdk: Flavour) -> None:
    queue = sdk.queue()
    client = sdk.raw()
    for content_type in (Symbol(PING), PING):
        properties = Properties(content_type=content_type, group_id="random")
        payload = Message.build(header=Header(ttl=UInt(1000)), properties=properties, data=b"")
        Sender(client, queue).send(payload.encode())
    assert sends(sdk, queue) == 2
    assert sdk.stored_count(queue) == 0


async def test_scheduled_ping_is_not_stored(sdk: Flavour) -> None:
    queue = sdk.queue()
    due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=1)
    payload = Message.build(
        message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp.from_datetime(due)},
        properties=Properties(content_type=Symbol(PING), group_id="random"),
        data=b"",
    ).encode()
    assert len(Management(sdk.raw(), queue).schedule([payload])) == 1
    assert sdk.stored_count(queue) == 0
