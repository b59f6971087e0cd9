"""While the primary is healthy, a paired sender has the bytes, results and errors of an SDK sender.

Each call is made twice, with the plain SDK and with the pairing, and must have the same result.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from pairbus.amqp.sections import MESSAGE_ID, Message
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.events import PathStatus
from tests.integration.pairing_kit import Arrived, World, quick_sender, state
from tests.unit.test_transfer import PLAIN, without_derived_times

pytestmark = [
    # The SDK does not close its sockets.
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"),
]

LISTENS = SharedAccessRule(
    name="listens", primary_key="key-of-listens", rights=frozenset([Right.LISTEN])
)
LATER = datetime(2999, 1, 1, 12, 30, 15, 250_000, tzinfo=UTC)


class Twins(World):
    """A plain and a paired sender, each with its own queue."""

    def __enter__(self) -> "Twins":
        super().__enter__()
        self.plain_client = self.client()
        self.bus = self.pair()
        self.plain, self.paired = self.both()
        self.plain_topic, self.paired_topic = self.both(topic=True)
        return self

    def both(self, path: str | None = None, *, topic: bool = False) -> tuple[Any, Any]:
        make = self.topic if topic else self.queue
        return tuple(
            self.keep(quick_sender(client, make() if path is None else path, topic=topic))
            for client in (self.plain_client, self.bus)
        )

    def each(
        self, do: Callable[[Any], Any], *, topic: bool = False
    ) -> tuple[list[Arrived], list[Arrived]]:
        """Use each sender, and return what reached the primary."""
        senders = (self.plain_topic, self.paired_topic) if topic else (self.plain, self.paired)
        results, arrived = [], []
        for sender in senders:
            self.arrived(self.primary, sender.entity_name)
            results.append(do(sender))
            arrived.append(self.arrived(self.primary, sender.entity_name))
        assert [type(one) for one in results] == [type(results[0])] * 2
        assert self.arrived_anywhere_in_the_backlog() == []
        return arrived[0], arrived[1]

    def arrived_anywhere_in_the_backlog(self) -> list[Any]:
        return [one for queue in self.bus.backlog_queues for one in self.in_backlog(queue)]


@pytest.fixture(scope="module", params=["sync", "aio"])
def twins(request: pytest.FixtureRequest) -> Iterator[Twins]:
    with Twins(request.param, rules=[LISTENS]) as twins:
        yield twins


def shown(arrived: list[Arrived]) -> list[tuple[int | None, bytes]]:
    """Return everything but the path, without the times that the SDK derives from the
    time-to-live when it sends."""
    return [
        (one.message_format, without_derived_times(one.payload))
        if one.message_format == 0
        else (one.message_format, one.payload)
        for one in arrived
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


def in_a_batch(*messages: Any) -> Callable[[Any], None]:
    def send(sender: Any) -> None:
        batch = sender.create_message_batch()
        for message in deepcopy(messages):
            batch.add_message(message)
        assert isinstance(batch, ServiceBusMessageBatch)
        sender.send_messages(batch)

    return send


# The bytes.


@pytest.mark.rule("S1")
@pytest.mark.parametrize("topic", [False, True], ids=["queue", "topic"])
def test_every_kind_of_message_reaches_the_primary_with_the_same_bytes(twins: Twins, topic: bool):
    for name, make in PLAIN.items():
        message = with_ids(make())

        plain, paired = twins.each(
            lambda sender, it=message: sender.send_messages(deepcopy(it)), topic=topic
        )

        assert len(plain) == 1, name
        assert shown(paired) == shown(plain), name
        if "time-to-live" not in name and name != "all of it":
            assert [one.payload for one in paired] == [one.payload for one in plain], name


MANY = [
    ServiceBusMessage("one", session_id="s", partition_key="s"),
    {"body": "two", "message_id": "2"},
    with_ids(AmqpAnnotatedMessage(value_body={"three": 3})),
    ServiceBusMessage("four" * 1000, application_properties={"a": b"b", b"c": 1.5}),
]
WAYS: dict[str, Callable[[Any], Any]] = {
    "a list": lambda sender: sender.send_messages(deepcopy(MANY)),
    "a list of one": lambda sender: sender.send_messages(deepcopy(MANY[:1])),
    "a tuple": lambda sender: sender.send_messages(tuple(deepcopy(MANY))),
    "a generator": lambda sender: sender.send_messages(one for one in deepcopy(MANY)),
    "nothing": lambda sender: sender.send_messages([]),
    "a batch": in_a_batch(*MANY),
    "a batch of one": in_a_batch(MANY[0]),
    "an empty batch": in_a_batch(),
    "with a timeout": lambda sender: sender.send_messages(deepcopy(MANY), timeout=10),
}


@pytest.mark.rule("S1")
@pytest.mark.parametrize("do", WAYS.values(), ids=WAYS.keys())
def test_several_messages_are_one_delivery_with_the_same_bytes_and_envelope(
    twins: Twins, do: Callable[[Any], Any]
):
    plain, paired = twins.each(do)

    assert shown(paired) == shown(plain)
    assert len(plain) <= 1


@pytest.mark.rule("S1", "S10")
@pytest.mark.parametrize(
    "messages", [MANY[0], MANY, MANY[1:2], []], ids=["one", "several", "a list of one", "none"]
)
def test_scheduling_sends_the_same_request_to_the_primary(twins: Twins, messages: Any):
    plain, paired = twins.each(lambda sender: sender.schedule_messages(deepcopy(messages), LATER))

    assert shown(paired) == shown(plain)
    assert len(plain) == (messages != [])


@pytest.mark.rule("S1", "S11")
def test_message_without_an_id_differs_by_its_id_only(twins: Twins):
    bare = AmqpAnnotatedMessage(
        data_body=b"body", properties=AmqpMessageProperties(subject="s", group_id="g")
    )

    plain, paired = (
        Message.parse(arrived.payload)
        for (arrived,) in twins.each(lambda sender: sender.send_messages(deepcopy(bare)))
    )

    assert plain.read_properties().message_id is None
    assert isinstance(paired.read_properties().message_id, str)
    for message in (plain, paired):
        message.edit_properties({MESSAGE_ID: None})
    assert paired.encode() == plain.encode()


@pytest.mark.rule("S1")
def test_meter_of_the_primary_counts_the_same_with_and_without_pairing(twins: Twins):
    plain, paired = twins.both()
    for sender in (plain, paired):
        with sender:
            for way in WAYS.values():
                way(sender)
            number = sender.schedule_messages(deepcopy(MANY[0]), LATER)
            sender.cancel_scheduled_messages(number)

    meter = twins.primary.meter()
    read = {
        sender.entity_name: {
            kind: reading for (path, kind), reading in meter.items() if path == sender.entity_name
        }
        for sender in (plain, paired)
    }
    assert read[plain.entity_name]["send"].messages == 4 * 5 + 2
    assert read[paired.entity_name] == read[plain.entity_name]
    # No administration request was sent either.
    entities = {path for path, _ in meter}
    assert entities == {path for path in entities if path.startswith(("Queue-", "Topic-"))}


# The errors.


def outcome(do: Callable[[Any], Any], sender: Any) -> tuple[type[BaseException], str]:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        do(sender)
    return raised.type, str(raised.value).replace(sender.entity_name, "<path>")


BAD: dict[str, Callable[[Any], Any]] = {
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
    "a generator that fails": lambda sender: sender.send_messages(1 / one for one in (0,)),
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
    "too large for a batch": lambda sender: sender.create_message_batch(50).add_message(
        ServiceBusMessage(b"x" * 50)
    ),
    "no message for a batch": lambda sender: sender.create_message_batch().add_message(5),
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


@pytest.mark.rule("S1")
@pytest.mark.parametrize("do", BAD.values(), ids=BAD.keys())
def test_bad_input_raises_the_error_of_the_sdk(twins: Twins, do: Callable[[Any], Any]):
    assert outcome(do, twins.paired) == outcome(do, twins.plain)

    assert state(twins.bus, twins.paired.entity_name) is PathStatus.HEALTHY
    twins.paired.send_messages(ServiceBusMessage("goes on"))


CALLS: dict[str, Callable[[Any], Any]] = {
    "enter": lambda sender: sender.__enter__(),
    "send": lambda sender: sender.send_messages(ServiceBusMessage("b")),
    "send several": lambda sender: sender.send_messages([ServiceBusMessage("b")]),
    "schedule": lambda sender: sender.schedule_messages(ServiceBusMessage("b"), LATER),
    "cancel": lambda sender: sender.cancel_scheduled_messages(1),
    "batch": lambda sender: sender.create_message_batch(),
}


def check_same_errors(make_plain: Callable[[], Any], make_paired: Callable[[], Any]) -> None:
    """Make each call with new senders, all at the same time, because the SDK opens links slowly."""

    def errors(do: Callable[[Any], Any]) -> list[Any]:
        return [outcome(do, make()) for make in (make_plain, make_paired)]

    with ThreadPoolExecutor(len(CALLS)) as pool:
        for plain, paired in pool.map(errors, CALLS.values()):
            assert paired == plain


@pytest.mark.rule("S1")
@pytest.mark.parametrize("topic", [False, True], ids=["queue", "topic"])
def test_missing_entity_raises_the_error_of_the_sdk(twins: Twins, topic: bool):
    check_same_errors(
        lambda: twins.keep(quick_sender(twins.plain_client, "nowhere", topic=topic)),
        lambda: twins.keep(quick_sender(twins.bus, "nowhere", topic=topic)),
    )

    assert state(twins.bus, "nowhere") is PathStatus.HEALTHY


@pytest.mark.rule("S1")
def test_missing_right_raises_the_error_of_the_sdk(twins: Twins):
    text = twins.primary.connection_string_of("listens", "key-of-listens")
    path = twins.queue()
    client = twins.client(text)
    bus = twins.pair(twins.client(text))

    check_same_errors(
        lambda: twins.keep(quick_sender(client, path)),
        lambda: twins.keep(quick_sender(bus, path)),
    )

    assert state(bus, path) is PathStatus.HEALTHY


@pytest.mark.rule("S1", "S14")
def test_closed_sender_raises_the_error_of_the_sdk(twins: Twins):
    plain, paired = twins.both()
    with plain, paired:
        pass
    for sender in (plain, paired):
        sender.close()

    for do in CALLS.values():
        assert outcome(do, paired) == outcome(do, plain)


@pytest.mark.rule("S1", "S14")
def test_closing_a_client_closes_its_senders_and_can_be_repeated(twins: Twins):
    clients = twins.client(), twins.pair()
    senders = [twins.keep(quick_sender(client, twins.queue())) for client in clients]
    for client, sender in zip(clients, senders, strict=True):
        sender.send_messages(ServiceBusMessage("acknowledged"))
        client.close()
        client.close()

    plain, paired = senders
    for do in CALLS.values():
        assert outcome(do, paired) == outcome(do, plain)
    for sender in senders:
        assert len(twins.stored(twins.primary, sender.entity_name)) == 1


# Other properties of a sender.


@pytest.mark.rule("S1")
def test_sender_has_the_properties_of_an_sdk_sender(twins: Twins):
    for client in (twins.plain_client, twins.bus):
        sender = twins.keep(quick_sender(client, "Some-Queue", client_identifier="mine"))
        assert sender.client_identifier == "mine"
        assert sender.entity_name == "Some-Queue"
        assert sender.fully_qualified_namespace == twins.plain.fully_qualified_namespace
        assert str(sender) == "Sender client id: mine, entity: Some-Queue"
    assert twins.bus.fully_qualified_namespace == twins.plain_client.fully_qualified_namespace
    assert twins.paired.client_identifier.startswith("SBSender-")
    assert twins.paired.client_identifier == twins.paired.client_identifier
    assert str(twins.paired).startswith("Sender client id: SBSender-")


@pytest.mark.rule("S1")
def test_batch_is_an_sdk_batch_with_the_requested_limit(twins: Twins):
    sizes = set()
    for sender in (twins.plain, twins.paired):
        for asked, given in ((None, 256 * 1024), (0, 256 * 1024), (1000, 1000)):
            batch = sender.create_message_batch(asked)
            assert isinstance(batch, ServiceBusMessageBatch)
            assert batch.max_size_in_bytes == given
        batch.add_message(ServiceBusMessage("b", message_id="1"))
        batch.add_message({"body": "b", "message_id": "2"})
        assert len(batch) == 2
        assert repr(batch) == "ServiceBusMessageBatch(max_size_in_bytes=1000, message_count=2)"
        sizes.add(batch.size_in_bytes)
    assert len(sizes) == 1


@pytest.mark.rule("S1")
def test_receivers_are_those_of_the_primary(twins: Twins):
    path, topic = twins.queue(), twins.topic()
    for make, names in (
        ("get_queue_receiver", (path,)),
        ("get_subscription_receiver", (topic, "all")),
    ):
        plain = twins.keep(getattr(twins.plain_client, make)(*names))
        paired = twins.keep(getattr(twins.bus, make)(*names))
        assert type(getattr(paired, "_inner", paired)) is type(getattr(plain, "_inner", plain))
        assert paired.entity_path == plain.entity_path
