"""Reading and editing of encoded sections.

Fields and entries that are not read are skipped without being decoded. Those that are not edited
are copied byte for byte.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from struct import Struct
from struct import error as StructError
from typing import Any

from pairbus.amqp.decode import DECODERS, VALUE_STEPS, decode, skip_value
from pairbus.amqp.encode import encode
from pairbus.amqp.types import Symbol
from pairbus.errors import DecodeError, EncodeError

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS = 0x70, 0x71, 0x72
PROPERTIES, APPLICATION_PROPERTIES = 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78

_CODES_BY_NAME = {
    f"amqp:{name}": code
    for name, code in {
        "header:list": HEADER,
        "delivery-annotations:map": DELIVERY_ANNOTATIONS,
        "message-annotations:map": MESSAGE_ANNOTATIONS,
        "properties:list": PROPERTIES,
        "application-properties:map": APPLICATION_PROPERTIES,
        "data:binary": DATA,
        "amqp-sequence:list": SEQUENCE,
        "amqp-value:*": VALUE,
        "footer:map": FOOTER,
    }.items()
}
_SIZE_COUNT = Struct(">II").unpack_from
_SMALL = Struct(">6B").pack
_LARGE = Struct(">4BII").pack
_NULL = b"\x40"


def read_descriptor(data: bytes, pos: int) -> tuple[int, int]:
    """Return the code of the section at `pos` and the position after its descriptor."""
    if data[pos] != 0:
        raise DecodeError("a section does not start with a descriptor")
    descriptor, after = decode(data, pos + 1)
    code = _CODES_BY_NAME.get(descriptor) if isinstance(descriptor, str) else descriptor
    if not isinstance(code, int) or not HEADER <= code <= FOOTER:
        raise DecodeError(f"{descriptor!r} is not the descriptor of a section")
    return int(code), after


def section_bounds(section: bytes) -> tuple[int, int, int]:
    """Return count, position of the first element and end of a section's list or map."""
    try:
        pos = 3 if section[1] == 0x53 else read_descriptor(section, 0)[1]
        constructor = section[pos]
        if constructor == 0xC0 or constructor == 0xC1:
            return section[pos + 2], pos + 3, pos + 2 + section[pos + 1]
        if constructor == 0x45:
            return 0, pos + 1, pos + 1
        size, count = _SIZE_COUNT(section, pos + 1)
        return count, pos + 9, pos + 5 + size
    except (IndexError, StructError) as exc:
        raise DecodeError("a section is too short for its count") from exc


def edit_list(section: bytes, code: int, fields: Mapping[int, Any]) -> bytes:
    """Set fields of a list by their index. Return the section, or b"" if no field is left."""
    count, pos, end = section_bounds(section) if section else (0, 0, 0)
    for index in fields:
        if index < count:
            parts = _encoded_fields(section, count, pos, end)
            break
    else:
        return _append_fields(section, code, fields, count, section[pos:end])
    for index, value in fields.items():
        if index >= len(parts):
            parts += [_NULL] * (index + 1 - len(parts))
        parts[index] = encode(value)
    while parts and parts[-1] == _NULL:
        parts.pop()
    return encode_section(code, 0xC0, len(parts), b"".join(parts)) if parts else b""


def replace_fields(section: bytes, code: int, first: int, values: Sequence[bytes]) -> bytes:
    """Replace consecutive fields, from the index `first` on, with encoded values.

    Unlike `edit_list`, this keeps trailing nulls, so that clearing a field and setting it again
    restores the original bytes, and it does not examine the fields after the last that it replaces.
    """
    count, start, end = section_bounds(section) if section else (0, 0, 0)
    new = b"".join(values)
    if count <= first:
        if new == _NULL * len(values):
            return section
        body = section[start:end] + _NULL * (first - count) + new
        return encode_section(code, 0xC0, first + len(values), body)
    last = first + len(values)
    try:
        keep = skip_values(section, start, first)
        pos = skip_values(section, keep, min(last, count) - first)
    except IndexError as exc:
        raise DecodeError("a section ends within a field") from exc
    if pos > end:
        raise DecodeError("the fields of a section do not match its size")
    body = section[start:keep] + new + section[pos:end]
    return encode_section(code, 0xC0, max(count, last), body)


def read_fields(section: bytes, indexes: Sequence[int]) -> list[Any]:
    """Return the fields at these indexes, which must be in ascending order; None if not set."""
    values: list[Any] = [None] * len(indexes)
    if not section:
        return values
    count, pos, end = section_bounds(section)
    try:
        current = 0
        for position, index in enumerate(indexes):
            if index >= count:
                break
            if index > current:
                pos = skip_values(section, pos, index - current)
            values[position], pos = DECODERS[section[pos]](section, pos + 1, 1)
            current = index + 1
    except (IndexError, StructError, UnicodeDecodeError) as exc:
        raise DecodeError("a section ends within a field") from exc
    if pos > end:
        raise DecodeError("the fields of a section do not match its size")
    return values


def map_entries(section: bytes) -> tuple[int, bytes]:
    """Return the number and the bytes of the keys and values of a map."""
    if not section:
        return 0, b""
    count, start, end = section_bounds(section)
    return count, section[start:end]


