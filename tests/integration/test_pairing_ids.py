"""Message ids in primary and backlog, and messages whose acknowledgement was lost."""

import logging
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from pairbus.amqp.client import Sender
from pairbus.amqp.sections import Message
from pairbus.events import PathStatus
from pairbus.transfer import from_backlog
from tests.integration.emulator_clients import client_of
from tests.integration.pairs import SENDS, Make, Pair, body_of, id_of, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(params=["healthy", "failed"])
def sender(request: pytest.FixtureRequest, healthy: Any, failed: Any) -> Any:
    """A sender whose path is healthy, and one whose path is in failover."""
    return healthy if request.param == "healthy" else failed


def sent(pair: Pair, sender: Any) -> list[Any]:
    """Return the ids that were stored since the last call."""
    return ids(pair.new_in(pair.primary, sender.entity_name) + pair.new_in_backlog())


def ids(payloads: list[bytes]) -> list[Any]:
    return [id_of(payload) for payload in payloads]


def without_id() -> ServiceBusMessage:
    message = ServiceBusMessage("b")
    message.message_id = None
    return message


BARE: dict[str, Callable[[], Any]] = {
    "annotated": lambda: AmqpAnnotatedMessage(data_body=b"b"),
    "annotated, with properties": lambda: AmqpAnnotatedMessage(
        data_body=b"b", properties=AmqpMessageProperties(subject="s")
    ),
    "id set to None": without_id,
    "a dictionary": lambda: {"body": "b"},
}


def own_id(message: Any) -> Any:
    if isinstance(message, dict):
        return message.get("message_id")
    if isinstance(message, ServiceBusMessage):
        return message.message_id
    return None if message.properties is None else message.properties.message_id


@pytest.mark.rule("S11")
@pytest.mark.parametrize("bare", BARE.values(), ids=BARE.keys())
async def test_message_without_an_id_gets_one_on_a_copy_for_each_call(
    pair: Pair, sender: Any, bare: Callable[[], Any]
) -> None:
    message = bare()
    sent(pair, sender)

    await sender.send_messages(message)
    await sender.send_messages(message)
    await sender.send_messages([message, message])
    await in_a_batch(sender, message, message)

    given = sent(pair, sender)
    assert len(set(given)) == len(given) == 6
    assert all(isinstance(item, str) and len(item) >= 32 for item in given)
    assert own_id(message) is None


@pytest.mark.rule("S11")
async def test_message_id_of_any_type_is_kept(pair: Pair, sender: Any) -> None:
    given = ["text", "", 17]
    messages = [
        AmqpAnnotatedMessage(data_body=b"b", properties=AmqpMessageProperties(message_id=item))
        for item in given
    ]
    own = ServiceBusMessage("b")
    sent(pair, sender)

    await sender.send_messages([*messages, own, {"body": "b", "message_id": "of a dictionary"}])

    assert sent(pair, sender) == [*given, own.message_id, "of a dictionary"]


@pytest.mark.rule("S11")
async def test_batch_that_is_sent_again_has_the_same_ids(
    pair: Pair, healthy: Any, failed: Any
) -> None:
    batch = await healthy.create_message_batch()
    batch.add_message(AmqpAnnotatedMessage(data_body=b"b"))
    sent(pair, healthy)

    await healthy.send_messages(batch)
    await healthy.send_messages(batch)
    await failed.send_messages(batch)

    first, second, in_backlog = sent(pair, healthy)
    assert first == second == in_backlog
    assert first is not None


@pytest.mark.rule("S11")
async def test_sdk_batch_is_sent_unchanged(pair: Pair, sender: Any) -> None:
    batch = ServiceBusMessageBatch()
    batch.add_message(AmqpAnnotatedMessage(data_body=b"b"))
    batch.add_message(ServiceBusMessage("b", message_id="its own"))
    before = deepcopy(batch._message)
    sent(pair, sender)

    await sender.send_messages(batch)

    (given, own) = sent(pair, sender)
    assert own == "its own"
    assert len(bytes.fromhex(given)) == 16  # an id of the namespace, not of the pairing
    assert batch._message == before


