"""Messages and values in our own types, which the adapters translate to the types of a peer."""

import math
import uuid
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from pairbus.amqp.decode import decode_whole
from pairbus.amqp.encode import encode
from pairbus.amqp.section_edit import DELIVERY_ANNOTATIONS, FOOTER
from pairbus.amqp.sections import DATA, SEQUENCE, VALUE, Header, Message, Properties
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
from tests.unit.amqp.same import same


@dataclass(frozen=True, kw_only=True)
class PeerMessage:
    """A message that a peer sends or received.

    `body` is the type of the body (DATA, SEQUENCE or VALUE) and the value of each section, as
    `Message.read_body` returns it. The last four fields are set on received messages only. `handle`
    is for the adapter; `payload` is None if the peer does not give access to it.
    """

    header: Header = field(default_factory=Header)
    properties: Properties = field(default_factory=Properties)
    delivery_annotations: dict[Any, Any] = field(default_factory=dict)
    message_annotations: dict[Any, Any] = field(default_factory=dict)
    application_properties: dict[Any, Any] = field(default_factory=dict)
    body: tuple[int, list[Any]] = (VALUE, [None])
    footer: dict[Any, Any] = field(default_factory=dict)
    payload: bytes | None = field(default=None, compare=False)
    message_format: int = field(default=0, compare=False)
    settled: bool = field(default=False, compare=False)
    handle: Any = field(default=None, compare=False)

    @classmethod
    def parse(cls, payload: bytes) -> "PeerMessage":
        """Return the content of an encoded message, read with our own codec."""
        message = Message.parse(payload)
        return cls(
            header=message.read_header(),
            properties=message.read_properties(),
            delivery_annotations=_map(message.delivery_annotations),
            message_annotations=message.read_message_annotations(),
            application_properties=message.read_application_properties(),
            body=message.read_body(),
            footer=_map(message.footer),
            payload=payload,
        )

    def encode(self) -> bytes:
        """Return the message, encoded with our own codec."""
        kind, values = self.body
        message = Message.build(
            header=None if self.header == Header() else self.header,
            properties=None if self.properties == Properties() else self.properties,
            message_annotations=self.message_annotations or None,
            application_properties=self.application_properties or None,
        )
        message.body = b"".join(_section(kind, value) for value in values)
        if self.delivery_annotations:
            message.delivery_annotations = _section(DELIVERY_ANNOTATIONS, self.delivery_annotations)
        if self.footer:
            message.footer = _section(FOOTER, self.footer)
        return message.encode()

    @property
    def text(self) -> str:
        """The text of a message that was made with `text`."""
        kind, values = self.body
        assert kind == DATA, self.body
        return b"".join(values).decode()


def _section(code: int, value: Any) -> bytes:
    return bytes((0, 0x53, code)) + encode(value)


def _map(section: bytes) -> dict[Any, Any]:
    return decode_whole(section).value if section else {}


def text(body: str) -> PeerMessage:
    """Return a message with a short text, in a data section, which all peers support."""
    return PeerMessage(body=(DATA, [body.encode()]))


def texts(count: int) -> list[PeerMessage]:
    return [text(str(number)) for number in range(count)]


def assert_same(message: PeerMessage, expected: PeerMessage) -> None:
    """Assert that two messages are equal, including the AMQP types of all values."""
    for name in PeerMessage.__dataclass_fields__:
        if PeerMessage.__dataclass_fields__[name].compare:
            value, wanted = getattr(message, name), getattr(expected, name)
            assert same(value, wanted), f"{name}: {value!r} instead of {wanted!r}"


UUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")

FULL_MESSAGE = PeerMessage(
    header=Header(True, 7, 30_000, True, 3),
    properties=Properties(
        message_id="id-1",
        user_id=b"me",
        to="there",
        subject="žluťoučký",
        reply_to="here",
        correlation_id="correlation",
        content_type=Symbol("text/plain"),
        content_encoding=Symbol("gzip"),
        absolute_expiry_time=Timestamp(2_000_000),
        creation_time=Timestamp(1_000_000),
        group_id="group",
        group_sequence=UInt(9),
        reply_to_group_id="reply group",
    ),
    delivery_annotations={Symbol("x-opt-hop"): "first"},
    message_annotations={Symbol("x-opt-seen"): True},
    application_properties={"colour": "red"},
    body=(DATA, [b"\x00body\xff"]),
)
"""A message with all fields of all sections but the footer."""

