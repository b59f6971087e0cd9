"""Service Bus batches, compared with those of the Azure SDK."""

import datetime

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.message import BatchMessage
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from pairbus.amqp.batch import BATCH_FORMAT, batch_envelope, make_batch, size_in_batch, split_batch
from pairbus.amqp.sections import DATA, Header, Message, Properties
from pairbus.amqp.types import Symbol
from pairbus.errors import DecodeError

SIZES = [0, 1, 254, 255, 256, 257, 65_535, 65_536]
DATA_SECTION = b"\x00\x53\x75"


def sdk_batch(*messages: ServiceBusMessage) -> bytes:
    """Return a batch as the Azure SDK encodes it."""
    batch = ServiceBusMessageBatch()
    for message in messages:
        batch.add_message(message)
    return bytes(encode_payload(bytearray(), BatchMessage(*batch._message)))


def sdk_message(message: ServiceBusMessage) -> bytes:
    """Return a message as the Azure SDK encodes it."""
    encoded = PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message)
    return bytes(encode_payload(bytearray(), encoded))


def front_of(batch: bytes) -> bytes:
    """Return the sections of a batch that are not messages."""
    return batch[: len(batch) - len(Message.parse(batch).body)]


def test_batch_format_is_that_of_the_azure_sdk():
    assert BatchMessage._code == BATCH_FORMAT == 0x80013700


@pytest.mark.parametrize("size", SIZES)
def test_messages_of_any_size_survive_batching(size: int):
    message = b"\x5a" * size

    batch = make_batch([message])

    assert split_batch(batch) == [message]
    assert len(batch) == size_in_batch(size)
    assert batch[:4] == DATA_SECTION + (b"\xa0" if size < 256 else b"\xb0")


def test_messages_of_a_batch_keep_their_order():
    messages = [b"%d" % size * size for size in SIZES] * 3

    assert split_batch(make_batch(messages)) == messages
    assert len(make_batch(messages)) == sum(size_in_batch(len(message)) for message in messages)


def test_batch_is_a_message_whose_data_sections_are_messages():
    messages = [Message.build(data=b"a").encode(), Message.build(value="b").encode()]

    assert Message.parse(make_batch(messages)).read_body() == (DATA, messages)


def test_batch_without_messages_is_empty():
    assert make_batch([]) == b""
    assert split_batch(b"") == []


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_batch_in_any_buffer_is_split_into_bytes(kind: type):
    messages = split_batch(kind(make_batch([b"a", b"b" * 300])))

    assert messages == [b"a", b"b" * 300]
    assert {type(message) for message in messages} == {bytes}


def test_sections_of_the_envelope_are_skipped():
    envelope = Message.build(
        header=Header(durable=True),
        message_annotations={Symbol("x-opt-partition-key"): "p" * 300},
        properties=Properties(message_id="id", group_id="session"),
        application_properties={"a": 1},
    )
    envelope.body = b""
    footer = b"\x00\x53\x78\xc1\x01\x00"
    messages = [b"one", b"two" * 100]

    batch = make_batch(messages, envelope.encode()) + footer

    assert batch.startswith(envelope.encode())
    assert split_batch(batch) == messages


def test_content_of_the_envelope_is_not_decoded():
    broken = b"\x00\x53\x73\xc0\x02\x01\xff"

    assert split_batch(make_batch([b"m"], broken)) == [b"m"]


@pytest.mark.parametrize(
    "descriptor",
    [
        pytest.param(b"\x00\x80" + bytes(7) + b"\x75", id="ulong"),
        pytest.param(b"\x00\xa3\x10amqp:data:binary", id="symbol"),
        pytest.param(b"\x00\xb3\x00\x00\x00\x10amqp:data:binary", id="long symbol"),
    ],
)
def test_messages_are_found_in_any_encoding_of_their_section(descriptor: bytes):
    small, large = b"\xa0\x03one", b"\xb0\x00\x00\x00\x03two"

    batch = descriptor + small + descriptor + large + DATA_SECTION + large

    assert split_batch(batch) == [b"one", b"two", b"two"]


