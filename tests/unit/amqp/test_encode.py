"""Encoding: the smallest encoding of each value, and errors for values without one."""

import enum
import math
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from pairbus.amqp.decode import decode_whole
from pairbus.amqp.encode import encode
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
    Pairs,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from pairbus.errors import EncodeError
from tests.unit.amqp.same import same

SMALLEST: list[tuple[Any, str]] = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (UByte(0), "50 00"),
    (UByte(255), "50 ff"),
    (UShort(1), "60 0001"),
    (UInt(0), "43"),
    (UInt(1), "52 01"),
    (UInt(255), "52 ff"),
    (UInt(256), "70 00000100"),
    (UInt(2**32 - 1), "70 ffffffff"),
    (ULong(0), "44"),
    (ULong(255), "53 ff"),
    (ULong(256), "80 0000000000000100"),
    (Byte(-1), "51 ff"),
    (Short(-2), "61 fffe"),
    (Int32(-128), "54 80"),
    (Int32(127), "54 7f"),
    (Int32(-129), "71 ffffff7f"),
    (Int32(128), "71 00000080"),
    (0, "55 00"),
    (-128, "55 80"),
    (127, "55 7f"),
    (128, "81 0000000000000080"),
    (-129, "81 ffffffffffffff7f"),
    (Float32(1.5), "72 3fc00000"),
    (1.5, "82 3ff8000000000000"),
    (Decimal32(b"abcd"), "74 61626364"),
    (Decimal64(b"abcdefgh"), "84 6162636465666768"),
    (Decimal128(bytes(16)), "94" + "00" * 16),
    (Char("A"), "73 00000041"),
    (Char("\U0001f600"), "73 0001f600"),
    (Timestamp(-1), "83 ffffffffffffffff"),
    (UUID(int=1), "98" + "00" * 15 + "01"),
    (b"", "a0 00"),
    (b"x" * 255, "a0 ff" + "78" * 255),
    (b"x" * 256, "b0 00000100" + "78" * 256),
    ("é", "a1 02 c3a9"),
    ("x" * 255, "a1 ff" + "78" * 255),
    ("é" * 128, "b1 00000100" + "c3a9" * 128),
    (Symbol("a"), "a3 01 61"),
    (Symbol("a" * 256), "b3 00000100" + "61" * 256),
    ([], "45"),
    ([None], "c0 02 01 40"),
    ([b"x" * 251, None], "c0 ff 02 a0fb" + "78" * 251 + "40"),
    ([b"x" * 252, None], "d0 00000103 00000002 a0fc" + "78" * 252 + "40"),
    ([None] * 254, "c0 ff fe" + "40" * 254),
    ([None] * 255, "d0 00000103 000000ff" + "40" * 255),
    ({}, "c1 01 00"),
    ({"a": True}, "c1 05 02 a10161 41"),
    (Described(ULong(0x24), []), "00 53 24 45"),
    (Described(Symbol("a"), UInt(0)), "00 a30161 43"),
]


@pytest.mark.parametrize(("value", "data"), SMALLEST, ids=[data[:40] for _, data in SMALLEST])
def test_value_has_the_smallest_encoding(value: Any, data: str) -> None:
    assert encode(value).hex() == data.replace(" ", "")


@pytest.mark.parametrize(("value", "data"), SMALLEST, ids=[data[:40] for _, data in SMALLEST])
def test_values_survive_a_round_trip(value: Any, data: str) -> None:
    assert same(decode_whole(encode(value)), value)


class Colour(enum.IntEnum):
    RED = 3


class Name(enum.StrEnum):
    A = "a"


class Point(NamedTuple):
    x: int
    y: int


def test_subclass_is_encoded_like_its_base_class() -> None:
    assert encode(Colour.RED) == encode(3)
    assert encode(Name.A) == encode("a")
    assert encode(Point(1, 2)) == encode((1, 2)) == encode([1, 2])
    assert encode(bytearray(b"ab")) == encode(memoryview(b"ab")) == encode(b"ab")


@pytest.mark.parametrize(
    "value",
    [
        UByte(-1),
        UByte(256),
        UShort(-1),
        UShort(65536),
        UInt(-1),
        UInt(2**32),
        ULong(-1),
        ULong(2**64),
        Byte(-129),
        Byte(128),
        Short(32768),
        Int32(2**31),
        Int32(-(2**31) - 1),
        2**63,
        -(2**63) - 1,
        Timestamp(2**63),
    ],
    ids=lambda value: f"{type(value).__name__}({int(value)})",
)
def test_number_out_of_the_range_of_its_type_is_an_error(value: int) -> None:
    with pytest.raises(EncodeError, match="out of the range"):
        encode(value)
    with pytest.raises(EncodeError, match="out of the range"):
        encode([{"deep": [value]}])


def test_number_too_large_for_a_float_is_an_error_but_infinity_is_not() -> None:
    with pytest.raises(EncodeError, match="32-bit float"):
        encode(Float32(1e39))
    assert decode_whole(encode(Float32(math.inf))) == math.inf


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (range(0), "no encoding for builtins.range"),
        ({1, 2}, "no encoding for builtins.set"),
        (1j, "no encoding for builtins.complex"),
        ([1, {"a": range(0)}], "no encoding for builtins.range"),
        (Char(""), "one character"),
        (Char("ab"), "one character"),
        (Char("\ud800"), "cannot be encoded"),
        ("\ud800", "cannot be encoded"),
        (Symbol("é"), "cannot be encoded"),
        (Decimal32(b"abc"), "has 4 bytes, not 3"),
        (Decimal64(b"abc"), "has 8 bytes, not 3"),
        (Decimal128(b"abc"), "has 16 bytes, not 3"),
        (Pairs([(1, 2, 3)]), "not a pair of a key and a value"),  # type: ignore[list-item]
        (Array(int, (1, "a")), "cannot hold 'a'"),
        (Array(int, (1, True)), "cannot hold True"),
        (Array(str, (Symbol("a"),)), "cannot hold 'a'"),
        (Array(UInt, (1,)), "cannot hold 1"),
        (Array(int, (2**63,)), "out of the range"),
        (Array(Described, ()), "cannot hold Described"),
        (Array(Pairs, ()), "cannot hold Pairs"),
        (Array(set, ()), "cannot hold set"),
    ],
    ids=repr,
)
def test_value_without_an_amqp_encoding_is_an_error(value: Any, reason: str) -> None:
    with pytest.raises(EncodeError, match=reason):
        encode(value)


def test_list_that_contains_itself_is_an_error() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(EncodeError, match="nested too deeply"):
        encode(endless)


def test_map_that_contains_itself_is_an_error() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = [endless]

    with pytest.raises(EncodeError, match="nested too deeply"):
        encode(endless)
