"""Decoding of each type in each of its encodings (part 1, 1.6)."""

import math
from typing import Any
from uuid import UUID

import pytest

from pairbus.amqp.decode import decode, decode_whole, skip_value
from pairbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float32,
    Int32,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from pairbus.errors import DecodeError
from tests.unit.amqp.same import same

UUID_BYTES = "00112233445566778899aabbccddeeff"

ENCODINGS: list[tuple[str, Any]] = [
    # null, boolean
    ("40", None),
    ("41", True),
    ("42", False),
    ("56 00", False),
    ("56 01", True),
    # unsigned integers
    ("50 00", UByte(0)),
    ("50 ff", UByte(255)),
    ("60 0000", UShort(0)),
    ("60 ffff", UShort(65535)),
    ("43", UInt(0)),
    ("52 00", UInt(0)),
    ("52 ff", UInt(255)),
    ("70 00000000", UInt(0)),
    ("70 ffffffff", UInt(2**32 - 1)),
    ("44", ULong(0)),
    ("53 00", ULong(0)),
    ("53 ff", ULong(255)),
    ("80 0000000000000000", ULong(0)),
    ("80 ffffffffffffffff", ULong(2**64 - 1)),
    # signed integers
    ("51 80", Byte(-128)),
    ("51 7f", Byte(127)),
    ("61 8000", Short(-32768)),
    ("61 7fff", Short(32767)),
    ("54 80", Int32(-128)),
    ("54 7f", Int32(127)),
    ("71 80000000", Int32(-(2**31))),
    ("71 00000001", Int32(1)),
    ("55 80", -128),
    ("55 7f", 127),
    ("81 8000000000000000", -(2**63)),
    ("81 0000000000000001", 1),
    # floats and decimals
    ("72 3fc00000", Float32(1.5)),
    ("72 ff800000", Float32(-math.inf)),
    ("82 3ff8000000000000", 1.5),
    ("82 7ff0000000000000", math.inf),
    ("82 8000000000000000", -0.0),
    ("74 22500001", Decimal32(bytes.fromhex("22500001"))),
    ("84 2238000000000001", Decimal64(bytes.fromhex("2238000000000001"))),
    ("94" + UUID_BYTES, Decimal128(bytes.fromhex(UUID_BYTES))),
    # char, timestamp, uuid
    ("73 00000041", Char("A")),
    ("73 0001f600", Char("\U0001f600")),
    ("73 0010ffff", Char("\U0010ffff")),
    ("83 00000125798bb4aa", Timestamp(0x125798BB4AA)),
    ("83 ffffffffffffffff", Timestamp(-1)),
    ("98" + UUID_BYTES, UUID(UUID_BYTES)),
    # variable width
    ("a0 00", b""),
    ("a0 03 00ff80", b"\x00\xff\x80"),
    ("b0 00000003 00ff80", b"\x00\xff\x80"),
    ("a1 00", ""),
    ("a1 05 c3a9e282ac", "é€"),
    ("b1 00000005 c3a9e282ac", "é€"),
    ("a3 03 616263", Symbol("abc")),
    ("b3 00000003 616263", Symbol("abc")),
    # compound
    ("45", []),
    ("c0 01 00", []),
    ("d0 00000004 00000000", []),
    ("c0 04 02 41 5201", [True, UInt(1)]),
    ("d0 00000007 00000002 41 5201", [True, UInt(1)]),
    ("c1 01 00", {}),
    ("d1 00000004 00000000", {}),
    ("c1 06 02 a30161 5401", {Symbol("a"): Int32(1)}),
    ("d1 00000009 00000002 a30161 5401", {Symbol("a"): Int32(1)}),
    # arrays
    ("e0 02 00 70", Array(UInt, ())),
    ("e0 01 00", Array(type(None), ())),  # Not valid, but the Azure SDK encodes it.
    ("f0 00000004 00000000", Array(type(None), ())),
    ("e0 04 02 50 01 02", Array(UByte, (UByte(1), UByte(2)))),
    ("f0 00000007 00000002 50 01 02", Array(UByte, (UByte(1), UByte(2)))),
    # described: by ulong, by symbol, by another described value
    ("00 53 24 45", Described(ULong(0x24), [])),
    ("00 80 0000000000000024 45", Described(ULong(0x24), [])),
    ("00 a3 03 616263 a1 01 78", Described(Symbol("abc"), "x")),
    ("00 00 53 01 53 02 40", Described(Described(ULong(1), ULong(2)), None)),
]