# Messages in both namespaces.


LOST: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "a message": lambda sender: sender.send_messages(ServiceBusMessage("b")),
    "annotated": lambda sender: sender.send_messages(AmqpAnnotatedMessage(data_body=b"b")),
    "a dictionary": lambda sender: sender.send_messages({"body": "b"}),
    "several": lambda sender: sender.send_messages(
        AmqpAnnotatedMessage(data_body=b"b") for _ in range(3)
    ),
    "a batch": lambda sender: in_a_batch(
        sender, AmqpAnnotatedMessage(data_body=b"b"), {"body": "b"}
    ),
}


async def in_a_batch(sender: Any, *messages: Any) -> None:
    batch = await sender.create_message_batch()
    for message in messages:
        batch.add_message(message)
    await sender.send_messages(batch)


@pytest.mark.rule("S11", "S3")
@pytest.mark.parametrize("send", LOST.values(), ids=LOST.keys())
async def test_message_whose_acknowledgement_was_lost_is_delivered_once(
    pair: Pair, send: Callable[[Any], Awaitable[Any]]
) -> None:
    path = pair.queue(requires_duplicate_detection=True)
    fault = pair.fault("lose-answer", path, count=1)
    pair.new_in_backlog()

    await send(pair.sender(path))

    assert fault.fired == 1
    assert pair.state(path) is PathStatus.FAILOVER
    in_primary, in_backlog = pair.new_in(pair.primary, path), pair.new_in_backlog()
    assert ids(in_primary) == ids(in_backlog)
    assert None not in ids(in_primary)

    # Drain the backlog as a syphon does.
    with client_of(pair.primary) as client:
        again = Sender(client, path)
        for payload in in_backlog:
            again.send(from_backlog(payload).payload)
        again.send(Message.build(data=b"the last").encode())

    assert [body_of(payload) for payload in pair.new_in(pair.primary, path)] == [b"the last"]


# The check for duplicate detection.


def warnings_of(caplog: pytest.LogCaptureFixture, path: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and path.lower() in record.getMessage().lower()
    ]


@pytest.mark.rule("S11")
@pytest.mark.parametrize("topic", [False, True], ids=["queue", "topic"])
async def test_missing_duplicate_detection_is_warned_about_once(
    make: Make, caplog: pytest.LogCaptureFixture, topic: bool
) -> None:
    pair = await make(check_duplicate_detection=True)
    entity = pair.topic if topic else pair.queue
    with_it, without = entity(requires_duplicate_detection=True), entity()

    with caplog.at_level(logging.DEBUG, "pairbus.pairing"):
        for path in (with_it, without, without, without.upper()):
            pair.sender(path, topic=topic)
        await until(lambda: warnings_of(caplog, without), "the warning")
        other = entity()
        pair.sender(other, topic=topic)
        await until(lambda: warnings_of(caplog, other), "the next warning")

    (warning,) = warnings_of(caplog, without)
    assert "has no duplicate detection" in warning
    assert warnings_of(caplog, with_it) == []


@pytest.mark.rule("S11")
async def test_no_warning_without_the_manage_right_or_without_the_option(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    silent, pair = await make(check_duplicate_detection=False), await make(start=False)
    text = pair.primary.connection_string_of(SENDS.name, SENDS.primary_key)
    await pair.start(primary=pair.connect(text), check_duplicate_detection=True)
    path = pair.queue()

    with caplog.at_level(logging.DEBUG, "pairbus.pairing"):
        silent.sender(path)
        await pair.sender(path).send_messages(ServiceBusMessage("b"))
        await until(lambda: "could not check" in caplog.text, "the check to fail")

    assert warnings_of(caplog, path) == []
    assert caplog.text.count("could not check") == 1