def _append_fields(
    section: bytes, code: int, fields: Mapping[int, Any], count: int, body: bytes
) -> bytes:
    """Append fields to a list without examining its existing fields."""
    old_count = count
    for index in sorted(fields) if len(fields) > 1 else fields:
        value = fields[index]
        if value is not None:
            body += _NULL * (index - count) + encode(value)
            count = index + 1
    return section if count == old_count else encode_section(code, 0xC0, count, body)


def _encoded_fields(section: bytes, count: int, pos: int, end: int) -> list[bytes]:
    """Return the bytes of each field of a list."""
    parts = []
    try:
        for _ in range(count):
            start = pos
            pos = skip_values(section, start, 1)
            parts.append(section[start:pos])
    except (IndexError, StructError) as exc:
        raise DecodeError("a section ends within a field") from exc
    if pos != end:
        raise DecodeError("the fields of a section do not match its size")
    return parts


def skip_values(section: bytes, pos: int, count: int) -> int:
    """Return the position after some values, without decoding them. Raises IndexError."""
    steps = VALUE_STEPS
    for _ in range(count):
        step = steps[section[pos]]
        if step > 0:
            pos += step
        elif step == -1:
            pos += 2 + section[pos + 1]
        else:
            pos = skip_value(section, pos)
    return pos


class EncodedKeys(frozenset[str]):
    """A set of keys with their encodings, to remove the same keys from many maps quickly."""

    __slots__ = ("encoded",)
    encoded: dict[bytes, str]

    def __new__(cls, names: Iterable[str]) -> "EncodedKeys":
        keys = super().__new__(cls, names)
        keys.encoded = {encode(name): name for name in keys}
        keys.encoded |= {encode(Symbol(name)): name for name in keys if name.isascii()}
        return keys


def edit_map(
    section: bytes, code: int, put: Mapping[str, Any], remove: Collection[str]
) -> tuple[bytes, dict[str, Any]]:
    """Set and remove entries of a map.

    Return the section, or b"" if it is empty, and the entries that were removed or replaced.
    """
    removed: dict[str, Any] = {}
    count, body, added = 0, section, b""
    for key, value in put.items():
        if not isinstance(key, str):
            raise EncodeError(f"the key of an entry must be a str or Symbol, not {key!r}")
        added += encode(key) + encode(value)
        # Most keys are new. A key is new if its text does not occur in the section.
        if section and key.encode() in section:
            remove = EncodedKeys({*remove, key})
    if section:
        if remove:
            keys = remove if isinstance(remove, EncodedKeys) else EncodedKeys(remove)
            count, body, raw = extract_entries(section, keys)
            try:
                for name, value in raw.items():
                    removed[name] = DECODERS[value[0]](value, 1, 1)[0]
            except (IndexError, StructError, UnicodeDecodeError) as exc:
                raise DecodeError("an entry of a section has an invalid value") from exc
        else:
            count, body = map_entries(section)
        if not removed and not put:
            return section, removed
    count += 2 * len(put)
    return (encode_section(code, 0xC1, count, body + added) if count else b""), removed


def extract_entries(section: bytes, keys: EncodedKeys) -> tuple[int, bytes, dict[str, bytes]]:
    """Remove entries from a map.

    Return the number and the bytes of the remaining keys and values, and the encoded values of the
    removed entries by key.
    """
    extracted: dict[str, bytes] = {}
    if not section:
        return 0, b"", extracted
    count, pos, end = section_bounds(section)
    parts = []
    span = pos
    encoded, steps = keys.encoded, VALUE_STEPS
    try:
        for _ in range(count >> 1):
            start = pos
            pos += 2 + section[pos + 1]
            name = encoded.get(section[start:pos])
            if name is None and steps[section[start]] != -1:  # Not a short string or symbol.
                key, pos = decode(section, start)
                name = key if isinstance(key, str) and key in keys else None
            value = pos
            step = steps[section[pos]]
            if step > 0:  # Not `skip_values`: the call would take longer than the step.
                pos += step
            elif step == -1:
                pos += 2 + section[pos + 1]
            else:
                pos = skip_value(section, pos)
            if name is not None:
                if name in extracted:
                    raise DecodeError(f"a section has the key {name!r} twice")
                if span != start:
                    parts.append(section[span:start])
                extracted[name] = section[value:pos]
                span = pos
    except (IndexError, StructError, UnicodeDecodeError) as exc:
        raise DecodeError("a section ends within an entry") from exc
    if pos != end or count & 1:
        raise DecodeError("the entries of a section do not match its size")
    if span != end:
        parts.append(section[span:end])
    remaining = count - 2 * len(extracted)
    return remaining, parts[0] if len(parts) == 1 else b"".join(parts), extracted


def encode_section(code: int, constructor: int, count: int, body: bytes) -> bytes:
    """Return a section whose list or map has these encoded elements."""
    if len(body) < 255 and count < 256:
        return _SMALL(0, 0x53, code, constructor, len(body) + 1, count) + body
    return _LARGE(0, 0x53, code, constructor + 0x10, len(body) + 4, count) + body
