"""Decoding of AMQP values: every valid encoding, with bounded depth, time and memory.

A decoder takes the data, the position after the constructor and the nesting depth. It returns the
value and the position after the value. Decoders do not check for the end of the data where Python
does: an index or `unpack_from` past the end raises, and a slice past the end returns a position
past the end, which is detected where the enclosing value ends.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any
from uuid import UUID

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
from pairbus.errors import DecodeError

MAX_DEPTH = 32
"""The maximum nesting depth of lists, maps, arrays and described values."""

MAX_ZERO_WIDTH_ELEMENTS = 16
"""The maximum number of array elements whose encoding has no bytes.

Such elements use memory without using bytes of the frame, and a frame can hold thousands of arrays.
"""

_FEW_KEYS = 64

Decoder = Callable[[bytes, int, int], tuple[Any, int]]

_U16, _U32, _U64 = Struct(">H").unpack_from, Struct(">I").unpack_from, Struct(">Q").unpack_from
_I8, _I16 = Struct(">b").unpack_from, Struct(">h").unpack_from
_I32, _I64 = Struct(">i").unpack_from, Struct(">q").unpack_from
_F32, _F64 = Struct(">f").unpack_from, Struct(">d").unpack_from
_SIZE_COUNT = Struct(">II").unpack_from


def decode(data: bytes, pos: int = 0) -> tuple[Any, int]:
    """Decode the value at `pos`. Return the value and the position after it.

    Raises DecodeError for invalid data, and no other exception.
    """
    if type(data) is not bytes:
        data = bytes(data)
    try:
        value, after = DECODERS[data[pos]](data, pos + 1, 0)
    except (IndexError, StructError):
        raise DecodeError("the data ends within a value") from None
    except UnicodeDecodeError as exc:
        raise DecodeError(f"a string or symbol has an invalid encoding: {exc.reason}") from None
    if after > len(data):
        raise DecodeError("the data ends within a value")
    return value, after


def decode_whole(data: bytes) -> Any:
    """Decode a value that takes up all of the data."""
    value, after = decode(data)
    if after != len(data):
        raise DecodeError(f"{len(data) - after} bytes follow a value that must be the last")
    return value


def skip_value(data: bytes, pos: int) -> int:
    """Return the position after the value at `pos` without decoding the value."""
    try:
        while data[pos] == 0:  # A descriptor, followed by the described value.
            pos = skip_value(data, pos + 1)
        code = data[pos]
        width = _WIDTHS[code]
        if width >= 0:
            after = pos + 1 + width
        elif width == -1:
            after = pos + 2 + data[pos + 1]
        elif width == -4:
            after = pos + 5 + _U32(data, pos + 1)[0]
        else:
            raise _unknown(code)
    except (IndexError, StructError):
        raise DecodeError("the data ends within a value") from None
    except RecursionError:
        raise DecodeError("descriptors of descriptors are nested too deeply") from None
    if after > len(data):
        raise DecodeError("the data ends within a value")
    return after


def _width_of(code: int) -> int:
    """Return the number of bytes after a constructor.

    -1 and -4 mean that a size of one or four bytes follows; -9 means that the code is unassigned.
    """
    if code not in _CODES:
        return -9
    return {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16, 0xB: -4, 0xD: -4, 0xF: -4}.get(code >> 4, -1)


def _unknown(code: int) -> DecodeError:
    return DecodeError(f"no AMQP type has the constructor 0x{code:02x}")


def _unassigned(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    raise _unknown(data[pos - 1])


def _described(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    if depth >= MAX_DEPTH:
        raise DecodeError(f"values are nested more than {MAX_DEPTH} deep")
    descriptor, pos = DECODERS[data[pos]](data, pos + 1, depth + 1)
    value, pos = DECODERS[data[pos]](data, pos + 1, depth + 1)
    return Described(descriptor, value), pos


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


def _uuid(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    raw = data[pos : pos + 16]
    if len(raw) != 16:
        raise DecodeError("the data ends within a uuid")
    return UUID(bytes=raw), pos + 16


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


def _empty_list(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return [], pos


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


def _compound8(data: bytes, pos: int, depth: int) -> tuple[int, int, int]:
    """Return count, position of the first element and end of a compound with one-byte size."""
    end = pos + 1 + data[pos]
    count = data[pos + 1]
    if depth >= MAX_DEPTH:
        raise DecodeError(f"values are nested more than {MAX_DEPTH} deep")
    if end > len(data) or end < pos + 2:
        raise DecodeError("the size of a compound value does not match its data")
    return count, pos + 2, end


def _compound32(data: bytes, pos: int, depth: int) -> tuple[int, int, int]:
    size, count = _SIZE_COUNT(data, pos)
    end = pos + 4 + size
    if depth >= MAX_DEPTH:
        raise DecodeError(f"values are nested more than {MAX_DEPTH} deep")
    if end > len(data) or size < 4:
        raise DecodeError("the size of a compound value does not match its data")
    return count, pos + 8, end


def _items(data: bytes, count: int, pos: int, end: int, depth: int) -> list[Any]:
    # Each element has at least one byte, so a count beyond the data ends the loop early.
    decoders = DECODERS
    items = []
    for _ in range(count):
        if pos >= end:
            raise DecodeError("a compound value has fewer elements than its count")
        value, pos = decoders[data[pos]](data, pos + 1, depth)
        items.append(value)
    if pos != end:
        raise DecodeError("the elements of a compound value do not match its size")
    return items


def _list8(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    count, pos, end = _compound8(data, pos, depth)
    return _items(data, count, pos, end, depth + 1), end


def _list32(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    count, pos, end = _compound32(data, pos, depth)
    return _items(data, count, pos, end, depth + 1), end


def _as_map(items: list[Any]) -> Any:
    if len(items) % 2:
        raise DecodeError("a map has a key without a value")
    keys = items[::2]
    try:
        # A peer can choose uuids and described values with equal hashes, for which building a dict
        # takes quadratic time.
        if len(keys) > _FEW_KEYS and len(set(map(hash, keys))) < len(keys) - _FEW_KEYS:
            result = None
        else:
            result = dict(zip(keys, items[1::2], strict=True))
    except TypeError:
        result = None
    if result is not None and len(result) == len(keys):
        return result
    typed = [_identity(key) for key in keys]
    if len(set(typed)) != len(typed):
        raise DecodeError("a map has the same key twice")
    return Pairs(zip(keys, items[1::2], strict=True))


def _identity(key: Any) -> str:
    """Return a text that is equal for two keys if and only if they are equal in AMQP."""
    if isinstance(key, dict):
        return f"{{{','.join(_identity(pair) for pair in key.items())}}}"
    if isinstance(key, list | tuple):
        return f"{type(key).__name__}[{','.join(_identity(item) for item in key)}]"
    if isinstance(key, Array):
        element_type = key.element_type.__name__
        return f"array[{element_type},{_identity(key.elements)},{_identity(key.descriptor)}]"
    if isinstance(key, Described):
        return f"described[{_identity(key.descriptor)},{_identity(key.value)}]"
    return f"{type(key).__name__}:{key!r}"


def _map8(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    count, pos, end = _compound8(data, pos, depth)
    return _as_map(_items(data, count, pos, end, depth + 1)), end


def _map32(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    count, pos, end = _compound32(data, pos, depth)
    return _as_map(_items(data, count, pos, end, depth + 1)), end


def _array(data: bytes, count: int, pos: int, end: int, depth: int) -> Array:
    if count == 0 and pos == end:
        return Array(type(None), ())  # The Azure SDK encodes an empty array without a constructor.
    descriptor = None
    code = data[pos]
    if code == 0:
        descriptor, pos = DECODERS[data[pos + 1]](data, pos + 2, depth)
        if descriptor is None:
            raise DecodeError("the elements of an array are described by null")
        code = data[pos]
        if code == 0:
            raise DecodeError("the elements of an array have two descriptors")
    kind = _KINDS[code]
    if kind is None:
        raise _unknown(code)
    pos += 1
    width = _WIDTHS[code]
    if width == 0:
        if count > MAX_ZERO_WIDTH_ELEMENTS:
            raise DecodeError(
                f"an array has more than {MAX_ZERO_WIDTH_ELEMENTS} elements without bytes"
            )
    elif count > end - pos:
        raise DecodeError("an array has fewer elements than its count")
    decoder = DECODERS[code]
    items = []
    for _ in range(count):
        value, pos = decoder(data, pos, depth)
        items.append(value)
    if pos != end:
        raise DecodeError("the elements of an array do not match its size")
    return Array(kind, tuple(items), descriptor)


def _array8(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    count, pos, end = _compound8(data, pos, depth)
    return _array(data, count, pos, end, depth + 1), end


def _array32(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    count, pos, end = _compound32(data, pos, depth)
    return _array(data, count, pos, end, depth + 1), end


_CODES: dict[int, tuple[type, Decoder]] = {
    0x40: (type(None), _constant(None)),
    0x41: (bool, _constant(True)),
    0x42: (bool, _constant(False)),
    0x43: (UInt, _constant(UInt(0))),
    0x44: (ULong, _constant(ULong(0))),
    0x45: (list, _empty_list),
    0x50: (UByte, _fixed(Struct(">B").unpack_from, 1, UByte)),
    0x51: (Byte, _fixed(_I8, 1, Byte)),
    0x52: (UInt, _fixed(Struct(">B").unpack_from, 1, UInt)),
    0x53: (ULong, _fixed(Struct(">B").unpack_from, 1, ULong)),
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
    0xC0: (list, _list8),
    0xC1: (dict, _map8),
    0xD0: (list, _list32),
    0xD1: (dict, _map32),
    0xE0: (Array, _array8),
    0xF0: (Array, _array32),
}

DECODERS: list[Decoder] = [
    _CODES[code][1] if code in _CODES else _unassigned for code in range(256)
]
DECODERS[0] = _described
_KINDS: list[type | None] = [_CODES[code][0] if code in _CODES else None for code in range(256)]
_WIDTHS: list[int] = [_width_of(code) for code in range(256)]
VALUE_STEPS: list[int] = [width + 1 if width >= 0 else width for width in _WIDTHS]
"""The distance from a constructor to the next value, by constructor code.

-1 and -4 mean that a size of one or four bytes follows the constructor. For any other negative
number use `skip_value`.
"""
VALUE_STEPS[0] = -9
