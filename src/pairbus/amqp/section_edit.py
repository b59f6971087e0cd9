"""Sections as bytes: found, read and changed in places, and left alone everywhere else.

What is not asked for is stepped over, not decoded; what is not changed is copied as it stands.
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
    """The code of the section at `pos`, however it is spelled, and the place behind it."""
    if data[pos] != 0:
        raise DecodeError("a section does not start with a descriptor")
    descriptor, after = decode(data, pos + 1)
    code = _CODES_BY_NAME.get(descriptor) if isinstance(descriptor, str) else descriptor
    if not isinstance(code, int) or not HEADER <= code <= FOOTER:
        raise DecodeError(f"{descriptor!r} is not the descriptor of a section")
    return int(code), after


def section_bounds(section: bytes) -> tuple[int, int, int]:
    """Count, first element and end of the list or map that a section is."""
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
    count, pos, end = section_bounds(section) if section else (0, 0, 0)
    for place in fields:
        if place < count:
            parts = _fields(section, count, pos, end)
            break
    else:
        return _append_fields(section, code, fields, count, section[pos:end])
    for place, value in fields.items():
        if place >= len(parts):
            parts += [_NULL] * (place + 1 - len(parts))
        parts[place] = encode(value)
    while parts and parts[-1] == _NULL:
        parts.pop()
    return encode_section(code, 0xC0, len(parts), b"".join(parts)) if parts else b""


def replace_fields(section: bytes, code: int, first: int, values: Sequence[bytes]) -> bytes:
    """Encoded fields in a row, from the place `first` on, in the stead of those that are there.

    Unlike `edit_list` this looks no further than it must, and a list keeps the nulls at its end: a
    field that is cleared and set again leaves the bytes that were.
    """
    count, start, end = section_bounds(section) if section else (0, 0, 0)
    new = b"".join(values)
    if count <= first:
        if new == _NULL * len(values):
            return section
        body = section[start:end] + _NULL * (first - count) + new
        return encode_section(code, 0xC0, first + len(values), body)
    pos = keep = start
    last = first + len(values)
    steps = VALUE_STEPS
    try:
        for place in range(min(last, count)):
            if place == first:
                keep = pos
            step = steps[section[pos]]
            if step > 0:
                pos += step
            elif step == -1:
                pos += 2 + section[pos + 1]
            else:
                pos = skip_value(section, pos)
    except IndexError as exc:
        raise DecodeError("a section ends within a field") from exc
    if pos > end:
        raise DecodeError("the fields of a section do not fit its size")
    body = section[start:keep] + new + section[pos:end]
    return encode_section(code, 0xC0, max(count, last), body)


def read_fields(section: bytes, places: Sequence[int]) -> list[Any]:
    """The fields at these places of a list, in rising order; None where it is not set."""
    values: list[Any] = [None] * len(places)
    if not section:
        return values
    count, pos, end = section_bounds(section)
    try:
        at = 0
        for index, place in enumerate(places):
            if place >= count:
                break
            while at < place:
                step = VALUE_STEPS[section[pos]]
                if step > 0:
                    pos += step
                elif step == -1:
                    pos += 2 + section[pos + 1]
                else:
                    pos = skip_value(section, pos)
                at += 1
            values[index], pos = DECODERS[section[pos]](section, pos + 1, 1)
            at += 1
    except (IndexError, StructError, UnicodeDecodeError) as exc:
        raise DecodeError("a section ends within a field") from exc
    if pos > end:
        raise DecodeError("the fields of a section do not fit its size")
    return values


def map_entries(section: bytes) -> tuple[int, bytes]:
    """Count and bytes of the keys and values of a map."""
    if not section:
        return 0, b""
    count, start, end = section_bounds(section)
    return count, section[start:end]


def _append_fields(
    section: bytes, code: int, fields: Mapping[int, Any], count: int, body: bytes
) -> bytes:
    """Fields behind those that are there, which need not be looked at."""
    had = count
    for place in sorted(fields) if len(fields) > 1 else fields:
        value = fields[place]
        if value is not None:
            body += _NULL * (place - count) + encode(value)
            count = place + 1
    return section if count == had else encode_section(code, 0xC0, count, body)


def _fields(section: bytes, count: int, pos: int, end: int) -> list[bytes]:
    """The bytes of each field of a list."""
    parts = []
    try:
        for _ in range(count):
            start = pos
            step = VALUE_STEPS[section[pos]]
            if step > 0:
                pos += step
            elif step == -1:
                pos += 2 + section[pos + 1]
            else:
                pos = skip_value(section, pos)
            parts.append(section[start:pos])
    except (IndexError, StructError) as exc:
        raise DecodeError("a section ends within a field") from exc
    if pos != end:
        raise DecodeError("the fields of a section do not fit its size")
    return parts


class EncodedKeys(frozenset[str]):
    """Names of entries, made ready for `remove`: worth it for names that are removed often."""

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
    taken: dict[str, Any] = {}
    count, body, added = 0, section, b""
    for key, value in put.items():
        if not isinstance(key, str):
            raise EncodeError(f"the key of an entry is text, not {key!r}")
        added += encode(key) + encode(value)
        # A key whose text is nowhere among the bytes is not there: mostly nothing is replaced.
        if section and key.encode() in section:
            remove = EncodedKeys({*remove, key})
    if section:
        if remove:
            keys = remove if isinstance(remove, EncodedKeys) else EncodedKeys(remove)
            count, body, raw = extract_entries(section, keys)
            try:
                for name, value in raw.items():
                    taken[name] = DECODERS[value[0]](value, 1, 1)[0]
            except (IndexError, StructError, UnicodeDecodeError) as exc:
                raise DecodeError("an entry of a section is not a value") from exc
        else:
            count, body = map_entries(section)
        if not taken and not put:
            return section, taken
    count += 2 * len(put)
    return (encode_section(code, 0xC1, count, body + added) if count else b""), taken


def extract_entries(section: bytes, keys: EncodedKeys) -> tuple[int, bytes, dict[str, bytes]]:
    """Take entries out of a map: count and bytes of the keys and values that stay, and the encoded
    values of those that do not, by name."""
    taken: dict[str, bytes] = {}
    if not section:
        return 0, b"", taken
    count, pos, end = section_bounds(section)
    parts = []
    span = pos
    encoded, steps = keys.encoded, VALUE_STEPS
    try:
        for _ in range(count >> 1):
            start = pos
            pos += 2 + section[pos + 1]
            name = encoded.get(section[start:pos])
            if name is None and steps[section[start]] != -1:  # not a short string or symbol
                key, pos = decode(section, start)
                name = key if isinstance(key, str) and key in keys else None
            value = pos
            step = steps[section[pos]]
            if step > 0:
                pos += step
            elif step == -1:
                pos += 2 + section[pos + 1]
            else:
                pos = skip_value(section, pos)
            if name is not None:
                if name in taken:
                    raise DecodeError(f"a section has the key {name!r} twice")
                if span != start:
                    parts.append(section[span:start])
                taken[name] = section[value:pos]
                span = pos
    except (IndexError, StructError, UnicodeDecodeError) as exc:
        raise DecodeError("a section ends within an entry") from exc
    if pos != end or count & 1:
        raise DecodeError("the entries of a section do not fit its size")
    if span != end:
        parts.append(section[span:end])
    left = count - 2 * len(taken)
    return left, parts[0] if len(parts) == 1 else b"".join(parts), taken


def encode_section(code: int, constructor: int, count: int, body: bytes) -> bytes:
    """A section around the encoded elements of its list or map."""
    if len(body) < 255 and count < 256:
        return _SMALL(0, 0x53, code, constructor, len(body) + 1, count) + body
    return _LARGE(0, 0x53, code, constructor + 0x10, len(body) + 4, count) + body