MESSAGE_IDS = {"string": "id", "ulong": ULong(2**64 - 1), "uuid": UUID, "binary": b"\x00\xff"}

BODIES: dict[str, tuple[int, list[Any]]] = {
    "empty data": (DATA, [b""]),
    "large data": (DATA, [b"\xff" * 300]),
    "several data sections": (DATA, [b"\x00", b"", b"\xff" * 300]),
    "sequence": (SEQUENCE, [["two", UInt(1)]]),
    "value": (VALUE, ["value"]),
}

SIMPLE_VALUES: dict[str, Any] = {
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
    "decimal128": Decimal128(bytes.fromhex("303e000000000000000000000000000f")),
    **{f"char {ord(c)}": Char(c) for c in "až€𝄞"},
    **{f"timestamp {n}": Timestamp(n) for n in (-1, 0, 1_709_208_000_250, 253_402_300_799_999)},
    "uuid": UUID,
    **{f"binary of {n}": bytes(n) for n in (0, 1, 255, 256)},
    **{f"string of {n}": "ž" * n for n in (0, 1, 127, 128)},
    **{f"symbol of {n}": Symbol("s" * n) for n in (0, 1, 255, 256)},
}
"""Values that application properties may have."""

_ELEMENTS: dict[str, Any] = {
    "boolean": True,
    "ubyte": UByte(1),
    "ushort": UShort(1),
    "small uint": UInt(0),
    "uint": UInt(300),
    "ulong": ULong(2**64 - 1),
    "byte": Byte(-1),
    "short": Short(-1),
    "int": Int32(-1),
    "long": -(2**63),
    "float": Float32(0.5),
    "double": 0.1,
    "decimal32": Decimal32(b"abcd"),
    "decimal64": Decimal64(b"abcdefgh"),
    "decimal128": Decimal128(b"abcdefghijklmnop"),
    "char": Char("ž"),
    "timestamp": Timestamp(-1),
    "uuid": UUID,
    "binary": b"\x00\xff",
    "string": "ž" * 200,
    "symbol": Symbol("name"),
    "list": [UInt(1), "one"],
    "map": {"one": UInt(1)},
}

COMPOUND_VALUES: dict[str, Any] = {
    "empty list": [],
    "list": ["a", None, [True], [[[]]]],
    "long list": [UInt(n) for n in range(300)],
    "empty map": {},
    "map": {"string": 1, Symbol("symbol"): "s", UInt(1): b"", ULong(2): [], UUID: None},
    "map with a string key": {"a": "b"},
    "map with keys that are equal in Python": Pairs(((UInt(1), "uint"), (1, "long"))),
    "long map": {f"key {n}": n for n in range(300)},
    "described by a symbol": Described(Symbol("pairbus:test"), "value"),
    "described by a ulong": Described(ULong(2**40), [UInt(1)]),
    "described in a described list": Described(
        Symbol("outer"), [Described(ULong(1), Symbol("inner"))]
    ),
    "described twice": Described(ULong(1), Described("twice", b"x")),
    **{f"array of {name}": Array(type(value), (value, value)) for name, value in _ELEMENTS.items()},
    "empty array": Array(str, ()),
    "array of null": Array(NoneType, (None, None)),
    "array of both booleans": Array(bool, (True, False)),
    "array of arrays": Array(Array, (Array(UInt, (UInt(1), UInt(2))), Array(UInt, (UInt(3),)))),
    "described array": Array(str, ("a", "b"), Symbol("pairbus:test")),
}
"""Further values that annotations and bodies may have."""

VALUES = SIMPLE_VALUES | COMPOUND_VALUES
