"""The messages of a call: prepared for the primary, and encoded for the backlog."""

from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._common.utils import transform_outbound_messages
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.amqp.batch import size_in_batch, split_batch
from pairbus.amqp.sections import Message
from pairbus.errors import MessageTooLargeForBacklog, ReservedProperty
from pairbus.pairing.payloads import (
    PairedBatch,
    Payloads,
    check_size,
    fill_batch,
    prepare,
)
from pairbus.pairing.sdk import encode, members
from pairbus.pairing.sdk_payloads import EncodedBatch
from pairbus.servicebus.limits import MAX_HEADER_SIZE
from pairbus.transfer import ALIASES, PATH_ALIAS, SCHEDULE_ALIAS, SESSION_ALIAS

WHEN = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
WHEN_MS = 1_893_553_445_678
KEYS: list[Any] = [*ALIASES, *(name.encode() for name in ALIASES)]


def copy_values(message: Any) -> Any:
    """Return copies of all values in an object of the SDK, for a later comparison."""
    if isinstance(message, list | tuple):
        return [copy_values(item) for item in message]
    if isinstance(message, dict):
        return {key: copy_values(value) for key, value in message.items()}
    plain = isinstance(message, Enum) or not hasattr(message, "__dict__")
    return deepcopy(message) if plain else copy_values(vars(message))


def without_id() -> ServiceBusMessage:
    message = ServiceBusMessage(b"x")
    message.message_id = None
    return message


def id_of(payload: bytes) -> Any:
    return Message.parse(payload).read_properties().message_id


def aliases_of(payload: bytes) -> dict[str, Any]:
    properties = Message.parse(payload).read_application_properties()
    return {name: value for name, value in properties.items() if name in ALIASES}


def filled(batch: ServiceBusMessageBatch, *messages: Any) -> ServiceBusMessageBatch:
    for message in messages:
        batch.add_message(message)
    return batch


# Reserved names.

HOLDERS: dict[str, Callable[[Any], Any]] = {
    "a message": lambda properties: ServiceBusMessage(b"", application_properties=properties),
    "a dictionary": lambda properties: {"body": b"", "application_properties": properties},
    "an annotated message": lambda properties: AmqpAnnotatedMessage(
        data_body=b"", application_properties=properties
    ),
}


@pytest.mark.rule("S7")
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_reserved_name_is_refused_in_every_kind_of_message(holder: str, key: Any) -> None:
    message = HOLDERS[holder]({"other": 1, key: "x"})
    name = key.decode() if isinstance(key, bytes) else key

    for sent in (message, [ServiceBusMessage(b""), message], (item for item in [message])):
        with pytest.raises(ReservedProperty, match=f"'{name}'.*Use another name"):
            prepare(sent)


@pytest.mark.rule("S7")
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_paired_batch_refuses_a_reserved_name_when_it_is_added(holder: str, key: Any) -> None:
    batch = PairedBatch()

    with pytest.raises(ReservedProperty):
        batch.add_message(HOLDERS[holder]({key: "x"}))

    assert len(batch) == 0


@pytest.mark.rule("S7")
@pytest.mark.parametrize("key", KEYS)
def test_sdk_batch_with_a_reserved_name_is_refused_when_it_is_sent(key: Any) -> None:
    valid = ServiceBusMessage(b"")
    batch = filled(ServiceBusMessageBatch(), valid, HOLDERS["a message"]({key: "x"}))

    with pytest.raises(ReservedProperty):
        prepare(batch)


@pytest.mark.rule("S7")
@pytest.mark.parametrize("name", ["x-ms-path2", "X-MS-PATH", "x-ms", ""])
def test_other_names_are_allowed(name: str) -> None:
    message = ServiceBusMessage(b"", application_properties={name: "x"})

    assert prepare(message) is message
    assert Payloads(prepare(filled(ServiceBusMessageBatch(), message))).encoded() == [
        encode(message)
    ]


# Batches.


@pytest.mark.rule("S6")
def test_paired_batch_is_that_of_the_sdk() -> None:
    """The second message does not fit."""
    batches = PairedBatch(max_size_in_bytes=600), ServiceBusMessageBatch(max_size_in_bytes=600)
    sizes = [100, 600, 10, 250]
    messages = [
        ServiceBusMessage(b"x" * size, message_id=f"{size}", application_properties={"size": size})
        for size in sizes
    ]
    for batch in batches:
        for size, message in zip(sizes, messages, strict=True):
            with pytest.raises(MessageSizeExceededError) if size == 600 else nullcontext():
                batch.add_message(message)

    ours, plain = batches
    assert members(ours) == members(plain) == [encode(messages[n]) for n in (0, 2, 3)]
    assert ours._message == plain._message
    assert ours.size_in_bytes == plain.size_in_bytes
    assert len(ours) == len(plain) == 3


