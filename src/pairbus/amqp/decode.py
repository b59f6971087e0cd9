"""Decoding of AMQP values: every valid encoding, with bounded depth, time and memory.

`decode_scalars` describes the decoders, which return a value and the position after it.
"""

from struct import Struct
from struct import error as StructError
from typing import Any

from pairbus.amqp.decode_scalars import SCALARS, Decoder
from pairbus.amqp.types import Array, Described, Pairs
from pairbus.errors import DecodeError

MAX_DEPTH = 32
"""The maximum nesting depth of lists, maps, arrays and described values."""

MAX_ZERO_WIDTH_ELEMENTS = 16
"""The maximum number of array elements whose encoding has no bytes.

Such elements use memory without using bytes of the frame, and a frame can hold thousands of arrays.
"""

_FEW_KEYS = 64

_U32 = Struct(">I").unpack_from
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


def _empty_list(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    return [], pos


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


_CODES: dict[int, tuple[type, Decoder]] = SCALARS | {
    0x45: (list, _empty_list),
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
