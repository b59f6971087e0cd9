"""While the primary is healthy, a paired sender has the bytes, results and errors of an SDK sender.

Each call is made twice, with the plain SDK and with the pairing, and must have the same result.
"""

from collections.abc import Awaitable, Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from pairbus.amqp.sections import MESSAGE_ID, Message
from pairbus.events import PathStatus
from tests.integration.deliveries import Deliveries, Delivery
from tests.integration.pairs import LISTENS, Make, Pair, gather_all
from tests.unit.test_transfer import PLAIN, without_derived_times

pytestmark = pytest.mark.asyncio(loop_scope="module")

LATER = datetime(2999, 1, 1, 12, 30, 15, 250_000, tzinfo=UTC)

Call = Callable[[Any], Awaitable[Any]]


class SenderPair:
    """A plain and a paired sender, each with its own queue, and the same for a topic."""

    def __init__(self, pair: Pair, deliveries: Deliveries) -> None:
        self.pair = pair
        self.plain_client = pair.connect()
        self._deliveries = deliveries
        self.plain, self.paired = self.both()
        self.plain_topic, self.paired_topic = self.both(topic=True)

    def both(self, *, topic: bool = False) -> tuple[Any, ...]:
        make = self.pair.topic if topic else self.pair.queue
        return tuple(
            self.pair.sender(make(), topic=topic, client=client)
            for client in (self.plain_client, self.pair.bus)
        )

    async def each(self, call: Call, *, topic: bool = False) -> list[list[Delivery]]:
        """Make a call with each sender, and return what reached the primary."""
        senders = (self.plain_topic, self.paired_topic) if topic else (self.plain, self.paired)
        results, reached = [], []
        for sender in senders:
            self._deliveries.new(self.pair.primary, sender.entity_name)
            results.append(await call(sender))
            reached.append(self._deliveries.new(self.pair.primary, sender.entity_name))
        assert [type(result) for result in results] == [type(results[0])] * 2
        assert self.pair.new_in_backlog() == []
        return reached


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sender_pair(pair: Pair, deliveries: Deliveries) -> SenderPair:
    return SenderPair(pair, deliveries)


def comparable(arrived: list[Delivery]) -> list[tuple[int | None, bytes]]:
    """Return everything but the path, without the times that the SDK derives from the
    time-to-live when it sends."""
    return [
        (delivery.message_format, without_derived_times(delivery.payload))
        if delivery.message_format == 0
        else (delivery.message_format, delivery.payload)
        for delivery in arrived
    ]


def with_ids(made: Any) -> Any:
    """Return a message with an id, so that pairing adds none."""
    if isinstance(made, dict):
        return {"message_id": "of a dictionary", **made}
    if isinstance(made, AmqpAnnotatedMessage):
        made.properties = AmqpMessageProperties() if made.properties is None else made.properties
        if made.properties.message_id is None:
            made.properties.message_id = "of an annotated message"
    return made


def in_a_batch(*messages: Any) -> Call:
    async def send(sender: Any) -> None:
        batch = await sender.create_message_batch()
        for message in deepcopy(messages):
            batch.add_message(message)
        assert isinstance(batch, ServiceBusMessageBatch)
        await sender.send_messages(batch)

    return send


def add_to_batch(size: int | None, message: Any) -> Call:
    async def add(sender: Any) -> None:
        (await sender.create_message_batch(size)).add_message(message)

    return add


# The bytes.


@pytest.mark.rule("S1")
@pytest.mark.parametrize("topic", [False, True], ids=["queue", "topic"])
async def test_every_kind_of_message_reaches_the_primary_with_the_same_bytes(
    sender_pair: SenderPair, topic: bool
) -> None:
    for name, make in PLAIN.items():
        message = with_ids(make())

        plain, paired = await sender_pair.each(
            lambda sender, it=message: sender.send_messages(deepcopy(it)), topic=topic
        )

        assert len(plain) == 1, name
        assert comparable(paired) == comparable(plain), name
        if "time-to-live" not in name and name != "all of it":
            assert [item.payload for item in paired] == [item.payload for item in plain], name