def test_paired_batch_keeps_the_transport_of_its_sender() -> None:
    """A sender of the async SDK builds another batch if the transport is not its own."""
    transport = PyamqpTransport()
    batch = PairedBatch.like(ServiceBusMessageBatch(100, amqp_transport=transport))

    batch.add_message(ServiceBusMessage(b"x"))
    with pytest.raises(MessageSizeExceededError):
        batch.add_message(ServiceBusMessage(b"x" * 100))

    assert batch._amqp_transport is transport


# Ids.


@pytest.mark.rule("S11")
def test_message_with_an_id_is_passed_on_unchanged() -> None:
    message = ServiceBusMessage(b"x", message_id="id")
    batch = PairedBatch()

    assert prepare(message) is message
    assert prepare([message]) == [message]
    assert prepare(batch) is batch


@pytest.mark.rule("S11")
@pytest.mark.parametrize(
    "make",
    [
        without_id,
        lambda: AmqpAnnotatedMessage(data_body=b"x"),
        lambda: AmqpAnnotatedMessage(data_body=b"x", properties=AmqpMessageProperties(subject="s")),
    ],
)
def test_message_without_an_id_gets_one_on_a_copy_for_each_call(make: Callable[[], Any]) -> None:
    message = make()
    before = copy_values(message)

    calls = [Payloads(prepare(message)), Payloads(prepare([message]))]

    ids = [id_of(call.encoded()[0]) for call in calls]
    assert all(ids)
    assert ids[0] != ids[1]
    assert copy_values(message) == before


@pytest.mark.rule("S11")
def test_id_is_the_same_for_the_primary_and_the_backlog() -> None:
    messages = [without_id(), AmqpAnnotatedMessage(data_body=b"x"), {"body": b"x"}]

    prepared = prepare(messages)
    payloads = Payloads(prepared)

    to_primary = [id_of(encode(message)) for message in prepared]
    assert all(to_primary)
    assert len(set(to_primary)) == 3
    assert [id_of(payload) for payload in payloads.for_backlog("orders")] == to_primary
    assert [id_of(payload) for payload in payloads.for_backlog("orders", WHEN)] == to_primary


@pytest.mark.rule("S11")
def test_paired_batch_assigns_the_id_when_a_message_is_added() -> None:
    message = without_id()
    before = copy_values(message)
    batch = filled(PairedBatch(), message, AmqpAnnotatedMessage(data_body=b"x"), {"body": b"x"})

    ids = [id_of(member) for member in members(batch)]

    assert all(ids)
    assert len(set(ids)) == 3
    assert copy_values(message) == before
    assert [id_of(payload) for payload in Payloads(prepare(batch)).for_backlog("orders")] == ids


@pytest.mark.rule("S11")
def test_sdk_batch_is_sent_unchanged() -> None:
    batch = filled(ServiceBusMessageBatch(), without_id())
    before = members(batch)

    payloads = Payloads(prepare(batch))

    assert prepare(batch) is batch
    assert payloads.encoded() == before
    assert id_of(payloads.for_backlog("orders")[0]) is None


@pytest.mark.rule("S6")
def test_objects_of_the_caller_are_not_changed() -> None:
    full = ServiceBusMessage(
        b"x",
        session_id="s",
        time_to_live=timedelta(minutes=1),
        scheduled_enqueue_time_utc=WHEN,
        application_properties={"text": "t", b"bytes": b"b"},
    )
    raw = AmqpAnnotatedMessage(
        value_body={"a": 1}, application_properties={b"k": b"v"}, annotations={b"x": 1}
    )
    dictionary = {"body": b"x", "session_id": "s", "application_properties": {"a": b"b"}}
    messages = [full, raw, dictionary]
    before = copy_values(messages)

    payloads = Payloads(prepare(messages))
    payloads.for_backlog("orders", WHEN)
    payloads.sessions()

    assert copy_values(messages) == before


def test_generator_is_read_once() -> None:
    read = []

    def messages() -> Any:
        for number in range(3):
            read.append(number)
            yield ServiceBusMessage(str(number))

    prepared = prepare(messages())
    payloads = Payloads(prepared)
    payloads.for_backlog("orders")
    payloads.for_backlog("orders")

    assert read == [0, 1, 2]
    assert len(prepared) == 3


def test_no_messages_are_accepted() -> None:
    for none in ([], (), iter([])):
        prepared = prepare(none)

        assert prepared == []
        assert Payloads(prepared).for_backlog("orders") == []
        assert Payloads(prepared).sessions() == []


