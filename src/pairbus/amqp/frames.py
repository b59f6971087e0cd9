"""Frames (part 2, 2.3), and a fast codec for the transfer performative.

`composite` decodes and encodes all other performatives. Every message needs a transfer, so this
module decodes and encodes it without objects for its fields.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from pairbus.amqp.composite import decode_composite
from pairbus.amqp.decode import decode
from pairbus.amqp.encode import encode_uint
from pairbus.amqp.performatives import Transfer
from pairbus.errors import DecodeError
from pairbus.servicebus import conditions

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
MIN_MAX_FRAME_SIZE = 512
MAX_TAG_SIZE = 32
AMQP_FRAME, SASL_FRAME = 0, 1
EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"
TRANSFER_PREFIX = b"\x00\x53\x14"
"""The first bytes of a transfer frame's body, as all known peers encode them."""

frame_header = Struct(">IBBH")
_U32 = Struct(">I").unpack_from
_SIZE_COUNT = Struct(">II").unpack_from


def encode_frame(channel: int, body: bytes, frame_type: int = AMQP_FRAME) -> bytes:
    """Return a frame without extended header."""
    return frame_header.pack(8 + len(body), 2, frame_type, channel) + body


class TransferFlags(NamedTuple):
    """The fields of a transfer from the fifth on. Few combinations occur, so they are cached."""

    settled: bool
    more: bool
    state: Any
    resume: bool
    aborted: bool


DEFAULT_FLAGS = TransferFlags(settled=False, more=False, state=None, resume=False, aborted=False)
"""The flags of an unsettled delivery in one frame. Compare with `is`: there is one such object."""
_FLAGS: dict[bytes, tuple[int, TransferFlags]] = {b"": (4, DEFAULT_FLAGS)}
"""The number of fields of the transfer and its flags, by the encoding of the flags."""


def decode_transfer(
    data: bytes, pos: int, end: int
) -> tuple[int, int | None, bytes | None, int, TransferFlags, int]:
    """Decode the transfer whose list starts at `pos`.

    Return handle, delivery id, delivery tag, message format, flags and the start of the payload.
    """
    start = pos
    try:
        code = data[pos]
        if code == 0xC0:
            stop = pos + 2 + data[pos + 1]
            count = data[pos + 2]
            pos += 3
        elif code == 0xD0:
            size, count = _SIZE_COUNT(data, pos + 1)
            stop = pos + 5 + size
            pos += 9
        else:
            return _decode_any_transfer(data, start, end)
        if stop > end or count < 4:
            return _decode_any_transfer(data, start, end)

        code = data[pos]
        if code == 0x43:
            handle = 0
            pos += 1
        elif code == 0x52:
            handle = data[pos + 1]
            pos += 2
        else:
            return _decode_any_transfer(data, start, end)

        code = data[pos]
        delivery_id: int | None
        if code == 0x70:
            delivery_id = _U32(data, pos + 1)[0]
            pos += 5
        elif code == 0x52:
            delivery_id = data[pos + 1]
            pos += 2
        elif code == 0x43:
            delivery_id = 0
            pos += 1
        elif code == 0x40:
            delivery_id = None
            pos += 1
        else:
            return _decode_any_transfer(data, start, end)

        code = data[pos]
        if code == 0xA0 and data[pos + 1] <= MAX_TAG_SIZE:
            after = pos + 2 + data[pos + 1]
            tag: bytes | None = data[pos + 2 : after]
            pos = after
        elif code == 0x40:
            tag = None
            pos += 1
        else:
            return _decode_any_transfer(data, start, end)

        code = data[pos]
        if code == 0x43 or code == 0x40:
            message_format = 0
            pos += 1
        elif code == 0x70:
            message_format = _U32(data, pos + 1)[0]
            pos += 5
        elif code == 0x52:
            message_format = data[pos + 1]
            pos += 2
        else:
            return _decode_any_transfer(data, start, end)
    except (IndexError, StructError):
        raise DecodeError("a transfer ends within a field") from None

    known = _FLAGS.get(data[pos:stop])
    if known is None or known[0] != count or pos > stop:
        result = _decode_any_transfer(data, start, end)
        if stop - pos <= 16 and len(_FLAGS) < 1024:
            _FLAGS[data[pos:stop]] = count, result[4]
        return result
    return handle, delivery_id, tag, message_format, known[1], stop


def _decode_any_transfer(
    data: bytes, pos: int, end: int
) -> tuple[int, int | None, bytes | None, int, TransferFlags, int]:
    described, after = decode(TRANSFER_PREFIX + data[pos:end])
    transfer = decode_composite(described)
    assert isinstance(transfer, Transfer)  # by its descriptor
    if transfer.delivery_tag is not None and len(transfer.delivery_tag) > MAX_TAG_SIZE:
        raise DecodeError(
            f"a delivery tag has more than {MAX_TAG_SIZE} bytes", condition=conditions.INVALID_FIELD
        )
    flags = TransferFlags(
        transfer.settled is True,
        transfer.more,
        transfer.state,
        transfer.resume,
        transfer.aborted,
    )
    return (
        transfer.handle,
        transfer.delivery_id,
        transfer.delivery_tag,
        0 if transfer.message_format is None else transfer.message_format,
        DEFAULT_FLAGS if flags == DEFAULT_FLAGS else flags,
        pos + after - len(TRANSFER_PREFIX),
    )


def transfer_list(count: int, fields: bytes) -> bytes:
    """Return a transfer performative with these encoded fields, which take less than 255 bytes."""
    return b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, count)) + fields


def encode_first_transfer(
    handle: bytes, delivery_id: int, tag: bytes, message_format: int, settled: bool, more: bool
) -> bytes:
    """Return the performative of a delivery's first frame."""
    fields = (
        handle
        + encode_uint(delivery_id)
        + bytes((0xA0, len(tag)))
        + tag
        + encode_uint(message_format)
    )
    if more:
        return transfer_list(6, fields + (b"\x41\x41" if settled else b"\x42\x41"))
    if settled:
        return transfer_list(5, fields + b"\x41")
    return transfer_list(4, fields)


@lru_cache(maxsize=1024)
def transfer_head(channel: int, handle: bytes, tag_size: int) -> Callable[[int, int, bytes], bytes]:
    """Return a function that encodes what precedes the payload in the only frame of an unsettled
    delivery with message format 0. It takes the size of the payload, the delivery id and the tag.
    """
    before_id = TRANSFER_PREFIX + bytes((0xC0, len(handle) + tag_size + 9, 4)) + handle + b"\x70"
    before_tag = bytes((0xA0, tag_size))
    head = Struct(f">IBBH{len(before_id)}sI2s{tag_size}sB")
    pack, size = head.pack, head.size

    def encode_head(payload_size: int, delivery_id: int, tag: bytes) -> bytes:
        return pack(
            size + payload_size,
            2,
            AMQP_FRAME,
            channel,
            before_id,
            delivery_id,
            before_tag,
            tag,
            0x43,
        )

    return encode_head


def encode_next_transfer(handle: bytes, settled: bool, more: bool) -> bytes:
    """Return the performative of a delivery's second or later frame."""
    fields = handle + b"\x40\x40\x40" + (b"\x41" if settled else b"\x42")
    return transfer_list(6, fields + b"\x41") if more else transfer_list(5, fields)


def encode_aborted_transfer(handle: bytes) -> bytes:
    """Return the performative that aborts a delivery whose first frames were sent."""
    return transfer_list(10, handle + b"\x40\x40\x40\x40\x40\x40\x40\x40\x41")
