"""Hypothesis strategies for AMQP values of all types."""

from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from pairbus.amqp.decode import MAX_ZERO_WIDTH_ELEMENTS
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


def integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    edges = (low, -129, -128, -1, 0, 127, 128, 255, 256, high)
    inside = [number for number in edges if low <= number <= high]
    return st.sampled_from(inside) | st.integers(low, high)


def sized(kind: Any, strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return mostly short values, and some around the size at which the encoding changes."""
    return strategy.map(kind) | st.sampled_from([0, 1, 254, 255, 256]).map(
        lambda size: kind("x" * size) if issubclass(kind, str) else kind(b"x" * size)
    )


characters = st.characters(exclude_categories=["Cs"])


SCALARS: dict[type, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    bool: st.booleans(),
    UByte: integers(8, False).map(UByte),
    UShort: integers(16, False).map(UShort),
    UInt: integers(32, False).map(UInt),
    ULong: integers(64, False).map(ULong),
    Byte: integers(8, True).map(Byte),
    Short: integers(16, True).map(Short),
    Int32: integers(32, True).map(Int32),
    int: integers(64, True),
    Float32: st.floats(width=32).map(Float32),
    float: st.floats(width=64),
    Decimal32: st.binary(min_size=4, max_size=4).map(Decimal32),
    Decimal64: st.binary(min_size=8, max_size=8).map(Decimal64),
    Decimal128: st.binary(min_size=16, max_size=16).map(Decimal128),
    Char: characters.map(Char),
    Timestamp: integers(64, True).map(Timestamp),
    UUID: st.uuids(),
    bytes: sized(bytes, st.binary(max_size=20)),
    str: sized(str, st.text(characters, max_size=10)),
    Symbol: sized(Symbol, st.text(st.characters(max_codepoint=127), max_size=10)),
}
scalars = st.one_of(*SCALARS.values())


def _map(pairs: list[tuple[Any, Any]]) -> Any:
    """Return a map as it is decoded: a dict if a dict can hold it."""
    try:
        result = dict(pairs)
    except TypeError:
        return Pairs(pairs)
    return result if len(result) == len(pairs) else Pairs(pairs)


def maps(keys: st.SearchStrategy[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    # Two NaN are two keys in a dict, but not in AMQP.
    return st.lists(
        st.tuples(keys.filter(lambda key: "nan" not in repr(key)), values),
        max_size=4,
        unique_by=lambda pair: encode(pair[0]),
    ).map(_map)


def _arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Array]:
    elements: dict[type, st.SearchStrategy[Any]] = {
        **SCALARS,
        list: st.lists(inner, max_size=3),
        dict: maps(inner, inner),
        Array: st.deferred(lambda: _arrays(scalars)),
    }

    def of_kind(kind: type) -> st.SearchStrategy[Array]:
        items = st.lists(elements[kind], max_size=min(6, MAX_ZERO_WIDTH_ELEMENTS)).map(tuple)
        descriptors = st.none() | inner.filter(lambda value: value is not None)
        return st.tuples(items, descriptors).map(lambda parts: Array(kind, *parts))

    return st.sampled_from(list(elements)).flatmap(of_kind)


values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        maps(inner, inner),
        st.tuples(inner, inner).map(lambda parts: Described(*parts)),
        _arrays(inner),
    ),
    max_leaves=12,
)
"""Values of all types."""
