"""Every AMQP type, as proton's Python classes have it and as ours do."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import proton
from proton import UNDESCRIBED, Data

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

SOME_UUID = UUID("00112233-4455-6677-8899-aabbccddeeff")
SIXTEEN = bytes(range(16))

SIMPLE: dict[str, tuple[Any, Any]] = {
    "null": (None, None),
    "true": (True, True),
    "false": (False, False),
    "ubyte": (proton.ubyte(255), UByte(255)),
    "ushort": (proton.ushort(65535), UShort(65535)),
    "uint zero": (proton.uint(0), UInt(0)),
    "uint small": (proton.uint(200), UInt(200)),
    "uint large": (proton.uint(2**32 - 1), UInt(2**32 - 1)),
    "ulong zero": (proton.ulong(0), ULong(0)),
    "ulong small": (proton.ulong(200), ULong(200)),
    "ulong large": (proton.ulong(2**64 - 1), ULong(2**64 - 1)),
    "byte": (proton.byte(-128), Byte(-128)),
    "short": (proton.short(-32768), Short(-32768)),
    "int small": (proton.int32(-128), Int32(-128)),
    "int large": (proton.int32(-(2**31)), Int32(-(2**31))),
    "long small": (-128, -128),
    "long large": (-(2**63), -(2**63)),
    "float": (proton.float32(-1.5), Float32(-1.5)),
    "double": (1e300, 1e300),
    "decimal32": (proton.decimal32(0x00010203), Decimal32(SIXTEEN[:4])),
    "decimal64": (proton.decimal64(0x0001020304050607), Decimal64(SIXTEEN[:8])),
    "decimal128": (proton.decimal128(SIXTEEN), Decimal128(SIXTEEN)),
    "char": (proton.char("€"), Char("€")),
    "char beyond 16 bits": (proton.char("🐇"), Char("🐇")),
    "timestamp": (proton.timestamp(1311704463521), Timestamp(1311704463521)),
    "timestamp before 1970": (proton.timestamp(-1), Timestamp(-1)),
    "uuid": (SOME_UUID, SOME_UUID),
    "binary": (b"\x00\xff", b"\x00\xff"),
    "binary long": (b"b" * 300, b"b" * 300),
    "string": ("grün", "grün"),
    "string long": ("s" * 300, "s" * 300),
    "symbol": (proton.symbol("a-symbol"), Symbol("a-symbol")),
    "symbol long": (proton.symbol("y" * 300), Symbol("y" * 300)),
}
"""What an application property may be."""

COMPOUND: dict[str, tuple[Any, Any]] = {
    "list empty": ([], []),
    "list": ([1, "two", [proton.uint(3)]], [1, "two", [UInt(3)]]),
    "map empty": ({}, {}),
    "map": (
        {"s": proton.ubyte(1), proton.symbol("y"): [], proton.ulong(7): {"in": None}},
        {"s": UByte(1), Symbol("y"): [], ULong(7): {"in": None}},
    ),
    "described": (
        proton.Described(proton.symbol("d"), ["x"]),
        Described(Symbol("d"), ["x"]),
    ),
    "described by a number": (
        proton.Described(proton.ulong(1 << 40), b"x"),
        Described(ULong(1 << 40), b"x"),
    ),
    "array empty": (proton.Array(UNDESCRIBED, Data.STRING), Array(str, ())),
    "array of boolean": (
        proton.Array(UNDESCRIBED, Data.BOOL, True, False),
        Array(bool, (True, False)),
    ),
    "array of ubyte": (
        proton.Array(UNDESCRIBED, Data.UBYTE, proton.ubyte(0), proton.ubyte(255)),
        Array(UByte, (UByte(0), UByte(255))),
    ),
    "array of uint": (
        proton.Array(UNDESCRIBED, Data.UINT, proton.uint(0), proton.uint(2**32 - 1)),
        Array(UInt, (UInt(0), UInt(2**32 - 1))),
    ),
    "array of ulong": (
        proton.Array(UNDESCRIBED, Data.ULONG, proton.ulong(0), proton.ulong(1)),
        Array(ULong, (ULong(0), ULong(1))),
    ),
    "array of int": (
        proton.Array(UNDESCRIBED, Data.INT, proton.int32(-1), proton.int32(300)),
        Array(Int32, (Int32(-1), Int32(300))),
    ),
    "array of long": (
        proton.Array(UNDESCRIBED, Data.LONG, 1, -2),
        Array(int, (1, -2)),
    ),
    "array of double": (proton.Array(UNDESCRIBED, Data.DOUBLE, 0.5), Array(float, (0.5,))),
    "array of timestamp": (
        proton.Array(UNDESCRIBED, Data.TIMESTAMP, proton.timestamp(1)),
        Array(Timestamp, (Timestamp(1),)),
    ),
    "array of uuid": (proton.Array(UNDESCRIBED, Data.UUID, SOME_UUID), Array(UUID, (SOME_UUID,))),
    "array of binary": (
        proton.Array(UNDESCRIBED, Data.BINARY, b"", b"b" * 300),
        Array(bytes, (b"", b"b" * 300)),
    ),
    "array of symbol": (
        proton.Array(UNDESCRIBED, Data.SYMBOL, proton.symbol("a"), proton.symbol("b")),
        Array(Symbol, (Symbol("a"), Symbol("b"))),
    ),
    "array of lists": (
        proton.Array(UNDESCRIBED, Data.LIST, [1], []),
        Array(list, ([1], [])),
    ),
    "array of maps": (
        proton.Array(UNDESCRIBED, Data.MAP, {"a": 1}, {}),
        Array(dict, ({"a": 1}, {})),
    ),
    "array of arrays": (
        proton.Array(
            UNDESCRIBED,
            Data.ARRAY,
            proton.Array(UNDESCRIBED, Data.SHORT, proton.short(1)),
            proton.Array(UNDESCRIBED, Data.STRING, "x", "y"),
        ),
        Array(Array, (Array(Short, (Short(1),)), Array(str, ("x", "y")))),
    ),
    "array described": (
        proton.Array(proton.symbol("d"), Data.UINT, proton.uint(1), proton.uint(2)),
        Array(UInt, (UInt(1), UInt(2)), Symbol("d")),
    ),
}

EVERY = SIMPLE | COMPOUND
"""What an annotation or a value may be."""

TWICE = (
    proton.Described(proton.ulong(1), proton.Described("twice", b"x")),
    Described(ULong(1), Described("twice", b"x")),
)
"""Stands apart: proton 0.40 writes it well, but reading it in a list or map it passes over what is
behind it, and as the body of a message it reads nothing at all."""


def theirs(values: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    return {name: value for name, (value, _) in values.items()}


def ours(values: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    return {name: value for name, (_, value) in values.items()}


def typed(value: Any) -> Any:
    """A value with the classes of all that is in it: equal only where the types are, too."""
    match value:
        case memoryview():  # how proton gives binary
            return "bytes", bytes(value)
        case list() | tuple():
            return type(value).__name__, [typed(item) for item in value]
        case dict():
            return "dict", [(typed(key), typed(item)) for key, item in value.items()]
        case proton.Described() | Described():
            return "described", typed(value.descriptor), typed(value.value)
        case proton.Array():
            items = [typed(item) for item in value.elements]
            return "array", value.type, typed(value.descriptor), items
        case Array():
            return (
                "array",
                value.element_type.__name__,
                typed(value.descriptor),
                typed(value.elements),
            )
    return type(value).__name__, value