MANY = [
    ServiceBusMessage("one", session_id="s", partition_key="s"),
    {"body": "two", "message_id": "2"},
    with_ids(AmqpAnnotatedMessage(value_body={"three": 3})),
    ServiceBusMessage("four" * 1000, application_properties={"a": b"b", b"c": 1.5}),
]
WAYS: dict[str, Call] = {
    "a list": lambda sender: sender.send_messages(deepcopy(MANY)),
    "a list of one": lambda sender: sender.send_messages(deepcopy(MANY[:1])),
    "a tuple": lambda sender: sender.send_messages(tuple(deepcopy(MANY))),
    "a generator": lambda sender: sender.send_messages(item for item in deepcopy(MANY)),
    "nothing": lambda sender: sender.send_messages([]),
    "a batch": in_a_batch(*MANY),
    "a batch of one": in_a_batch(MANY[0]),
    "an empty batch": in_a_batch(),
    "with a timeout": lambda sender: sender.send_messages(deepcopy(MANY), timeout=10),
}


@pytest.mark.rule("S1")
@pytest.mark.parametrize("call", WAYS.values(), ids=WAYS.keys())
async def test_several_messages_are_one_delivery_with_the_same_bytes_and_envelope(
    sender_pair: SenderPair, call: Call
) -> None:
    plain, paired = await sender_pair.each(call)

    assert comparable(paired) == comparable(plain)
    assert len(plain) <= 1


@pytest.mark.rule("S1", "S10")
@pytest.mark.parametrize(
    "messages", [MANY[0], MANY, MANY[1:2], []], ids=["one", "several", "a list of one", "none"]
)
async def test_scheduling_sends_the_same_request_to_the_primary(
    sender_pair: SenderPair, messages: Any
) -> None:
    plain, paired = await sender_pair.each(
        lambda sender: sender.schedule_messages(deepcopy(messages), LATER)
    )

    assert comparable(paired) == comparable(plain)
    assert len(plain) == (messages != [])


@pytest.mark.rule("S1", "S11")
async def test_message_without_an_id_differs_by_its_id_only(sender_pair: SenderPair) -> None:
    bare = AmqpAnnotatedMessage(
        data_body=b"body", properties=AmqpMessageProperties(subject="s", group_id="g")
    )

    reached = await sender_pair.each(lambda sender: sender.send_messages(deepcopy(bare)))

    plain, paired = (Message.parse(delivery.payload) for (delivery,) in reached)

    assert plain.read_properties().message_id is None
    assert isinstance(paired.read_properties().message_id, str)
    for message in (plain, paired):
        message.edit_properties({MESSAGE_ID: None})
    assert paired.encode() == plain.encode()


@pytest.mark.rule("S1")
async def test_meter_of_the_primary_counts_the_same_with_and_without_pairing(
    sender_pair: SenderPair,
) -> None:
    senders = sender_pair.both()
    for sender in senders:
        for way in WAYS.values():
            await way(sender)
        number = await sender.schedule_messages(deepcopy(MANY[0]), LATER)
        await sender.cancel_scheduled_messages(number)

    meter = sender_pair.pair.primary.meter()
    plain, paired = (
        {kind: reading for (path, kind), reading in meter.items() if path == sender.entity_name}
        for sender in senders
    )
    assert plain["send"].messages == 4 * 5 + 2
    assert paired == plain
    # No administration request was sent either.
    entities = {path for path, _ in meter}
    assert entities == {path for path in entities if path.startswith(("Queue-", "Topic-"))}


# The errors.


async def outcome(call: Call, sender: Any) -> tuple[type[BaseException], str]:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        await call(sender)
    return raised.type, str(raised.value).replace(sender.entity_name, "<path>")


