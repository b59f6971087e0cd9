"""Arrays: of every kind, in the smallest constructor that fits all, described and nested."""

from typing import Any
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
from tests.unit.amqp.same import same

LONG = "x" * 300

WRITTEN: list[tuple[Array, str]] = [
    (Array(type(None), (None, None)), "e0 02 02 40"),
    (Array(bool, (True, False)), "e0 04 02 56 01 00"),
    (Array(bool, ()), "e0 02 00 56"),
    (Array(UByte, (UByte(1), UByte(255))), "e0 04 02 50 01ff"),
    (Array(UShort, (UShort(1),)), "e0 04 01 60 0001"),
    (Array(UInt, (UInt(0),)), "e0 03 01 52 00"),
    (Array(UInt, (UInt(0), UInt(7))), "e0 04 02 52 0007"),
    (Array(UInt, (UInt(0), UInt(7), UInt(256))), "e0 0e 03 70 00000000 00000007 00000100"),
    (Array(ULong, (ULong(0), ULong(7))), "e0 04 02 53 0007"),
    (Array(ULong, (ULong(0), ULong(256))), "e0 12 02 80 0000000000000000 0000000000000100"),
    (Array(Byte, (Byte(-1),)), "e0 03 01 51 ff"),
    (Array(Short, (Short(-1),)), "e0 04 01 61 ffff"),
    (Array(Int32, (Int32(-1), Int32(1))), "e0 04 02 54 ff01"),
    (Array(Int32, (Int32(-1), Int32(1), Int32(200))), "e0 0e 03 71 ffffffff 00000001 000000c8"),
    (Array(int, (-1, 1)), "e0 04 02 55 ff01"),
    (Array(int, (-1, 200)), "e0 12 02 81 ffffffffffffffff 00000000000000c8"),
    (Array(Float32, (Float32(1.5),)), "e0 06 01 72 3fc00000"),
    (Array(float, (1.5,)), "e0 0a 01 82 3ff8000000000000"),
    (Array(Decimal32, (Decimal32(b"abcd"),)), "e0 06 01 74 61626364"),
    (Array(Decimal64, (Decimal64(b"abcdefgh"),)), "e0 0a 01 84 6162636465666768"),
    (Array(Decimal128, (Decimal128(bytes(16)),)), "e0 12 01 94" + "00" * 16),
    (Array(Char, (Char("A"),)), "e0 06 01 73 00000041"),
    (Array(Timestamp, (Timestamp(1),)), "e0 0a 01 83 0000000000000001"),
    (Array(UUID, (UUID(int=2),)), "e0 12 01 98" + "00" * 15 + "02"),
    (Array(bytes, (b"", b"ab")), "e0 06 02 a0 00 026162"),
    (Array(str, ("a", "é")), "e0 07 02 a1 0161 02c3a9"),
    (Array(Symbol, (Symbol("a"), Symbol("b"))), "e0 06 02 a3 0161 0162"),
    (Array(list, ([], [])), "e0 06 02 c0 0100 0100"),
    (Array(list, ([], [True])), "e0 07 02 c0 0100 020141"),
    (Array(dict, ({}, {"a": 1})), "e0 0b 02 c1 0100 0602a101615501"),
    (Array(Array, (Array(bool, ()), Array(UByte, (UByte(1),)))), "e0 09 02 e0 020056 03015001"),
]

LARGE: list[Array] = [
    Array(str, ("a", LONG)),
    Array(bytes, (b"", b"x" * 300)),
    Array(Symbol, (Symbol("a"), Symbol(LONG))),
    Array(list, ([], [1], [LONG])),
    Array(dict, ({}, {"a": LONG}, Pairs([([1], 2)]))),
    Array(Array, (Array(bool, (True,)), Array(str, (LONG,)), Array(int, ()))),
    Array(UByte, tuple(UByte(n) for n in range(255))),
    Array(UByte, (UByte(1),) * 300),
]


@pytest.mark.parametrize(("array", "data"), WRITTEN, ids=[data for _, data in WRITTEN])
def test_array_is_encoded_with_the_smallest_constructor_that_fits_all(
    array: Array, data: str
) -> None:
    assert encode(array).hex() == data.replace(" ", "")


@pytest.mark.parametrize("array", [array for array, _ in WRITTEN] + LARGE, ids=str)
def test_array_survives_a_round_trip(array: Array) -> None:
    assert same(decode_whole(encode(array)), array)


@pytest.mark.parametrize("array", [array for array, _ in WRITTEN] + LARGE, ids=str)
def test_array_of_described_elements_survives_a_round_trip(array: Array) -> None:
    for descriptor in (ULong(5), Symbol("x:y"), [1, "two"], Described(ULong(1), None)):
        described = Array(array.element_type, array.elements, descriptor)

        assert same(decode_whole(encode(described)), described)


@pytest.mark.parametrize("array", [array for array, _ in WRITTEN] + LARGE, ids=str)
def test_arrays_can_be_nested(array: Array) -> None:
    nested = Array(Array, (array, Array(Symbol, ()), array))

    assert same(decode_whole(encode(nested)), nested)


@pytest.mark.parametrize(
    "kind", [array.element_type for array, _ in WRITTEN], ids=lambda kind: kind.__name__
)
def test_empty_array_keeps_its_element_type(kind: type) -> None:
    empty = Array(kind, ())

    assert same(decode_whole(encode(empty)), empty)


def test_array_of_described_elements_has_one_descriptor() -> None:
    array = Array(UInt, (UInt(1), UInt(2)), Symbol("a"))

    assert encode(array).hex() == "e0 08 02 00 a30161 52 01 02".replace(" ", "")


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("e0 02 03 41", Array(bool, (True,) * 3)),
        ("e0 02 03 42", Array(bool, (False,) * 3)),
        ("e0 02 03 43", Array(UInt, (UInt(0),) * 3)),
        ("e0 02 03 44", Array(ULong, (ULong(0),) * 3)),
        ("e0 02 02 45", Array(list, ([], []))),
        ("e0 06 01 70 00000007", Array(UInt, (UInt(7),))),
        ("e0 0a 01 d0 00000004 00000000", Array(list, ([],))),
        ("e0 0a 01 d1 00000004 00000000", Array(dict, ({},))),
        ("e0 0b 01 f0 00000005 00000000 56", Array(Array, (Array(bool, ()),))),
        ("e0 08 01 b0 00000002 6162", Array(bytes, (b"ab",))),
    ],
)
def test_array_is_decoded_with_constructors_that_we_do_not_encode(data: str, value: Any) -> None:
    assert same(decode_whole(bytes.fromhex(data)), value)


def test_array_of_empty_lists_has_distinct_lists() -> None:
    first, second = decode_whole(bytes.fromhex("e0 02 02 45")).elements

    assert first is not second
