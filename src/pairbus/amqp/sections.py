"""Messages as encoded sections (part 3, 3.2), which can be read and edited one by one.

A section is decoded only when it is read. An edit keeps all other sections, and within the edited
section all other fields and entries, byte for byte.
"""

from collections.abc import Collection, Mapping
from struct import Struct
from struct import error as StructError
from typing import Any

from pairbus.amqp.composite import U8, U32, Map, Sym, composite, decode_composite, encode_composite
from pairbus.amqp.decode import VALUE_STEPS, decode, decode_whole, skip_value
from pairbus.amqp.encode import encode
from pairbus.amqp.section_edit import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    edit_list,
    edit_map,
    read_descriptor,
)
from pairbus.amqp.types import Pairs, Timestamp, UInt
from pairbus.errors import DecodeError

# Indexes of fields, for `edit_header` and `edit_properties`.
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

_LISTS, _MAPS, _BINARIES = (0x45, 0xC0, 0xD0), (0xC1, 0xD1), (0xA0, 0xB0)
_VALID_SECTIONS = {
    code << 8 | constructor
    for code, constructors in {
        HEADER: _LISTS,
        DELIVERY_ANNOTATIONS: _MAPS,
        MESSAGE_ANNOTATIONS: _MAPS,
        PROPERTIES: _LISTS,
        APPLICATION_PROPERTIES: _MAPS,
        DATA: _BINARIES,
        SEQUENCE: _LISTS,
        FOOTER: _MAPS,
    }.items()
    for constructor in constructors
}
"""Pairs of a section's code and a valid constructor. An amqp-value may have any constructor."""
_SECTION_START = Struct(">HBB").unpack_from
_U32 = Struct(">I").unpack_from


@composite(HEADER, "amqp:header:list")
class Header:
    durable: bool = False
    priority: U8 = 4
    ttl: U32 | None = None
    first_acquirer: bool = False
    delivery_count: U32 = 0


@composite(PROPERTIES, "amqp:properties:list")
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
    """An encoded message.

    Each attribute holds the bytes of a section, including its descriptor, or b"". `body` holds all
    body sections. The `read_…` methods raise DecodeError for an invalid section. The `edit_…`
    methods also raise EncodeError for a value that AMQP cannot encode.
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
        """Split an encoded message into its sections."""
        if type(data) is not bytes:
            data = bytes(data)
        header = delivery_annotations = message_annotations = properties = b""
        application_properties = footer = b""
        pos, size, last, body_start, body_end = 0, len(data), 0, 0, 0
        steps = VALUE_STEPS
        try:
            while pos < size:
                start = pos
                marker, code, constructor = _SECTION_START(data, pos)
                step = steps[constructor]
                if step == -1 and marker == 0x53:
                    pos += 5 + data[pos + 4]
                elif step == -4 and marker == 0x53:
                    pos += 8 + _U32(data, pos + 4)[0]
                else:
                    code, constructor, pos = _skip_section(data, pos)
                if code << 8 | constructor not in _VALID_SECTIONS and code != VALUE:
                    raise DecodeError(f"section 0x{code:x} is unknown or has the wrong type")
                if code <= last:
                    if code == last and code in (DATA, SEQUENCE):
                        body_end = pos
                        continue
                    # The Azure SDK encodes delivery annotations as the last section.
                    if code != DELIVERY_ANNOTATIONS or pos != size or delivery_annotations:
                        raise DecodeError(f"section 0x{code:x} must not follow 0x{last:x}")
                if code == APPLICATION_PROPERTIES:
                    application_properties = data[start:pos]
                elif code == PROPERTIES:
                    properties = data[start:pos]
                elif code == MESSAGE_ANNOTATIONS:
                    message_annotations = data[start:pos]
                elif code == HEADER:
                    header = data[start:pos]
                elif code == FOOTER:
                    footer = data[start:pos]
                elif code == DELIVERY_ANNOTATIONS:
                    delivery_annotations = data[start:pos]
                elif last >= DATA:
                    raise DecodeError("a message has body sections of two types")
                else:
                    body_start, body_end = start, pos
                last = code
        except (IndexError, StructError) as exc:
            raise DecodeError("a message ends within a section") from exc
        if pos > size:
            raise DecodeError("a message ends within a section")
        message = cls.__new__(cls)
        message.header = header
        message.delivery_annotations = delivery_annotations
        message.message_annotations = message_annotations
        message.properties = properties
        message.application_properties = application_properties
        message.body = data[body_start:body_end]
        message.footer = footer
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
        """Return a message with these values. Its body is `data`, `sequence` or `value`."""
        message = cls()
        if header is not None:
            message.header = encode_composite(header)
        if message_annotations is not None:
            message.message_annotations = _section(MESSAGE_ANNOTATIONS, dict(message_annotations))
        if properties is not None:
            message.properties = encode_composite(properties)
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
        """Return the encoded message."""
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
        """Return the type of the body (DATA, SEQUENCE or VALUE) and the value of each section."""
        kind, values, pos = VALUE, [], 0
        while pos < len(self.body):
            kind, pos = read_descriptor(self.body, pos)
            value, pos = decode(self.body, pos)
            values.append(value)
        return kind, values

    def read_value(self) -> Any:
        """Return the value of an amqp-value body, or None for any other body."""
        kind, values = self.read_body()
        return values[0] if kind == VALUE and values else None

    def edit_header(self, fields: Mapping[int, Any]) -> None:
        """Set fields by their index (TTL, …). None clears a field."""
        self.header = edit_list(self.header, HEADER, fields)

    def edit_properties(self, fields: Mapping[int, Any]) -> None:
        """Set fields by their index (GROUP_ID, …). None clears a field."""
        self.properties = edit_list(self.properties, PROPERTIES, fields)

    def edit_message_annotations(
        self, put: Mapping[str, Any], remove: Collection[str] = ()
    ) -> dict[str, Any]:
        """Set and remove entries. Return the entries that were removed or replaced."""
        self.message_annotations, removed = edit_map(
            self.message_annotations, MESSAGE_ANNOTATIONS, put, remove
        )
        return removed

    def edit_application_properties(
        self, put: Mapping[str, Any], remove: Collection[str] = ()
    ) -> dict[str, Any]:
        """Set and remove entries. Return the entries that were removed or replaced."""
        self.application_properties, removed = edit_map(
            self.application_properties, APPLICATION_PROPERTIES, put, remove
        )
        return removed


def ttl_field(milliseconds: int | None) -> UInt | None:
    """Return a time-to-live for `edit_header`, limited to the 49 days that AMQP can represent."""
    return None if milliseconds is None else UInt(min(milliseconds, 0xFFFFFFFF))


def _section(code: int, value: Any) -> bytes:
    return bytes((0, 0x53, code)) + encode(value)


def _skip_section(data: bytes, pos: int) -> tuple[int, int, int]:
    """Return code, constructor and end of a section in any valid encoding."""
    code, pos = read_descriptor(data, pos)
    return code, data[pos], skip_value(data, pos)


def _read_list(section: bytes, kind: Any) -> Any:
    value = decode_composite(decode_whole(section))
    if not isinstance(value, kind):
        raise DecodeError(f"a section does not contain {kind.__name__}")
    return value


def _read_map(section: bytes) -> Map:
    if not section:
        return {}
    value = decode_whole(section).value
    if isinstance(value, Pairs):
        raise DecodeError("a section has two keys with the same text")
    result: Map = value
    return result
