"""Maps: dicts if possible, otherwise Pairs; duplicate keys are errors."""

import math
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
    Described,
    Float32,
    Pairs,
    Symbol,
    Timestamp,
    UInt,
    ULong,
)
from pairbus.errors import DecodeError
from tests.unit.amqp.same import same

HELD_BY_PAIRS: list[list[Any]] = [
    [[1, 2], "list"],
    [{"a": 1}, "map"],
    [[], {}, "empty list, empty map"],
    [UInt(1), 1, "uint and long"],
    [UInt(1), ULong(1), Byte(1), Timestamp(1), 1, 1.0, Float32(1.0), True],
    [Symbol("a"), "a", "symbol and string"],
    [Symbol("a"), "a", Char("a")],
    [b"abcd", Decimal32(b"abcd")],
    [0.0, -0.0],
    [Described(UInt(1), "a"), Described(1, "a")],
    [Described(ULong(1), [1]), Described(ULong(1), [UInt(1)])],
    [Array(int, (1,)), Array(int, (1,), "d"), Array(UInt, (UInt(1),)), [UInt(1)]],
    [{"a": [1]}, {"a": [UInt(1)]}, {Symbol("a"): [1]}],
    [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
    [Pairs([([], 1)]), Pairs([([], 2)])],
]

HELD_BY_A_DICT: list[Any] = [
    {},
    {"a": 1, Symbol("b"): 2, 3: [4], None: {}, b"x": None, True: "true"},
    {Described(ULong(1), "a"): 1, Described(ULong(2), "a"): 2},
    {UUID(int=1): 1, Array(int, (1,)): 2, Array(int, (2,)): 3},
    {2: "b", 1: "a"},
]


@pytest.mark.parametrize("value", HELD_BY_A_DICT, ids=repr)
def test_map_is_a_dict_in_encoding_order(value: Any) -> None:
    assert same(decode_whole(encode(value)), value)


@pytest.mark.parametrize("keys", HELD_BY_PAIRS, ids=repr)
def test_map_that_a_dict_cannot_hold_survives_as_pairs(keys: list[Any]) -> None:
    value = Pairs((key, n) for n, key in enumerate(keys))

    assert same(decode_whole(encode(value)), value)


@pytest.mark.parametrize(
    "key",
    ["a", Symbol("a"), 1, UInt(1), None, True, b"x", 1.5, UUID(int=5), Char("c")]
    + [key for keys in HELD_BY_PAIRS for key in keys],
    ids=repr,
)
def test_duplicate_key_is_an_error(key: Any) -> None:
    doubled = Pairs([(key, 1), ("something else", 2), (key, 3)])

    with pytest.raises(DecodeError, match="the same key twice"):
        decode_whole(encode(doubled))


def test_key_without_a_value_is_an_error() -> None:
    with pytest.raises(DecodeError, match="a key without a value"):
        decode_whole(bytes.fromhex("c1 04 03 404142"))


def test_pairs_can_be_nested_in_lists_and_maps() -> None:
    pairs = Pairs([([], 1), (["x"], 2)])

    assert same(decode_whole(encode([pairs, {"pairs": pairs}])), [pairs, {"pairs": pairs}])


def test_nan_may_be_a_key() -> None:
    value = decode_whole(encode({math.nan: 1}))

    assert list(value.values()) == [1]
