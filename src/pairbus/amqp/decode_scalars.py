"""Decoders of AMQP values that do not contain other values.

A decoder takes the data, the position after the constructor and the nesting depth. It returns the
value and the position after the value. Decoders do not check for the end of the data where Python
does: an index or `unpack_from` past the end raises, and a slice past the end returns a position
past the end, which is detected where the enclosing value ends.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any
from uuid import UUID, SafeUUID

from pairbus.amqp.types import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
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

Decoder = Callable[[bytes, int, int], tuple[Any, int]]

_U8, _U16 = Struct(">B").unpack_from, Struct(">H").unpack_from
_U32, _U64 = Struct(">I").unpack_from, Struct(">Q").unpack_from
_I8, _I16 = Struct(">b").unpack_from, Struct(">h").unpack_from
_I32, _I64 = Struct(">i").unpack_from, Struct(">q").unpack_from
_F32, _F64 = Struct(">f").unpack_from, Struct(">d").unpack_from


def _boolean(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    value = data[pos]
    if value > 1:
        raise DecodeError(f"a boolean must be 0 or 1, not {value}")
    return value == 1, pos + 1


def _char(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    value = _U32(data, pos)[0]
    if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
        raise DecodeError(f"0x{value:x} is not a Unicode character")
    return Char(chr(value)), pos + 4


# As the constructor does it, which takes twice as long because of its other arguments.
_new_uuid, _set_attribute = UUID.__new__, object.__setattr__


def _uuid(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    raw = data[pos : pos + 16]
    if len(raw) != 16:
        raise DecodeError("the data ends within a uuid")
    uuid = _new_uuid(UUID)
    _set_attribute(uuid, "int", int.from_bytes(raw, "big"))
    _set_attribute(uuid, "is_safe", SafeUUID.unknown)
    return uuid, pos + 16


def _fixed(
    unpack: Callable[[bytes, int], tuple[Any, ...]], width: int, kind: type | None
) -> Decoder:
    """Return a decoder of numbers with a fixed width, which converts to `kind` if it is given."""
    if kind is None:

        def decode_number(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
            return unpack(data, pos)[0], pos + width

    else:

        def decode_number(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
            return kind(unpack(data, pos)[0]), pos + width

    return decode_number


def _opaque(kind: type, width: int) -> Decoder:
    def decode_value(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
        return kind(data[pos : pos + width]), pos + width

    return decode_value


def _constant(value: Any) -> Decoder:
    def decode_value(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
        return value, pos

    return decode_value


def _binary8(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    end = pos + 1 + data[pos]
    return data[pos + 1 : end], end


def _binary32(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    end = pos + 4 + _U32(data, pos)[0]
    return data[pos + 4 : end], end


def _string8(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    end = pos + 1 + data[pos]
    return data[pos + 1 : end].decode(), end


def _string32(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    end = pos + 4 + _U32(data, pos)[0]
    return data[pos + 4 : end].decode(), end


# Peers repeat the same few dozen symbols in every frame, so they are cached.
_SYMBOLS: dict[bytes, Symbol] = {}


def _symbol(raw: bytes) -> Symbol:
    symbol = _SYMBOLS.get(raw)
    if symbol is None:
        symbol = Symbol(raw.decode("ascii"))
        if len(raw) <= 64 and len(_SYMBOLS) < 1024:
            _SYMBOLS[raw] = symbol
    return symbol


def _symbol8(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    end = pos + 1 + data[pos]
    return _symbol(data[pos + 1 : end]), end


def _symbol32(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    end = pos + 4 + _U32(data, pos)[0]
    return _symbol(data[pos + 4 : end]), end


SCALARS: dict[int, tuple[type, Decoder]] = {
    0x40: (type(None), _constant(None)),
    0x41: (bool, _constant(True)),
    0x42: (bool, _constant(False)),
    0x43: (UInt, _constant(UInt(0))),
    0x44: (ULong, _constant(ULong(0))),
    0x50: (UByte, _fixed(_U8, 1, UByte)),
    0x51: (Byte, _fixed(_I8, 1, Byte)),
    0x52: (UInt, _fixed(_U8, 1, UInt)),
    0x53: (ULong, _fixed(_U8, 1, ULong)),
    0x54: (Int32, _fixed(_I8, 1, Int32)),
    0x55: (int, _fixed(_I8, 1, None)),
    0x56: (bool, _boolean),
    0x60: (UShort, _fixed(_U16, 2, UShort)),
    0x61: (Short, _fixed(_I16, 2, Short)),
    0x70: (UInt, _fixed(_U32, 4, UInt)),
    0x71: (Int32, _fixed(_I32, 4, Int32)),
    0x72: (Float32, _fixed(_F32, 4, Float32)),
    0x73: (Char, _char),
    0x74: (Decimal32, _opaque(Decimal32, 4)),
    0x80: (ULong, _fixed(_U64, 8, ULong)),
    0x81: (int, _fixed(_I64, 8, None)),
    0x82: (float, _fixed(_F64, 8, None)),
    0x83: (Timestamp, _fixed(_I64, 8, Timestamp)),
    0x84: (Decimal64, _opaque(Decimal64, 8)),
    0x94: (Decimal128, _opaque(Decimal128, 16)),
    0x98: (UUID, _uuid),
    0xA0: (bytes, _binary8),
    0xA1: (str, _string8),
    0xA3: (Symbol, _symbol8),
    0xB0: (bytes, _binary32),
    0xB1: (str, _string32),
    0xB3: (Symbol, _symbol32),
}
"""The Python type and the decoder of each scalar, by the code of its constructor."""