BAD: dict[str, Call] = {
    "a number": lambda sender: sender.send_messages(5),
    "none": lambda sender: sender.send_messages(None),
    "text": lambda sender: sender.send_messages("text"),
    "bytes": lambda sender: sender.send_messages(b"bytes"),
    "a dictionary that is no message": lambda sender: sender.send_messages({"subject": "s"}),
    "a dictionary with a wrong body": lambda sender: sender.send_messages({"body": 5}),
    "a dictionary with a wrong value": lambda sender: sender.send_messages(
        {"body": "b", "session_id": "s" * 129}
    ),
    "a list with something else": lambda sender: sender.send_messages(
        [ServiceBusMessage("b"), object()]
    ),
    "a list of lists": lambda sender: sender.send_messages([[ServiceBusMessage("b")]]),
    "a generator that fails": lambda sender: sender.send_messages(1 / number for number in (0,)),
    "not encodable": lambda sender: sender.send_messages(
        ServiceBusMessage("b", application_properties={"a": {1}})
    ),
    "not encodable, in a list": lambda sender: sender.send_messages(
        [ServiceBusMessage("b", application_properties={"a": {1}})]
    ),
    "not text": lambda sender: sender.send_messages(
        ServiceBusMessage("b", application_properties={"a": b"\xff"})
    ),
    "too large": lambda sender: sender.send_messages(ServiceBusMessage(b"x" * 300_000)),
    "too large together": lambda sender: sender.send_messages(
        [ServiceBusMessage(b"x" * 200_000), ServiceBusMessage(b"x" * 200_000)]
    ),
    "too large for a batch": add_to_batch(50, ServiceBusMessage(b"x" * 50)),
    "no message for a batch": add_to_batch(None, 5),
    "a batch that is too large": lambda sender: sender.create_message_batch(256 * 1024 + 1),
    "timeout 0": lambda sender: sender.send_messages(ServiceBusMessage("b"), timeout=0),
    "timeout below 0": lambda sender: sender.send_messages(ServiceBusMessage("b"), timeout=-1),
    "timeout of text": lambda sender: sender.send_messages(ServiceBusMessage("b"), timeout="1"),
    "an option that is none": lambda sender: sender.send_messages(ServiceBusMessage("b"), to=1),
    "scheduled number": lambda sender: sender.schedule_messages(5, LATER),
    "scheduled batch": lambda sender: sender.schedule_messages(ServiceBusMessageBatch(), LATER),
    "scheduled, timeout 0": lambda sender: sender.schedule_messages(
        ServiceBusMessage("b"), LATER, timeout=0
    ),
    "scheduled, an option that is none": lambda sender: sender.schedule_messages(
        ServiceBusMessage("b"), LATER, to=1
    ),
    "cancelled, not there": lambda sender: sender.cancel_scheduled_messages(987654321),
    "cancelled, timeout 0": lambda sender: sender.cancel_scheduled_messages(1, timeout=0),
    "cancelled, no number": lambda sender: sender.cancel_scheduled_messages(1.5),
}


@pytest.mark.unlimited
@pytest.mark.rule("S1")
@pytest.mark.parametrize("call", BAD.values(), ids=BAD.keys())
async def test_bad_input_raises_the_error_of_the_sdk(sender_pair: SenderPair, call: Call) -> None:
    assert await outcome(call, sender_pair.paired) == await outcome(call, sender_pair.plain)

    assert sender_pair.pair.state(sender_pair.paired.entity_name) is PathStatus.HEALTHY
    await sender_pair.paired.send_messages(ServiceBusMessage("next"))


CALLS: dict[str, Call] = {
    "enter": lambda sender: sender.__aenter__(),
    "send": lambda sender: sender.send_messages(ServiceBusMessage("b")),
    "send several": lambda sender: sender.send_messages([ServiceBusMessage("b")]),
    "schedule": lambda sender: sender.schedule_messages(ServiceBusMessage("b"), LATER),
    "cancel": lambda sender: sender.cancel_scheduled_messages(1),
    "batch": lambda sender: sender.create_message_batch(),
}


async def check_same_errors(plain: Callable[[], Any], paired: Callable[[], Any]) -> None:
    """Make each call with senders of both kinds, all calls at the same time."""
    of_plain = gather_all(outcome(call, plain()) for call in CALLS.values())
    of_paired = gather_all(outcome(call, paired()) for call in CALLS.values())
    assert await of_paired == await of_plain


@pytest.mark.rule("S1")
@pytest.mark.parametrize("topic", [False, True], ids=["queue", "topic"])
async def test_missing_entity_raises_the_error_of_the_sdk(
    sender_pair: SenderPair, topic: bool
) -> None:
    pair = sender_pair.pair
    await check_same_errors(
        lambda: pair.sender("nowhere", topic=topic, client=sender_pair.plain_client),
        lambda: pair.sender("nowhere", topic=topic),
    )

    assert pair.state("nowhere") is PathStatus.HEALTHY


