"""Encoding of AMQP values, each in its smallest encoding."""

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
from pairbus.errors import EncodeError

Encoder = Callable[[Any], bytes]


class Encoded(bytes):
    """A value that is encoded already."""


_U32 = Struct(">I").pack
_CODE_U32 = Struct(">BI").pack
_CODE_SIZE_COUNT = Struct(">BII").pack


def encode(value: Any) -> bytes:
    """Return the smallest encoding of a value. Raises EncodeError if AMQP cannot encode it."""
    try:
        return _ENCODERS[type(value)](value)
    except StructError as exc:
        raise EncodeError(f"a value is out of the range of its AMQP type: {exc}") from None
    except UnicodeEncodeError as exc:
        raise EncodeError(f"a string or symbol cannot be encoded: {exc.reason}") from None
    except RecursionError:
        raise EncodeError("values are nested too deeply") from None


class _Encoders(dict[type, Encoder]):
    """Encoders by class. A subclass, such as an IntEnum, has the encoder of its base class."""

    def __missing__(self, kind: type) -> Encoder:
        for base in kind.__mro__:
            if base in self:
                return self[base]
        raise EncodeError(f"AMQP has no encoding for {kind.__module__}.{kind.__qualname__}")


def _unsigned(small: int, zero: bytes, large: Callable[..., bytes], code: int) -> Encoder:
    """Return an encoder of unsigned integers with special encodings for 0 and 1 to 255."""

    def encode_unsigned(value: int) -> bytes:
        if 0 <= value < 256:
            return bytes((small, value)) if value else zero
        return large(code, value)

    return encode_unsigned


def _signed(small: int, large: Callable[..., bytes], code: int) -> Encoder:
    def encode_signed(value: int) -> bytes:
        if -128 <= value < 128:
            return bytes((small, value & 0xFF))
        return large(code, value)

    return encode_signed


def _fixed(format_: str, code: int) -> Encoder:
    pack = Struct(">B" + format_).pack

    def encode_fixed(value: Any) -> bytes:
        return pack(code, value)

    return encode_fixed


def _opaque(code: int, width: int) -> Encoder:
    def encode_opaque(value: bytes) -> bytes:
        if len(value) != width:
            raise EncodeError(f"{type(value).__name__} has {width} bytes, not {len(value)}")
        return bytes((code,)) + value

    return encode_opaque


def _float32(value: float) -> bytes:
    try:
        return _FLOAT32(0x72, value)
    except OverflowError:
        raise EncodeError(f"{value!r} is out of the range of a 32-bit float") from None


_FLOAT32 = Struct(">Bf").pack


def _char(value: str) -> bytes:
    if len(value) != 1:
        raise EncodeError(f"a char has one character, not {len(value)}")
    return b"\x73" + value.encode("utf-32-be")


def _variable(small: int, raw: bytes) -> bytes:
    """Encode a binary, string or symbol. The constructor for four-byte sizes is small + 0x10."""
    size = len(raw)
    if size < 256:
        return bytes((small, size)) + raw
    return _CODE_U32(small + 0x10, size) + raw


def encode_str(value: str) -> bytes:
    raw = value.encode()
    size = len(raw)
    if size < 256:
        return bytes((0xA1, size)) + raw
    return _CODE_U32(0xB1, size) + raw


# The same few dozen symbols are encoded in every frame, so they are cached.
_SYMBOLS: dict[str, bytes] = {}


def _symbol(value: str) -> bytes:
    raw = _SYMBOLS.get(value)
    if raw is None:
        raw = _variable(0xA3, value.encode("ascii"))
        if len(raw) <= 64 and len(_SYMBOLS) < 1024:
            _SYMBOLS[value] = raw
    return raw


def encode_compound(small: int, count: int, body: bytes) -> bytes:
    """Return a list (0xc0), map (0xc1) or array (0xe0) with these encoded elements."""
    size = len(body)
    if size < 255 and count < 256:
        return bytes((small, size + 1, count)) + body
    return _CODE_SIZE_COUNT(small + 0x10, size + 4, count) + body


def _list(value: Any) -> bytes:
    if not value:
        return b"\x45"
    return encode_compound(
        0xC0, len(value), b"".join([_ENCODERS[type(item)](item) for item in value])
    )


def _map(value: dict[Any, Any]) -> bytes:
    parts = []
    for key, item in value.items():
        parts.append(_ENCODERS[type(key)](key))
        parts.append(_ENCODERS[type(item)](item))
    return encode_compound(0xC1, len(parts), b"".join(parts))


def _pairs(value: Pairs) -> bytes:
    if any(len(pair) != 2 for pair in value):
        raise EncodeError("an item of Pairs is not a pair of a key and a value")
    parts = [_ENCODERS[type(part)](part) for pair in value for part in pair]
    return encode_compound(0xC1, len(parts), b"".join(parts))


def _described(value: Described) -> bytes:
    return (
        b"\x00"
        + _ENCODERS[type(value.descriptor)](value.descriptor)
        + _ENCODERS[type(value.value)](value.value)
    )


