"""The transfer performative: what the quick reader and the careful one make of the same bytes."""

from collections.abc import Callable
from typing import Any

import pytest

from pairbus.amqp import frames
from pairbus.amqp.composite import encode_composite
from pairbus.amqp.frames import (
    DEFAULT_FLAGS,
    TRANSFER_PREFIX,
    TransferFlags,
    decode_transfer,
    encode_aborted_transfer,
    encode_first_transfer,
    encode_frame,
    encode_next_transfer,
)
from pairbus.amqp.performatives import Accepted, Transfer
from pairbus.errors import DecodeError

PLAIN = TransferFlags(settled=False, more=False, state=None, resume=False, aborted=False)


def read(data: str) -> tuple[Any, ...]:
    raw = bytes.fromhex(data)
    return decode_transfer(raw, 0, len(raw))


def test_frame_starts_with_size_offset_type_and_channel() -> None:
    assert encode_frame(0x0102, b"body") == bytes.fromhex("0000000c 02 00 0102") + b"body"
    assert encode_frame(0, b"", 1) == bytes.fromhex("00000008 02 01 0000")


def small(count: int, fields: str) -> bytes:
    raw = bytes.fromhex(fields)
    return bytes((0xC0, len(raw) + 1, count)) + raw


def large(count: int, fields: str) -> bytes:
    raw = bytes.fromhex(fields)
    return b"\xd0" + (len(raw) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + raw


@pytest.mark.parametrize("make", [small, large])
@pytest.mark.parametrize(
    ("count", "fields", "expected"),
    [
        (4, "43 43 a00161 43", (0, 0, b"a", 0)),
        (4, "5207 5208 a000 5209", (7, 8, b"", 9)),
        (4, "43 70ffffffff a00161 7080013700", (0, 2**32 - 1, b"a", 0x80013700)),
        (4, "43 40 40 40", (0, None, None, 0)),
        (1, "43", (0, None, None, 0)),
        (3, "43 43 a00161", (0, 0, b"a", 0)),
        (4, "7000000007 43 a00161 43", (7, 0, b"a", 0)),
        (4, "43 43 b00000000161 43", (0, 0, b"a", 0)),
    ],
)
def test_transfer_fields_are_decoded_in_every_encoding(
    make: Callable[[int, str], bytes], count: int, fields: str, expected: tuple[Any, ...]
) -> None:
    data = make(count, fields)

    *values, flags, start = decode_transfer(data + b"payload", 0, len(data) + 7)

    assert tuple(values) == expected
    assert flags is DEFAULT_FLAGS
    assert start == len(data)


FLAGS = [
    ("", 4, PLAIN),
    ("40", 5, PLAIN),
    ("42", 5, PLAIN),
    ("5600", 5, PLAIN),
    ("41", 5, PLAIN._replace(settled=True)),
    ("4241", 6, PLAIN._replace(more=True)),
    ("4142", 6, PLAIN._replace(settled=True)),
    ("42425000", 7, PLAIN),
    ("404040 00532445", 8, PLAIN._replace(state=Accepted())),
    ("4040404041", 9, PLAIN._replace(resume=True)),
    ("404040404041", 10, PLAIN._replace(aborted=True)),
    ("40404040404041", 11, PLAIN),
]


@pytest.mark.parametrize(("tail", "count", "expected"), FLAGS)
def test_cached_flags_are_the_same_object(tail: str, count: int, expected: TransferFlags) -> None:
    data = small(count, "43 43 a00161 43" + tail)

    for _ in range(2):  # the second time from the cache
        assert decode_transfer(data, 0, len(data))[4] == expected


def test_same_bytes_with_another_count_are_still_an_error() -> None:
    good = small(6, "43 43 a00161 43 4241")
    assert decode_transfer(good, 0, len(good))[4].more
    bad = small(5, "43 43 a00161 43 4241")

    with pytest.raises(DecodeError):
        decode_transfer(bad, 0, len(bad))


@pytest.mark.parametrize(
    ("count", "fields"),
    [
        (4, "43 43 a00261 43"),  # the tag reaches into the format
        (5, "43 43 a00161 43"),  # a field is missing
        (4, "43 43 a00161 43 42"),  # a field too many
        (4, "40 43 a00161 43"),  # no handle
        (0, ""),
        (4, "41 43 a00161 43"),  # the handle is a boolean
        (4, "43 44 a00161 43"),  # the delivery id is a ulong
        (4, "43 43 a10161 43"),  # the tag is a string
        (4, "43 43 7461626364 43"),  # the tag is a decimal
        (4, "43 43 a00161 44"),  # the format is a ulong
        (5, "43 43 a00161 43 43"),  # settled is a uint
        (12, "43 43 a00161 43 40404040404040 40"),  # twelve fields
    ],
)
def test_invalid_transfer_fields_are_an_error(count: int, fields: str) -> None:
    for data in (small(count, fields), large(count, fields)):
        with pytest.raises(DecodeError):
            decode_transfer(data, 0, len(data))


@pytest.mark.parametrize(
    "data",
    [
        "c0 06 04 43 43 a00161 43",  # the list is shorter than its fields
        "c0 00 04 43 43 a00161 43",
        "c0 08 04 43 43 a00161 43",  # longer than the frame
        "d0 00000003 00000004 43 43 a00161 43",
        "d0 ffffffff 00000004 43 43 a00161 43",
        "45",
        "40",
        "c1 01 00",
        "c0",
        "c0 01",
        "",
    ],
)
def test_transfer_that_is_not_a_list_is_an_error(data: str) -> None:
    with pytest.raises(DecodeError):
        read(data)


def test_fields_do_not_reach_into_the_next_frame() -> None:
    whole = small(4, "43 43 a00161 43")
    assert decode_transfer(whole, 0, len(whole))

    for end in range(len(whole)):
        with pytest.raises(DecodeError):
            decode_transfer(whole, 0, end)


def test_delivery_tag_has_at_most_32_bytes() -> None:
    for size, head in ((32, "a020"), (32, "b000000020")):
        fields = bytes.fromhex("43 43" + head) + bytes(size) + b"\x43"
        data = bytes((0xC0, len(fields) + 1, 4)) + fields
        assert decode_transfer(data, 0, len(data))[2] == bytes(32)
    for size, head in ((33, "a021"), (33, "b000000021")):
        fields = bytes.fromhex("43 43" + head) + bytes(size) + b"\x43"
        data = bytes((0xC0, len(fields) + 1, 4)) + fields
        with pytest.raises(DecodeError, match="more than 32 bytes"):
            decode_transfer(data, 0, len(data))


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("delivery_id", [0, 1, 255, 256, 2**32 - 1])
@pytest.mark.parametrize("message_format", [0, 1, 0x80013700])
def test_first_frame_has_all_fields(
    settled: bool, more: bool, delivery_id: int, message_format: int
) -> None:
    written = encode_first_transfer(b"\x52\x05", delivery_id, b"tag", message_format, settled, more)

    assert written.startswith(TRANSFER_PREFIX)
    assert decode_transfer(written, 3, len(written)) == (
        5,
        delivery_id,
        b"tag",
        message_format,
        PLAIN._replace(settled=settled, more=more),
        len(written),
    )


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("more", [True, False])
def test_later_frames_have_only_the_handle(settled: bool, more: bool) -> None:
    written = encode_next_transfer(b"\x43", settled, more)

    handle, delivery_id, tag, message_format, flags, _ = decode_transfer(written, 3, len(written))

    assert (handle, delivery_id, tag, message_format) == (0, None, None, 0)
    assert flags == PLAIN._replace(settled=settled, more=more)


def test_aborting_frame_has_the_aborted_flag() -> None:
    written = encode_aborted_transfer(b"\x43")

    assert decode_transfer(written, 3, len(written))[4] == PLAIN._replace(aborted=True)


def test_cache_of_flags_is_bounded() -> None:
    before = len(frames._FLAGS)
    for number in range(3000):
        data = encode_composite(Transfer(0, 0, b"a", 0, state=[number]))[3:]
        decode_transfer(data, 0, len(data))

    assert len(frames._FLAGS) <= 1024
    assert before <= 1024
