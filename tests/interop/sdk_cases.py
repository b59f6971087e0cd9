"""Values in the types of the Azure SDK, and options of its clients, for several test packages."""

import datetime
import uuid
from decimal import Decimal
from typing import Any

from examples.engine.memory_server import MemoryServer
from pairbus.amqp.types import (
    Array,
    Byte,
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

RETRIES = {"retry_total": 3, "retry_backoff_factor": 0.02, "retry_backoff_max": 1}
"""Options of a client that retries quickly."""

NO_RETRIES = RETRIES | {"retry_total": 0}
"""Options of a client that does not retry."""

QUICK_CLOSE = {"keep_alive": 0, "socket_timeout": 0.05}
"""Options of a sender or receiver that closes quickly: no keep-alive thread, which wakes once a
second, and short waits for the last frames."""


def connection_string(server: MemoryServer, *, tls: bool = False) -> str:
    emulator = "" if tls else "UseDevelopmentEmulator=true;"
    host = "localhost" if tls else f"127.0.0.1:{server.port}"
    return f"Endpoint=sb://{host}/;SharedAccessKeyName=root;SharedAccessKey=a2V5;{emulator}"


def typed(kind: str, value: Any) -> dict[str, Any]:
    """Return a value that the SDK encodes with this AMQP type."""
    return {"TYPE": kind, "VALUE": value}


ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
NOON = datetime.datetime(2024, 2, 29, 12, 0, 0, 250_000, tzinfo=datetime.UTC)
NOON_MS = 1_709_208_000_250

FROM_THE_SDK: list[tuple[str, Any, Any]] = [
    # Name, value for the SDK, value that we decode.
    ("null", None, None),
    ("true", True, True),
    ("false", False, False),
    ("int", 1, Int32(1)),
    ("large int", -(2**31), Int32(-(2**31))),
    ("double", 0.1, 0.1),
    ("string", "žluťoučký", "žluťoučký"),
    ("long string", "x" * 1000, "x" * 1000),
    ("uuid", ID, ID),
    ("timestamp", NOON, Timestamp(NOON_MS)),
    ("decimal", Decimal("1.5"), Decimal128(bytes.fromhex("303e000000000000000000000000000f"))),
    ("typed ubyte", typed("UBYTE", 255), UByte(255)),
    ("typed byte", typed("BYTE", -128), Byte(-128)),
    ("typed ushort", typed("USHORT", 65535), UShort(65535)),
    ("typed short", typed("SHORT", -32768), Short(-32768)),
    ("typed uint zero", typed("UINT", 0), UInt(0)),
    ("typed uint small", typed("UINT", 255), UInt(255)),
    ("typed uint", typed("UINT", 2**32 - 1), UInt(2**32 - 1)),
    ("typed ulong zero", typed("ULONG", 0), ULong(0)),
    ("typed ulong small", typed("ULONG", 255), ULong(255)),
    ("typed ulong", typed("ULONG", 2**64 - 1), ULong(2**64 - 1)),
    ("typed long small", typed("LONG", -128), -128),
    ("typed long", typed("LONG", -(2**63)), -(2**63)),
    ("typed float", typed("FLOAT", 0.5), Float32(0.5)),
    ("typed binary", typed("BINARY", b"\x00\xff"), b"\x00\xff"),
    ("typed long binary", typed("BINARY", b"\x00" * 300), b"\x00" * 300),
    ("typed symbol", typed("SYMBOL", "name"), Symbol("name")),
]
"""Simple types, which application properties may have."""

NESTED_FROM_THE_SDK: list[tuple[str, Any, Any]] = [
    ("list", [1, "a", None, [True]], [Int32(1), "a", None, [True]]),
    ("empty list", [], []),
    ("map", {"a": 1, 2: [b"b"]}, {"a": Int32(1), Int32(2): [b"b"]}),
    ("array", typed("ARRAY", [1, 2]), Array(Int32, (Int32(1), Int32(2)))),
    ("empty array", typed("ARRAY", []), Array(type(None), ())),
    (
        "array of uuids",
        typed("ARRAY", [typed("UUID", ID), typed("UUID", ID)]),
        Array(uuid.UUID, (ID, ID)),
    ),
    ("described", (typed("SYMBOL", "d"), "value"), Described(Symbol("d"), "value")),
]
"""Compound types, which annotations and bodies may have."""

TO_THE_SDK: list[tuple[str, Any, Any]] = [
    # Name, value that we encode, value that the SDK decodes: it has few types.
    ("null", None, None),
    ("true", True, True),
    ("false", False, False),
    ("ubyte", UByte(255), 255),
    ("byte", Byte(-128), -128),
    ("ushort", UShort(65535), 65535),
    ("short", Short(-32768), -32768),
    ("uint zero", UInt(0), 0),
    ("uint small", UInt(255), 255),
    ("uint", UInt(2**32 - 1), 2**32 - 1),
    ("ulong zero", ULong(0), 0),
    ("ulong small", ULong(255), 255),
    ("ulong", ULong(2**64 - 1), 2**64 - 1),
    ("int small", Int32(-128), -128),
    ("int", Int32(2**31 - 1), 2**31 - 1),
    ("long small", 127, 127),
    ("long", -(2**63), -(2**63)),
    ("float", Float32(0.5), 0.5),
    ("double", 0.1, 0.1),
    ("timestamp", Timestamp(NOON_MS), NOON_MS),
    ("uuid", ID, ID),
    ("binary", b"\x00\xff", b"\x00\xff"),
    ("long binary", b"\x00" * 300, b"\x00" * 300),
    ("string", "žluťoučký", "žluťoučký".encode()),
    ("long string", "x" * 1000, b"x" * 1000),
    ("symbol", Symbol("name"), b"name"),
]

NESTED_TO_THE_SDK: list[tuple[str, Any, Any]] = [
    ("list", [Int32(1), "a", None, [True]], [1, b"a", None, [True]]),
    ("empty list", [], []),
    ("long list", [UInt(n) for n in range(300)], list(range(300))),
    ("map", {"a": Int32(1), ULong(2): [b"b"]}, {b"a": 1, 2: [b"b"]}),
    ("array", Array(Int32, (Int32(1), Int32(2000))), [1, 2000]),
    ("array of zeros", Array(UInt, (UInt(0), UInt(0))), [0, 0]),
    ("array of symbols", Array(Symbol, (Symbol("a"), Symbol("b" * 300))), [b"a", b"b" * 300]),
    ("described", [Described(Symbol("d"), True)], [True]),
]
"""Without values that the SDK cannot decode: char, decimals and empty arrays."""


def exactly(value: Any) -> Any:
    """Return a value with the types of all its parts: in Python, UInt(1) == Int32(1) == True."""
    if isinstance(value, dict):
        return dict, [(exactly(key), exactly(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [exactly(item) for item in value]
    if isinstance(value, Array):
        return Array, value.element_type, exactly(value.elements)
    if isinstance(value, Described):
        return Described, exactly(value.descriptor), exactly(value.value)
    return type(value), value
