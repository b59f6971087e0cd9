"""Service Bus batches: one delivery whose data sections are messages, marked by its message format."""

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError

from pairbus.amqp.decode import skip
from pairbus.errors import DecodeError

BATCH_FORMAT = 0x80013700
"""The message format of a delivery that is a batch."""

_DATA_SMALL = b"\x00\x53\x75\xa0"
_DATA_LARGE = b"\x00\x53\x75\xb0"
_pack_size = Struct(">I").pack
_read_size = Struct(">I").unpack_from


def make_batch(messages: Iterable[bytes], envelope: bytes = b"") -> bytes:
    """One payload of many encoded messages. `envelope`: sections of the batch itself, to go first."""
    parts = [envelope]
    for message in messages:
        size = len(message)
        if size < 256:
            parts.append(b"\x00\x53\x75\xa0%c" % size)
        else:
            parts.append(_DATA_LARGE + _pack_size(size))
        parts.append(message)
    return b"".join(parts)


def member_size(message_size: int) -> int:
    """What a message of this size adds to a batch."""
    return message_size + (5 if message_size < 256 else 8)


def split_batch(payload: bytes) -> list[bytes]:
    """The encoded messages of a batch; sections of the batch itself are passed over."""
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
                pos = _pass_section(payload, pos)
    except (IndexError, StructError) as exc:
        raise DecodeError("a batch ends within a section") from exc
    if pos > size:
        raise DecodeError("a batch ends within a section")
    return messages


def _pass_section(payload: bytes, pos: int) -> int:
    """The place behind a section that is not a message."""
    if payload[pos] != 0 or payload[pos + 1] != 0x53 or not 0x70 <= payload[pos + 2] <= 0x78:
        raise DecodeError("a batch holds something that is not a section")
    if payload[pos + 2] in (0x75, 0x76, 0x77):
        raise DecodeError("a batch has a body that is not made of messages")
    return skip(payload, pos + 3)