def _array(value: Array) -> bytes:
    """Encode an array with the smallest constructor that fits all of its elements."""
    if value.element_type not in _ENCODERS or value.element_type in (Described, Pairs, tuple):
        raise EncodeError(f"an array cannot hold {value.element_type.__qualname__}")
    encoded = [_ENCODERS[type(item)](item) for item in value.elements]
    shared_constructor = _SHARED_CONSTRUCTORS.get(value.element_type)
    default = _EMPTY_ARRAY_CONSTRUCTORS.get(value.element_type, 0x40)
    code = max((raw[0] for raw in encoded), default=default)
    if shared_constructor is not None:
        # Booleans, zeros and empty lists have constructors without data. The constructor that the
        # elements share must have data to tell them apart.
        code = shared_constructor(code)
    elements = []
    for item, raw in zip(value.elements, encoded, strict=True):
        if not _has_type(item, value.element_type):
            raise EncodeError(f"an array of {value.element_type.__name__} cannot hold {item!r}")
        elements.append(raw[1:] if raw[0] == code else _widen(raw, code))
    constructor = bytes((code,))
    if value.descriptor is not None:
        constructor = b"\x00" + _ENCODERS[type(value.descriptor)](value.descriptor) + constructor
    return encode_compound(0xE0, len(elements), constructor + b"".join(elements))


def _has_type(item: Any, element_type: type) -> bool:
    # In Python a Symbol is a str and a bool is an int. In AMQP they are not.
    if element_type is dict:
        return isinstance(item, dict | Pairs)
    return type(item) is element_type or (element_type is list and type(item) is tuple)


def _widen(raw: bytes, code: int) -> bytes:
    """Return the data of the element `raw` for the wider constructor `code` of the same type."""
    small, rest = raw[0], raw[1:]
    if code == 0x56:
        return b"\x01" if small == 0x41 else b"\x00"
    if code in (0x52, 0x53):  # The element is zero.
        return b"\x00"
    if code == 0x70 or code == 0x80:
        width = 4 if code == 0x70 else 8
        return rest.rjust(width, b"\x00")
    if code == 0x71 or code == 0x81:
        width = 4 if code == 0x71 else 8
        return rest.rjust(width, b"\xff" if rest[0] & 0x80 else b"\x00")
    if small == 0x45:  # The element is an empty list.
        return b"\x01\x00" if code == 0xC0 else b"\x00\x00\x00\x04\x00\x00\x00\x00"
    if code < 0xC0:  # Binary, string or symbol.
        return _U32(rest[0]) + rest[1:]
    # List, map or array: size and count grow from one byte to four.
    return _U32(rest[0] + 3) + _U32(rest[1]) + rest[2:]


_SHARED_CONSTRUCTORS: dict[type, Callable[[int], int]] = {
    bool: lambda code: 0x56,
    UInt: lambda code: max(code, 0x52),
    ULong: lambda code: max(code, 0x53),
    list: lambda code: max(code, 0xC0),
}

_EMPTY_ARRAY_CONSTRUCTORS: dict[type, int] = {
    UByte: 0x50,
    UShort: 0x60,
    UInt: 0x52,
    ULong: 0x53,
    Byte: 0x51,
    Short: 0x61,
    Int32: 0x54,
    int: 0x55,
    Float32: 0x72,
    float: 0x82,
    Decimal32: 0x74,
    Decimal64: 0x84,
    Decimal128: 0x94,
    Char: 0x73,
    Timestamp: 0x83,
    UUID: 0x98,
    bytes: 0xA0,
    str: 0xA1,
    Symbol: 0xA3,
    dict: 0xC1,
    Array: 0xE0,
}

_ENCODERS = _Encoders(
    {
        type(None): lambda value: b"\x40",
        bool: lambda value: b"\x41" if value else b"\x42",
        UByte: _fixed("B", 0x50),
        UShort: _fixed("H", 0x60),
        UInt: _unsigned(0x52, b"\x43", Struct(">BI").pack, 0x70),
        ULong: _unsigned(0x53, b"\x44", Struct(">BQ").pack, 0x80),
        Byte: _fixed("b", 0x51),
        Short: _fixed("h", 0x61),
        Int32: _signed(0x54, Struct(">Bi").pack, 0x71),
        int: _signed(0x55, Struct(">Bq").pack, 0x81),
        Float32: _float32,
        float: _fixed("d", 0x82),
        Decimal32: _opaque(0x74, 4),
        Decimal64: _opaque(0x84, 8),
        Decimal128: _opaque(0x94, 16),
        Char: _char,
        Timestamp: _fixed("q", 0x83),
        UUID: lambda value: b"\x98" + value.bytes,
        bytes: lambda value: _variable(0xA0, value),
        bytearray: lambda value: _variable(0xA0, bytes(value)),
        memoryview: lambda value: _variable(0xA0, bytes(value)),
        str: encode_str,
        Symbol: _symbol,
        list: _list,
        tuple: _list,
        dict: _map,
        Pairs: _pairs,
        Array: _array,
        Described: _described,
        Encoded: bytes,
    }
)

encode_uint: Callable[[int], bytes] = _ENCODERS[UInt]