@pytest.mark.rule("S1")
async def test_missing_right_raises_the_error_of_the_sdk(make: Make) -> None:
    pair = await make(start=False)
    text = pair.primary.connection_string_of(LISTENS.name, LISTENS.primary_key)
    plain_client = pair.connect(text)
    await pair.start(primary=pair.connect(text))
    path = pair.queue()

    await check_same_errors(
        lambda: pair.sender(path, client=plain_client), lambda: pair.sender(path)
    )

    assert pair.state(path) is PathStatus.HEALTHY


@pytest.mark.rule("S1", "S14")
async def test_closed_sender_raises_the_error_of_the_sdk(sender_pair: SenderPair) -> None:
    plain, paired = sender_pair.both()
    async with plain, paired:
        pass
    for sender in (plain, paired):
        await sender.close()

    await check_same_errors(lambda: plain, lambda: paired)


@pytest.mark.rule("S1", "S14")
async def test_closing_a_client_closes_its_senders_and_can_be_repeated(make: Make) -> None:
    pair = await make()
    clients = pair.connect(), pair.bus
    plain, paired = senders = [pair.sender(pair.queue(), client=client) for client in clients]
    for client, sender in zip(clients, senders, strict=True):
        await sender.send_messages(ServiceBusMessage("acknowledged"))
        await pair.do(client.close)
        await pair.do(client.close)

    await check_same_errors(lambda: plain, lambda: paired)
    for sender in senders:
        assert len(pair.arrived(sender.entity_name)) == 1


# Other properties of a sender.


@pytest.mark.rule("S1")
async def test_sender_has_the_properties_of_an_sdk_sender(sender_pair: SenderPair) -> None:
    for client in (sender_pair.plain_client, sender_pair.pair.bus):
        sender = sender_pair.pair.sender("Some-Queue", client=client, client_identifier="mine")
        assert sender.client_identifier == "mine"
        assert sender.entity_name == "Some-Queue"
        assert sender.fully_qualified_namespace == sender_pair.plain.fully_qualified_namespace
        text = str(sender_pair.pair.inner(sender))
        assert text == "Sender client id: mine, entity: Some-Queue"
    assert (
        sender_pair.pair.bus.fully_qualified_namespace
        == sender_pair.plain_client.fully_qualified_namespace
    )
    assert sender_pair.paired.client_identifier.startswith("SBSender-")
    assert sender_pair.paired.client_identifier == sender_pair.paired.client_identifier
    assert str(sender_pair.pair.inner(sender_pair.paired)).startswith("Sender client id: SBSender-")


@pytest.mark.unlimited
@pytest.mark.rule("S1")
async def test_batch_is_an_sdk_batch_with_the_requested_limit(sender_pair: SenderPair) -> None:
    sizes = set()
    for sender in (sender_pair.plain, sender_pair.paired):
        for requested, expected in ((None, 256 * 1024), (0, 256 * 1024), (1000, 1000)):
            batch = await sender.create_message_batch(requested)
            assert isinstance(batch, ServiceBusMessageBatch)
            assert batch.max_size_in_bytes == expected
        batch.add_message(ServiceBusMessage("b", message_id="1"))
        batch.add_message({"body": "b", "message_id": "2"})
        assert len(batch) == 2
        assert repr(batch) == "ServiceBusMessageBatch(max_size_in_bytes=1000, message_count=2)"
        sizes.add(batch.size_in_bytes)
    assert len(sizes) == 1


@pytest.mark.rule("S1")
async def test_receivers_are_those_of_the_primary(sender_pair: SenderPair) -> None:
    path, topic = sender_pair.pair.queue(), sender_pair.pair.topic()
    for make, names in (
        ("get_queue_receiver", (path,)),
        ("get_subscription_receiver", (topic, "all")),
    ):
        plain, paired = (
            getattr(client, make)(*names)
            for client in (sender_pair.plain_client, sender_pair.pair.bus)
        )
        sender_pair.pair.keep(plain)
        sender_pair.pair.keep(paired)
        assert type(paired) is type(plain)
        assert paired.entity_path == plain.entity_path
