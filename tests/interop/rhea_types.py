"""Values of all AMQP types that rhea can carry."""

import math
import uuid
from types import NoneType
from typing import Any

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

ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")

SIMPLE: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    **{f"ubyte {n}": UByte(n) for n in (0, 255)},
    **{f"ushort {n}": UShort(n) for n in (0, 65535)},
    **{f"uint {n}": UInt(n) for n in (0, 1, 255, 256, 2**32 - 1)},
    **{f"ulong {n}": ULong(n) for n in (0, 1, 255, 256, 2**53 - 1, 2**63, 2**64 - 1)},
    **{f"byte {n}": Byte(n) for n in (-128, 0, 127)},
    **{f"short {n}": Short(n) for n in (-32768, 32767)},
    **{f"int {n}": Int32(n) for n in (-(2**31), -129, -128, 0, 127, 128, 2**31 - 1)},
    **{f"long {n}": n for n in (-(2**63), -(2**40), -129, -128, 0, 127, 128, 2**63 - 1)},
    **{f"float {n}": Float32(n) for n in (0.0, -1.5, math.inf, math.nan)},
    **{f"double {n}": n for n in (-0.0, math.pi, 1e300, -math.inf, math.nan)},
    "decimal32": Decimal32(bytes(range(4))),
    "decimal64": Decimal64(bytes(range(8))),
    "decimal128": Decimal128(bytes(range(16))),
    **{f"char {ord(c)}": Char(c) for c in "až€𝄞"},
    **{f"timestamp {n}": Timestamp(n) for n in (-1, 0, 1_709_208_000_250, 253_402_300_799_999)},
    "uuid": ID,
    **{f"binary of {n}": bytes(n) for n in (0, 1, 255, 256)},
    **{f"string of {n}": "ž" * n for n in (0, 1, 127, 128)},
    **{f"symbol of {n}": Symbol("s" * n) for n in (0, 1, 255, 256)},
}
"""What application properties may hold."""

_ONE_OF_EACH: list[Any] = [
    True,
    UByte(1),
    UShort(1),
    UInt(0),
    UInt(300),
    ULong(2**64 - 1),
    Byte(-1),
    Short(-1),
    Int32(-1),
    -(2**63),
    Float32(0.5),
    0.1,
    Decimal32(b"abcd"),
    Decimal64(b"abcdefgh"),
    Decimal128(b"abcdefghijklmnop"),
    Char("ž"),
    Timestamp(-1),
    ID,
    b"\x00\xff",
    "ž" * 200,
    Symbol("name"),
    [UInt(1), "one"],
    {"one": UInt(1)},
]

COMPOUND: dict[str, Any] = {
    "empty list": [],
    "list": [None, *_ONE_OF_EACH, [[[]]]],
    "long list": [UInt(n) for n in range(300)],
    "empty map": {},
    "map": {"string": 1, Symbol("symbol"): "s", UInt(1): b"", ULong(2): [], ID: None},
    "map with keys that Python takes for equal": Pairs(((UInt(1), "uint"), (1, "long"))),
    "long map": {f"key {n}": n for n in range(300)},
    "described by a symbol": Described(Symbol("pairbus:test"), "value"),
    "described by a ulong": Described(ULong(2**40), [UInt(1)]),
    "described within described": Described(
        Symbol("outer"), [Described(ULong(1), Symbol("inner"))]
    ),
    **{f"array {n}": Array(type(one), (one, one)) for n, one in enumerate(_ONE_OF_EACH)},
    "array of nothing": Array(str, ()),
    "array of nulls": Array(NoneType, (None, None)),
    "array of both booleans": Array(bool, (True, False)),
    "array of described": Array(str, ("a", "b"), Symbol("pairbus:test")),
}
"""What annotations and bodies may hold besides."""

EVERYTHING = SIMPLE | COMPOUND