@pytest.mark.rule("S1")
@pytest.mark.parametrize("wrong", [7, None, {"no such field": 1}, object()])
def test_invalid_message_raises_the_same_error_as_the_sdk(wrong: Any) -> None:
    for sent in (wrong, [wrong]):
        assert prepare(sent) == sent
        with pytest.raises(TypeError, match="Only AmqpAnnotatedMessage, ServiceBusMessage") as ours:
            Payloads(prepare(sent)).encoded()

    with pytest.raises(TypeError) as theirs:
        transform_outbound_messages(
            wrong, ServiceBusMessage, PyamqpTransport.to_outgoing_amqp_message
        )
    assert str(ours.value) == str(theirs.value)


# In the backlog.


@pytest.mark.rule("S6")
def test_backlog_message_has_its_destination() -> None:
    message = ServiceBusMessage(b"x", session_id="s")

    (payload,) = Payloads(prepare(message)).for_backlog("Orders")

    assert aliases_of(payload) == {PATH_ALIAS: "Orders", SESSION_ALIAS: "s"}


@pytest.mark.rule("S10")
@pytest.mark.parametrize(
    "at",
    [
        WHEN,
        WHEN.replace(tzinfo=None),  # as in the SDK: a time without a zone is UTC
        WHEN.astimezone(timezone(timedelta(hours=5, minutes=30))),
    ],
)
def test_backlog_message_has_its_schedule_in_milliseconds(at: datetime) -> None:
    messages = prepare([ServiceBusMessage(b"1"), {"body": b"2"}])
    payloads = Payloads(messages).for_backlog("orders", at)

    assert [aliases_of(payload)[SCHEDULE_ALIAS] for payload in payloads] == [WHEN_MS, WHEN_MS]


@pytest.mark.rule("S12")
def test_session_is_read_from_every_kind_of_message() -> None:
    with_session = ServiceBusMessage(b"", session_id="ä")
    without_session = ServiceBusMessage(b"")
    raw = AmqpAnnotatedMessage(data_body=b"", properties=AmqpMessageProperties(group_id="raw"))
    dictionary = {"body": b"", "session_id": "dictionary"}

    messages = [with_session, without_session, raw, dictionary]
    assert Payloads(prepare(messages)).sessions() == ["ä", None, "raw", "dictionary"]
    assert Payloads(filled(PairedBatch(), without_session, with_session)).sessions() == [None, "ä"]


# Sizes.


@pytest.mark.rule("S8")
@pytest.mark.parametrize("length", [255, 256, 1000])
def test_message_size_is_limited_to_the_byte(length: int) -> None:
    payload = bytes(length)

    check_size(payload, length)
    with pytest.raises(MessageTooLargeForBacklog, match=f"{length} bytes.*Send a smaller"):
        check_size(payload, length - 1)


@pytest.mark.rule("S8")
def test_header_size_is_limited_to_the_byte() -> None:
    def sized(extra: int) -> bytes:
        return encode(
            ServiceBusMessage(
                b"b" * 5000, application_properties={"a": "x" * (65_000 + extra)}, message_id="1"
            )
        )

    first = sized(0)
    extra = MAX_HEADER_SIZE - (len(first) - len(Message.parse(first).body))
    check_size(sized(extra), 256 * 1024)
    with pytest.raises(MessageTooLargeForBacklog, match=f"{MAX_HEADER_SIZE + 1} bytes"):
        check_size(sized(extra + 1), 256 * 1024)


@pytest.mark.rule("S8")
def test_large_body_does_not_count_as_headers() -> None:
    check_size(encode(ServiceBusMessage(b"b" * 200_000)), 256 * 1024)


@pytest.mark.rule("S9")
def test_batch_is_filled_in_order_to_the_byte() -> None:
    payloads = [bytes(95)] * 4  # 100 bytes each in a batch

    assert fill_batch(payloads, [0, 1, 2, 3], 400) == [0, 1, 2, 3]
    assert fill_batch(payloads, [0, 1, 2, 3], 399) == [0, 1, 2]
    assert fill_batch(payloads, [1, 3], 200) == [1, 3]
    assert fill_batch(payloads, [1, 3], 199) == [1]
    assert fill_batch(payloads, [2, 3], 1) == [2]


@pytest.mark.rule("S9")
def test_small_message_does_not_overtake_a_large_one() -> None:
    assert fill_batch([bytes(95), bytes(195), bytes(5)], [0, 1, 2], 250) == [0]


@pytest.mark.rule("S9")
def test_batch_size_is_counted_as_in_the_sdk() -> None:
    messages = [ServiceBusMessage(b"x" * size) for size in (1, 100, 200, 300, 5000)]
    batch = filled(ServiceBusMessageBatch(), *messages)

    assert batch.size_in_bytes == sum(size_in_batch(len(encode(message))) for message in messages)


def test_batch_of_payloads_keeps_their_order() -> None:
    payloads = [encode(ServiceBusMessage(str(number))) for number in range(5)]

    batch = EncodedBatch(payloads, PyamqpTransport)

    assert split_batch(batch._message.payload) == payloads
    assert len(batch) == 5