def test_message_with_an_oversized_size_field_is_accepted():
    assert split_batch(DATA_SECTION + b"\xb0\x00\x00\x00\x01x") == [b"x"]


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"garbage", id="text"),
        pytest.param(b"\x00", id="incomplete descriptor"),
        pytest.param(b"\x00\x53", id="descriptor without code"),
        pytest.param(DATA_SECTION, id="section without content"),
        pytest.param(DATA_SECTION + b"\xa0", id="no size"),
        pytest.param(DATA_SECTION + b"\xa0\x05four", id="one byte too few"),
        pytest.param(DATA_SECTION + b"\xb0\x00\x00\x01", id="incomplete size"),
        pytest.param(DATA_SECTION + b"\xb0\xff\xff\xff\xffx", id="size of gigabytes"),
        pytest.param(DATA_SECTION + b"\xa1\x01x", id="string in a data section"),
        pytest.param(DATA_SECTION + b"\x40", id="null in a data section"),
        pytest.param(b"\x00\x53\x77\xa1\x01x", id="value"),
        pytest.param(b"\x00\x53\x76\x45", id="sequence"),
        pytest.param(b"\x00\x53\x6f\xc1\x01\x00", id="unknown section"),
        pytest.param(b"\x00\x53\x79\xc1\x01\x00", id="unknown section above"),
        pytest.param(b"\x00\x53\x73\xc0\xff\x00", id="envelope beyond the end"),
        pytest.param(b"\x00\x53\x73\x01", id="envelope of an unknown type"),
        pytest.param(b"\x00" * 5000, id="descriptors of descriptors"),
    ],
)
@pytest.mark.parametrize("before", [b"", make_batch([b"good"])], ids=["alone", "after a message"])
def test_garbage_is_a_decode_error(before: bytes, garbage: bytes):
    with pytest.raises(DecodeError):
        split_batch(before + garbage)


def test_truncated_batch_is_an_error_unless_cut_between_sections():
    parts = [make_batch([b"a" * size]) for size in (0, 3, 300)]
    between = {len(b"".join(parts[:n])) for n in range(len(parts) + 1)}
    batch = b"".join(parts)

    for size in range(len(batch)):
        if size in between:
            split_batch(batch[:size])
        else:
            with pytest.raises(DecodeError):
                split_batch(batch[:size])


# Batches of the Azure SDK.


def sdk_messages() -> list[ServiceBusMessage]:
    return [
        ServiceBusMessage(b"", message_id="empty"),
        ServiceBusMessage(b"body", message_id="one", session_id="s", partition_key="s"),
        ServiceBusMessage(b"x" * 10_000, message_id="large", session_id="s"),
        ServiceBusMessage(
            "text",
            message_id="rich",
            session_id="s",
            application_properties={"a": 1, "b": "two", "c": 3.0},
            time_to_live=datetime.timedelta(minutes=1),
            subject="subject",
        ),
    ]


def test_batch_of_the_sdk_is_split_into_its_messages():
    batch = sdk_batch(*sdk_messages())

    split = split_batch(batch)

    assert [Message.parse(payload).read_properties().message_id for payload in split] == [
        "empty",
        "one",
        "large",
        "rich",
    ]
    assert Message.parse(split[2]).read_body() == (DATA, [b"x" * 10_000])
    assert Message.parse(split[3]).read_application_properties()["b"] == "two"
    assert split[:3] == [sdk_message(message) for message in sdk_messages()[:3]]


def test_our_batch_equals_that_of_the_sdk():
    batch = sdk_batch(*sdk_messages())
    envelope = front_of(batch)

    assert Message.parse(envelope).read_properties().message_id == "empty"
    assert make_batch(split_batch(batch), envelope) == batch


@pytest.mark.parametrize("size", range(250, 260))
def test_sdk_uses_the_larger_size_field_at_the_same_size(size: int):
    overhead = len(sdk_message(ServiceBusMessage(b"", message_id="m")))
    message = ServiceBusMessage(b"x" * (size - overhead), message_id="m")
    encoded = sdk_message(message)
    assert len(encoded) == size

    batch = sdk_batch(message)

    assert make_batch([encoded], front_of(batch)) == batch
    assert len(batch) - len(front_of(batch)) == size_in_batch(size)


def test_sdk_computes_the_same_batch_size():
    batch = ServiceBusMessageBatch()
    before = batch.size_in_bytes
    for size in (0, 100, 230, 240, 1000):
        message = ServiceBusMessage(b"x" * size, message_id="m")
        batch.add_message(message)
        assert batch.size_in_bytes - before == size_in_batch(len(sdk_message(message)))
        before = batch.size_in_bytes


def test_sdk_reads_the_messages_of_our_batch():
    messages = [Message.build(data=b"a" * size).encode() for size in SIZES]

    decoded = decode_payload(memoryview(make_batch(messages)))

    assert list(decoded.data) == messages


def test_envelope_has_message_id_session_id_and_partition_key() -> None:
    first = Message.build(
        message_annotations={Symbol("x-opt-partition-key"): "p", Symbol("x-opt-other"): 1},
        properties=Properties(message_id="m", group_id="s", subject="not this"),
        application_properties={"nor": "this"},
        data=b"nor this",
    ).encode()

    envelope = batch_envelope(first)

    read = Message.parse(envelope)
    assert read.read_properties() == Properties(message_id="m", group_id="s")
    assert read.read_message_annotations() == {"x-opt-partition-key": "p"}
    assert split_batch(make_batch([first, first], envelope)) == [first, first]


def test_message_without_ids_and_partition_key_has_no_envelope() -> None:
    assert batch_envelope(Message.build(data=b"x").encode()) == b""
