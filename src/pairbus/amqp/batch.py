"""Service Bus batches: deliveries with the batch message format, whose data sections each hold an
encoded message."""

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError

from pairbus.amqp.decode import decode, skip_value
from pairbus.amqp.section_edit import DATA, SEQUENCE, VALUE, read_descriptor, read_fields
from pairbus.amqp.sections import GROUP_ID, MESSAGE_ID, Message
from pairbus.amqp.types import Symbol
from pairbus.errors import DecodeError
from pairbus.servicebus import annotations

_PARTITION_KEY = Symbol(annotations.PARTITION_KEY)
BATCH_FORMAT = 0x80013700
"""The message format of a batch."""

_DATA_SMALL = b"\x00\x53\x75\xa0"
_DATA_LARGE = b"\x00\x53\x75\xb0"
_pack_size = Struct(">I").pack
_read_size = Struct(">I").unpack_from


def make_batch(messages: Iterable[bytes], envelope: bytes = b"") -> bytes:
    """Return the payload of a batch of encoded messages. `envelope` holds its own sections."""
    parts = [envelope]
    for message in messages:
        size = len(message)
        if size < 256:
            parts.append(b"\x00\x53\x75\xa0%c" % size)
        else:
            parts.append(_DATA_LARGE + _pack_size(size))
        parts.append(message)
    return b"".join(parts)


def batch_envelope(message: bytes) -> bytes:
    """Return the envelope of a batch whose first message is `message`.

    It holds the message id, session id and partition key of that message. Service Bus uses them to
    select the partition of the batch.
    """
    first = Message.parse(message)
    message_id, session = read_fields(first.properties, (MESSAGE_ID, GROUP_ID))
    envelope = Message()
    if message_id is not None or session is not None:
        envelope.edit_properties({MESSAGE_ID: message_id, GROUP_ID: session})
    if _PARTITION_KEY.encode() in first.message_annotations:
        partition = first.read_message_annotations().get(_PARTITION_KEY)
        if partition is not None:
            envelope.edit_message_annotations({_PARTITION_KEY: partition})
    return envelope.encode()


def size_in_batch(message_size: int) -> int:
    """Return the number of bytes that a message of this size adds to a batch."""
    return message_size + (5 if message_size < 256 else 8)


def split_batch(payload: bytes) -> list[bytes]:
    """Return the encoded messages of a batch, without the sections of its envelope."""
    if type(payload) is not bytes:
        payload = bytes(payload)
    messages = []
    pos, size = 0, len(payload)
    try:
        while pos < size:
            head = payload[pos : pos + 4]
            if head == _DATA_LARGE:
                start = pos + 8
                pos = start + _read_size(payload, pos + 4)[0]
                messages.append(payload[start:pos])
            elif head == _DATA_SMALL:
                start = pos + 5
                pos = start + payload[pos + 4]
                messages.append(payload[start:pos])
            else:
                pos = _take_section(payload, pos, messages)
    except (IndexError, StructError) as exc:
        raise DecodeError("a batch ends within a section") from exc
    if pos > size:
        raise DecodeError("a batch ends within a section")
    return messages


def _take_section(payload: bytes, pos: int, messages: list[bytes]) -> int:
    """Skip a section of the envelope, or append a message with an unusual encoding to `messages`.

    Return the position after the section.
    """
    code, pos = read_descriptor(payload, pos)
    if code == DATA and payload[pos] in (0xA0, 0xB0):
        message, after = decode(payload, pos)
        messages.append(message)
        return after
    if code in (DATA, SEQUENCE, VALUE):
        raise DecodeError("the body of a batch does not consist of data sections")
    return skip_value(payload, pos)