@pytest.mark.parametrize(("data", "value"), ENCODINGS, ids=[data for data, _ in ENCODINGS])
def test_every_valid_encoding_is_decoded_with_its_type(data: str, value: Any) -> None:
    raw = bytes.fromhex(data)

    result, after = decode(raw)

    assert same(result, value), f"{result!r} is not {value!r}"
    assert after == len(raw)


@pytest.mark.parametrize(("data", "value"), ENCODINGS, ids=[data for data, _ in ENCODINGS])
def test_value_is_decoded_and_skipped_at_any_position(data: str, value: Any) -> None:
    raw = bytes.fromhex(data)
    surrounded = b"\xff\xff" + raw + b"\xff"

    result, after = decode(surrounded, 2)

    assert same(result, value)
    assert after == 2 + len(raw) == skip_value(surrounded, 2)


@pytest.mark.parametrize(("data", "value"), ENCODINGS, ids=[data for data, _ in ENCODINGS])
def test_truncated_value_is_an_error(data: str, value: Any) -> None:
    raw = bytes.fromhex(data)

    for size in range(len(raw)):
        with pytest.raises(DecodeError):
            decode(raw[:size])
        with pytest.raises(DecodeError):
            skip_value(raw[:size], 0)


def test_nan_is_decoded_as_nan() -> None:
    assert math.isnan(decode_whole(bytes.fromhex("72 7fc00000")))
    assert math.isnan(decode_whole(bytes.fromhex("82 7ff8000000000000")))


def test_empty_list_is_a_new_list_each_time() -> None:
    first = decode_whole(b"\x45")
    first.append(1)

    assert decode_whole(b"\x45") == []


def test_all_constructors_are_tested() -> None:
    tested = {bytes.fromhex(data)[0] for data, _ in ENCODINGS}

    for code in set(range(256)) - tested:
        with pytest.raises(DecodeError, match="no AMQP type has the constructor"):
            decode(bytes((code,)) + bytes(64))
        with pytest.raises(DecodeError, match="no AMQP type has the constructor"):
            skip_value(bytes((code,)) + bytes(64), 0)
    assert len(tested - {0}) == 39


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("56 02", "a boolean must be 0 or 1"),
        ("73 0000d800", "not a Unicode character"),
        ("73 00110000", "not a Unicode character"),
        ("a1 01 ff", "invalid encoding"),
        ("a1 04 c3a9e282", "invalid encoding"),
        ("b1 00000001 ff", "invalid encoding"),
        ("a3 01 e9", "invalid encoding"),
        ("c1 03 01 40", "ends within|does not match"),
        ("c1 02 01 40", "a key without a value"),
        ("c0 02 02 40", "fewer elements than its count"),
        ("c0 03 01 4040", "do not match its size"),
        ("c0 00 40", "does not match its data"),
        ("d0 00000003 000000", "ends within a value"),
        ("d0 00000003 00000000", "does not match its data"),
        ("d0 ffffffff 00000000", "does not match its data"),
        ("c0 02 01 5201", "do not match its size"),
        ("e0 02 00 01", "no AMQP type"),
        ("e0 01 01 40", "do not match|fewer"),
        ("e0 05 01 00 40 40 40", "described by null"),
        ("e0 08 01 00 53 01 00 53 02 40", "two descriptors"),
        ("e0 03 02 50 01", "fewer elements than its count"),
        ("e0 04 01 50 01 02", "do not match its size"),
        ("", "ends within a value"),
        ("00", "ends within a value"),
        ("00 53 24", "ends within a value"),
    ],
)
def test_malformed_value_is_an_error(data: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason) as caught:
        decode(bytes.fromhex(data))
    assert caught.value.condition == "amqp:decode-error"


def test_trailing_bytes_are_an_error_for_decode_whole() -> None:
    with pytest.raises(DecodeError, match="2 bytes follow a value"):
        decode_whole(b"\x40\x40\x40")
