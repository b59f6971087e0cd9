"""Pings to a local namespace, with the azure-servicebus SDK and by hand."""

import datetime
import uuid

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus.amqp.client import Management, Sender
from pairbus.amqp.sections import Header, Message, Properties
from pairbus.amqp.types import Symbol, Timestamp, UInt
from tests.integration.emulator_fixtures import Bench, bench, is_empty, module_bench, take_one

__all__ = ["bench", "module_bench"]

# The SDK does not close its socket when a connection fails.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.rule("G3"),
]

PING = "application/vnd.ms-servicebus-ping"


def ping() -> ServiceBusMessage:
    return ServiceBusMessage(
        b"",
        content_type=PING,
        time_to_live=datetime.timedelta(seconds=1),
        session_id=str(uuid.uuid4()),
    )


def sends(bench: Bench, path: str) -> int:
    reading = bench.namespace.meter().get((path, "send"))
    return 0 if reading is None else reading.messages


def test_ping_to_a_queue_is_accepted_and_metered_but_not_stored(bench: Bench) -> None:
    queue = bench.queue()
    sender, receiver = bench.pair(queue)
    sender.send_messages(ping())
    assert sends(bench, queue) == 1
    assert bench.held(queue) == 0
    assert bench.runtime(queue).size_in_bytes == 0
    assert receiver.peek_messages(5) == []
    assert is_empty(receiver)
    sender.send_messages(ServiceBusMessage("real"))
    assert take_one(receiver).sequence_number == 1


def test_ping_to_a_queue_with_sessions_creates_no_session(bench: Bench) -> None:
    queue = bench.queue(requires_session=True)
    sender = bench.sender(queue)
    sender.send_messages(ping())
    assert sends(bench, queue) == 1
    assert bench.held(queue) == 0
    assert list(bench.client.list_queue_sessions(queue)) == []


def test_ping_to_a_topic_reaches_no_subscription(bench: Bench) -> None:
    topic = bench.topic()
    bench.namespace.create_subscription(topic, "plain")
    bench.namespace.create_subscription(topic, "sessions", requires_session=True)
    bench.topic_sender(topic).send_messages(ping())
    assert sends(bench, topic) == 1
    assert bench.held(topic) == 0
    for name in ("plain", "sessions"):
        assert bench.held(f"{topic}/Subscriptions/{name}") == 0


def test_ping_in_a_batch_is_not_stored(bench: Bench) -> None:
    queue = bench.queue()
    sender, receiver = bench.pair(queue)
    sender.send_messages([ServiceBusMessage("a"), ping(), ServiceBusMessage("b")])
    assert sends(bench, queue) == 3
    assert bench.held(queue) == 2
    assert [str(message) for message in receiver.peek_messages(5)] == ["a", "b"]


def test_ping_is_neither_dead_lettered_nor_recorded_for_duplicate_detection(bench: Bench) -> None:
    queue = bench.queue(
        requires_duplicate_detection=True, dead_lettering_on_message_expiration=True
    )
    sender = bench.sender(queue)
    same = ping()
    same.message_id = "same"
    sender.send_messages(same)
    sender.send_messages(ServiceBusMessage("x", message_id="same"))
    assert bench.held(queue) == 1


def test_ping_is_recognized_by_its_content_type_in_any_encoding(bench: Bench) -> None:
    queue = bench.queue()
    client = bench.raw()
    for content_type in (Symbol(PING), PING):
        properties = Properties(content_type=content_type, group_id="random")
        payload = Message.build(header=Header(ttl=UInt(1000)), properties=properties, data=b"")
        Sender(client, queue).send(payload.encode())
    assert sends(bench, queue) == 2
    assert bench.held(queue) == 0


def test_scheduled_ping_is_not_stored(bench: Bench) -> None:
    queue = bench.queue()
    due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=1)
    payload = Message.build(
        message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp.from_datetime(due)},
        properties=Properties(content_type=Symbol(PING), group_id="random"),
        data=b"",
    ).encode()
    assert len(Management(bench.raw(), queue).schedule([payload])) == 1
    assert bench.held(queue) == 0
