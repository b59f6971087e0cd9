"""A message by its sections (part 3, 3.2): taken apart, read, changed, put together again.

Nothing is decoded that is not asked for, and what is not changed stays byte for byte as it was:
sections, and within a changed section the fields and entries that were not touched.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Any

from pairbus.amqp.composite import U8, U32, Map, Sym, composite, from_described, write
from pairbus.amqp.decode import decode, decode_whole, skip
from pairbus.amqp.encode import compound, encode
from pairbus.amqp.types import Pairs, Timestamp, UInt
from pairbus.errors import DecodeError

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS = 0x70, 0x71, 0x72
PROPERTIES, APPLICATION_PROPERTIES = 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78

# Places of fields, for `edit_header` and `edit_properties`.
DURABLE, PRIORITY, TTL, FIRST_ACQUIRER, DELIVERY_COUNT = range(5)
(
    MESSAGE_ID,
    USER_ID,
    TO,
    SUBJECT,
    REPLY_TO,
    CORRELATION_ID,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    ABSOLUTE_EXPIRY_TIME,
    CREATION_TIME,
    GROUP_ID,
    GROUP_SEQUENCE,
    REPLY_TO_GROUP_ID,
) = range(13)

_LISTS = frozenset((0x45, 0xC0, 0xD0))
_MAPS = frozenset((0xC1, 0xD1))
_BINARIES = frozenset((0xA0, 0xB0))
_CONSTRUCTORS: dict[int, frozenset[int]] = {
    HEADER: _LISTS,
    DELIVERY_ANNOTATIONS: _MAPS,
    MESSAGE_ANNOTATIONS: _MAPS,
    PROPERTIES: _LISTS,
    APPLICATION_PROPERTIES: _MAPS,
    DATA: _BINARIES,
    SEQUENCE: _LISTS,
    FOOTER: _MAPS,
}
_NAMES = {
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
_U32 = Struct(">I").unpack_from
_SIZE_COUNT = Struct(">II").unpack_from
_NULL = b"\x40"


@composite(HEADER, "amqp:header:list")
@dataclass(frozen=True, slots=True)
class Header:
    durable: bool = False
    priority: U8 = 4
    ttl: U32 | None = None
    first_acquirer: bool = False
    delivery_count: U32 = 0


@composite(PROPERTIES, "amqp:properties:list")
@dataclass(frozen=True, slots=True)
class Properties:
    message_id: Any = None
    user_id: bytes | None = None
    to: Any = None
    subject: str | None = None
    reply_to: Any = None
    correlation_id: Any = None
    content_type: Sym | None = None
    content_encoding: Sym | None = None
    absolute_expiry_time: Timestamp | None = None
    creation_time: Timestamp | None = None
    group_id: str | None = None
    group_sequence: U32 | None = None
    reply_to_group_id: str | None = None


class Message:
    """An encoded message. Each slot holds the bytes of a section, its descriptor included, or b"".

    `body` holds all body sections in a row. Reading raises DecodeError where a section is not what
    it should be, changing raises EncodeError for a value that AMQP cannot carry.
    """

    __slots__ = (
        "application_properties",
        "body",
        "delivery_annotations",
        "footer",
        "header",
        "message_annotations",
        "properties",
    )

    def __init__(self) -> None:
        self.header = self.delivery_annotations = self.message_annotations = b""
        self.properties = self.application_properties = self.body = self.footer = b""

    @classmethod
    def parse(cls, data: bytes) -> "Message":
        """Take an encoded message apart."""
        message = cls()
        pos, size, last = 0, len(data), 0
        body_start = body_end = 0
        try:
            while pos < size:
                start = pos
                if data[pos] == 0 and data[pos + 1] == 0x53:
                    code = data[pos + 2]
                    pos += 3
                else:
                    code, pos = _read_descriptor(data, pos)
                constructor = data[pos]
                if constructor == 0xC1 or constructor == 0xC0 or constructor == 0xA0:
                    pos += 2 + data[pos + 1]
                elif constructor == 0xB0 or constructor == 0xD1 or constructor == 0xD0:
                    pos += 5 + _U32(data, pos + 1)[0]
                else:
                    pos = skip(data, pos)
                if code != VALUE and constructor not in _CONSTRUCTORS.get(code, ()):
                    raise DecodeError(f"section 0x{code:x} has the wrong type")
                if code <= last and (code != last or code not in (DATA, SEQUENCE)):
                    raise DecodeError(f"section 0x{code:x} stands behind section 0x{last:x}")
                if code == APPLICATION_PROPERTIES:
                    message.application_properties = data[start:pos]
                elif code == PROPERTIES:
                    message.properties = data[start:pos]
                elif code == MESSAGE_ANNOTATIONS:
                    message.message_annotations = data[start:pos]
                elif code == HEADER:
                    message.header = data[start:pos]
                elif code == FOOTER:
                    message.footer = data[start:pos]
                elif code == DELIVERY_ANNOTATIONS:
                    message.delivery_annotations = data[start:pos]
                else:
                    if last >= DATA and last != code:
                        raise DecodeError("a message has bodies of two kinds")
                    if body_end == 0:
                        body_start = start
                    body_end = pos
                last = code
        except (IndexError, StructError) as exc:
            raise DecodeError("a message ends within a section") from exc
        if pos > size:
            raise DecodeError("a message ends within a section")
        message.body = data[body_start:body_end]
        return message

    @classmethod
    def build(
        cls,
        *,
        header: Header | None = None,
        message_annotations: Mapping[Any, Any] | None = None,
        properties: Properties | None = None,
        application_properties: Mapping[str, Any] | None = None,
        data: bytes | None = None,
        sequence: list[Any] | None = None,
        value: Any = None,
    ) -> "Message":
        """A message from values. Its body is `data`, else `sequence`, else `value`."""
        message = cls()
        if header is not None:
            message.header = write(header)
        if message_annotations is not None:
            message.message_annotations = _section(MESSAGE_ANNOTATIONS, dict(message_annotations))
        if properties is not None:
            message.properties = write(properties)
        if application_properties is not None:
            message.application_properties = _section(
                APPLICATION_PROPERTIES, dict(application_properties)
            )
        if data is not None:
            message.body = _section(DATA, data)
        elif sequence is not None:
            message.body = _section(SEQUENCE, sequence)
        else:
            message.body = _section(VALUE, value)
        return message

    def encode(self) -> bytes:
        """Put the message together again."""
        return b"".join(
            (
                self.header,
                self.delivery_annotations,
                self.message_annotations,
                self.properties,
                self.application_properties,
                self.body,
                self.footer,
            )
        )

    def read_header(self) -> Header:
        return _read_list(self.header, Header) if self.header else Header()

    def read_properties(self) -> Properties:
        return _read_list(self.properties, Properties) if self.properties else Properties()

    def read_message_annotations(self) -> Map:
        return _read_map(self.message_annotations)

    def read_application_properties(self) -> Map:
        return _read_map(self.application_properties)

    def read_body(self) -> tuple[int, list[Any]]:
        """The kind of the body (DATA, SEQUENCE or VALUE) and what is in each of its sections."""
        kind, values, pos = VALUE, [], 0
        while pos < len(self.body):
            kind, pos = _read_descriptor(self.body, pos)
            value, pos = decode(self.body, pos)
            values.append(value)
        return kind, values

    def read_value(self) -> Any:
        """What is in a body of one value. None for any other body."""
        kind, values = self.read_body()
        return values[0] if kind == VALUE and values else None

    def edit_header(self, fields: Mapping[int, Any]) -> None:
        """Set fields by their place (TTL, …) to an AMQP value, or to None: not set."""
        self.header = _edit_list(self.header, HEADER, fields)

    def edit_properties(self, fields: Mapping[int, Any]) -> None:
        """Set fields by their place (GROUP_ID, …) to an AMQP value, or to None: not set."""
        self.properties = _edit_list(self.properties, PROPERTIES, fields)

    def edit_message_annotations(
        self, put: Mapping[Any, Any], remove: Collection[str] = ()
    ) -> dict[str, Any]:
        """Set entries and remove others; those that were removed or replaced, by key."""
        self.message_annotations, taken = _edit_map(
            self.message_annotations, MESSAGE_ANNOTATIONS, put, remove
        )
        return taken

    def edit_application_properties(
        self, put: Mapping[Any, Any], remove: Collection[str] = ()
    ) -> dict[str, Any]:
        """Set entries and remove others; those that were removed or replaced, by key."""
        self.application_properties, taken = _edit_map(
            self.application_properties, APPLICATION_PROPERTIES, put, remove
        )
        return taken


def ttl_field(milliseconds: int | None) -> UInt | None:
    """A time-to-live for `edit_header`. AMQP holds 49 days; a longer one is the longest."""
    return None if milliseconds is None else UInt(min(milliseconds, 0xFFFFFFFF))


def _section(code: int, value: Any) -> bytes:
    return bytes((0, 0x53, code)) + encode(value)


def _read_descriptor(data: bytes, pos: int) -> tuple[int, int]:
    if data[pos] != 0:
        raise DecodeError("a section does not start with a descriptor")
    descriptor, after = decode(data, pos + 1)
    code = _NAMES.get(descriptor) if isinstance(descriptor, str) else descriptor
    if not isinstance(code, int) or not HEADER <= code <= FOOTER:
        raise DecodeError(f"{descriptor!r} is not the descriptor of a section")
    return int(code), after


def _read_list(section: bytes, kind: Any) -> Any:
    value = from_described(decode_whole(section))
    if not isinstance(value, kind):
        raise DecodeError(f"a section is not {kind.__name__}")
    return value


def _read_map(section: bytes) -> Map:
    if not section:
        return {}
    value = decode_whole(section).value
    if isinstance(value, Pairs):
        raise DecodeError("a section has keys that are not unique as text")
    result: Map = value
    return result


def _content(section: bytes) -> tuple[int, int, int]:
    """Count, first element and end of the list or map that a section is."""
    pos = 3 if section[1] == 0x53 else _read_descriptor(section, 0)[1]
    constructor = section[pos]
    if constructor == 0xC0 or constructor == 0xC1:
        return section[pos + 2], pos + 3, pos + 2 + section[pos + 1]
    if constructor == 0x45:
        return 0, pos + 1, pos + 1
    size, count = _SIZE_COUNT(section, pos + 1)
    return count, pos + 9, pos + 5 + size


def _edit_list(section: bytes, code: int, fields: Mapping[int, Any]) -> bytes:
    parts: list[bytes] = []
    try:
        if section:
            count, pos, end = _content(section)
            for _ in range(count):
                start = pos
                constructor = section[pos]
                if constructor <= 0x45 and constructor != 0:
                    pos += 1
                elif 0xA0 <= constructor <= 0xA3:
                    pos += 2 + section[pos + 1]
                else:
                    pos = skip(section, pos)
                parts.append(section[start:pos])
            if pos != end or end != len(section):
                raise DecodeError("the fields of a section do not fit its size")
    except (IndexError, StructError, UnicodeDecodeError) as exc:
        raise DecodeError("a section ends within a field") from exc
    for place, value in fields.items():
        while len(parts) <= place:
            parts.append(_NULL)
        parts[place] = _NULL if value is None else encode(value)
    while parts and parts[-1] == _NULL:
        parts.pop()
    if not parts:
        return b""
    return bytes((0, 0x53, code)) + compound(0xC0, len(parts), b"".join(parts))


def _edit_map(
    section: bytes, code: int, put: Mapping[Any, Any], remove: Collection[str]
) -> tuple[bytes, dict[str, Any]]:
    taken: dict[str, Any] = {}
    parts: list[bytes] = []
    kept = 0
    try:
        if section:
            count, pos, end = _content(section)
            span = pos
            for _ in range(count >> 1):
                start = pos
                constructor = section[pos]
                if constructor == 0xA1 or constructor == 0xA3:
                    pos += 2 + section[pos + 1]
                    key: Any = section[start + 2 : pos].decode()
                else:
                    key, pos = decode(section, pos)
                if isinstance(key, str) and (key in remove or key in put):
                    parts.append(section[span:start])
                    taken[key], pos = decode(section, pos)
                    span = pos
                else:
                    kept += 2
                    constructor = section[pos]
                    if 0xA0 <= constructor <= 0xA3:
                        pos += 2 + section[pos + 1]
                    else:
                        pos = skip(section, pos)
            if pos != end or end != len(section) or count & 1:
                raise DecodeError("the entries of a section do not fit its size")
            if not taken and not put:
                return section, taken
            parts.append(section[span:end])
    except (IndexError, StructError, UnicodeDecodeError) as exc:
        raise DecodeError("a section ends within an entry") from exc
    for key, value in put.items():
        parts.append(encode(key))
        parts.append(encode(value))
        kept += 2
    if not kept:
        return b"", taken
    return bytes((0, 0x53, code)) + compound(0xC1, kept, b"".join(parts)), taken
