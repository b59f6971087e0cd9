"""Message ids in primary and backlog, and messages whose acknowledgement was lost."""

import logging
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from pairbus.amqp.client import Sender
from pairbus.amqp.sections import Message
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.events import PathStatus
from pairbus.transfer import from_backlog
from tests.integration.emulator_clients import client_of
from tests.integration.pairing_kit import World, body_of, quick_sender, state
from tests.integration.waiting import wait_until

pytestmark = [
    # The SDK does not close its sockets.
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"),
]

SENDS = SharedAccessRule(name="sends", primary_key="key-of-sends", rights=frozenset([Right.SEND]))


class Ids(World):
    def __enter__(self) -> "Ids":
        super().__enter__()
        self.bus = self.pair()
        self.healthy = self.keep(quick_sender(self.bus, self.queue()))
        self.failed = self.keep(quick_sender(self.bus, self.queue()))
        self.fail_over(self.failed)
        self.in_backlog()
        return self

    def sent(self, sender: Any) -> list[Any]:
        """Return the ids that a sender stored since the last call."""
        if sender is self.healthy:
            return ids(self.stored(self.primary, sender.entity_name))
        return ids(self.in_backlog())


@pytest.fixture(scope="module", params=["sync", "aio"])
def world(request: pytest.FixtureRequest) -> Iterator[Ids]:
    with Ids(request.param, rules=[SENDS]) as world:
        yield world


def ids(payloads: list[bytes]) -> list[Any]:
    return [Message.parse(one).read_properties().message_id for one in payloads]


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


def id_of(message: Any) -> Any:
    if isinstance(message, dict):
        return message.get("message_id")
    if isinstance(message, ServiceBusMessage):
        return message.message_id
    return None if message.properties is None else message.properties.message_id


@pytest.mark.rule("S11")
@pytest.mark.parametrize("where", ["healthy", "failed"])
@pytest.mark.parametrize("make", BARE.values(), ids=BARE.keys())
def test_message_without_an_id_gets_one_on_a_copy_for_each_call(
    world: Ids, make: Callable[[], Any], where: str
):
    sender = getattr(world, where)
    message = make()
    world.sent(sender)

    sender.send_messages(message)
    sender.send_messages(message)
    sender.send_messages([message, message])
    batch = sender.create_message_batch()
    batch.add_message(message)
    batch.add_message(message)
    sender.send_messages(batch)

    given = world.sent(sender)
    assert len(set(given)) == len(given) == 6
    assert all(isinstance(one, str) and len(one) >= 32 for one in given)
    assert id_of(message) is None


@pytest.mark.rule("S11")
@pytest.mark.parametrize("where", ["healthy", "failed"])
def test_message_id_of_any_type_is_kept(world: Ids, where: str):
    sender = getattr(world, where)
    given = ["text", "", 17]
    messages = [
        AmqpAnnotatedMessage(data_body=b"b", properties=AmqpMessageProperties(message_id=one))
        for one in given
    ]
    own = ServiceBusMessage("b")
    world.sent(sender)

    sender.send_messages([*messages, own, {"body": "b", "message_id": "of a dictionary"}])

    assert world.sent(sender) == [*given, own.message_id, "of a dictionary"]


@pytest.mark.rule("S11")
def test_batch_that_is_sent_again_has_the_same_ids(world: Ids):
    batch = world.healthy.create_message_batch()
    batch.add_message(AmqpAnnotatedMessage(data_body=b"b"))
    world.sent(world.healthy)

    world.healthy.send_messages(batch)
    world.healthy.send_messages(batch)
    world.failed.send_messages(batch)

    first, second = world.sent(world.healthy)
    assert [first] == [second] == world.sent(world.failed)
    assert first is not None


@pytest.mark.rule("S11")
@pytest.mark.parametrize("where", ["healthy", "failed"])
def test_sdk_batch_is_sent_unchanged(world: Ids, where: str):
    batch = ServiceBusMessageBatch()
    batch.add_message(AmqpAnnotatedMessage(data_body=b"b"))
    batch.add_message(ServiceBusMessage("b", message_id="its own"))
    before = deepcopy(batch._message)
    world.sent(getattr(world, where))

    getattr(world, where).send_messages(batch)

    assert world.sent(getattr(world, where)) == [None, "its own"]
    assert batch._message == before


# Messages in both namespaces.


LOST: dict[str, Callable[[Any], Any]] = {
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


def in_a_batch(sender: Any, *messages: Any) -> None:
    batch = sender.create_message_batch()
    for message in messages:
        batch.add_message(message)
    sender.send_messages(batch)


@pytest.mark.rule("S11", "S3")
@pytest.mark.parametrize("do", LOST.values(), ids=LOST.keys())
def test_message_whose_acknowledgement_was_lost_is_delivered_once(
    world: Ids, do: Callable[[Any], Any]
):
    path = world.queue(requires_duplicate_detection=True)
    sender = world.keep(quick_sender(world.bus, path))
    fault = world.primary.add_fault("lose-answer", path, count=1)
    world.in_backlog()

    do(sender)

    assert fault.fired == 1
    assert state(world.bus, path) is PathStatus.FAILOVER
    in_primary, in_backlog = world.stored(world.primary, path), world.in_backlog()
    assert ids(in_primary) == ids(in_backlog)
    assert None not in ids(in_primary)

    # Drain the backlog as a syphon does.
    with client_of(world.primary) as client:
        again = Sender(client, path)
        for payload in in_backlog:
            again.send(from_backlog(payload).payload)
        again.send(Message.build(data=b"the last").encode())

    assert [body_of(Message.parse(one)) for one in world.stored(world.primary, path)] == [
        b"the last"
    ]


# The check for duplicate detection.


def warnings_of(caplog: pytest.LogCaptureFixture, path: str) -> list[str]:
    return [
        one.getMessage()
        for one in caplog.records
        if one.levelno >= logging.WARNING and path.lower() in one.getMessage().lower()
    ]


@pytest.mark.rule("S11")
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_missing_duplicate_detection_is_warned_about_once(
    world: Ids, caplog: pytest.LogCaptureFixture, kind: str
):
    bus = world.pair(check_duplicate_detection=True)
    make = world.queue if kind == "queue" else world.topic
    with_it, without = make(requires_duplicate_detection=True), make()

    with caplog.at_level(logging.DEBUG, "pairbus.pairing"):
        for path in (with_it, without, without, without.upper()):
            world.keep(quick_sender(bus, path, topic=kind == "topic"))
        wait_until(lambda: bool(warnings_of(caplog, without)), "the warning")
        other = make()
        world.keep(quick_sender(bus, other, topic=kind == "topic"))
        wait_until(lambda: bool(warnings_of(caplog, other)), "the next warning")

    (warning,) = warnings_of(caplog, without)
    assert "has no duplicate detection" in warning
    assert warnings_of(caplog, with_it) == []


@pytest.mark.rule("S11")
def test_no_warning_without_the_manage_right_or_without_the_option(
    world: Ids, caplog: pytest.LogCaptureFixture
):
    text = world.primary.connection_string_of("sends", "key-of-sends")
    path = world.queue()
    bus = world.pair(world.client(text), check_duplicate_detection=True)
    silent = world.pair(check_duplicate_detection=False)

    with caplog.at_level(logging.DEBUG, "pairbus.pairing"):
        world.keep(quick_sender(silent, path))
        with quick_sender(bus, path) as sender:
            sender.send_messages(ServiceBusMessage("b"))
        wait_until(lambda: "could not check" in caplog.text, "the check to fail")

    assert warnings_of(caplog, path) == []
    assert caplog.text.count("could not check") == 1
