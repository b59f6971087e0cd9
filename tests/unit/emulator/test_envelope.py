"""A message comes out as it went in, but for the delivery count and the emulator's annotations."""

import uuid
from typing import Any

import pytest

from pairbus.amqp.encode import encode
from pairbus.amqp.section_edit import map_entries
from pairbus.amqp.sections import GROUP_ID, MESSAGE_ID, TTL, Header, Message, Properties
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
from pairbus.emulator.entities.message_codec import (
    PING_CONTENT_TYPE,
    encode_delivery,
    encode_original,
    encode_peeked,
    parse_message,
    set_application_properties,
    set_dead_letter_source,
    to_stored,
)
from pairbus.emulator.storage.messages import StoredMessage
from pairbus.errors import DecodeError, PairbusError, Refused
from pairbus.servicebus.message_states import ACTIVE, DEFERRED, SCHEDULED
from tests.unit.amqp.same import same
from tests.unit.emulator.local import payload

EVERY_TYPE: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "ubyte": UByte(255),
    "ushort": UShort(65535),
    "uint": UInt(2**32 - 1),
    "ulong": ULong(2**64 - 1),
    "byte": Byte(-128),
    "short": Short(-32768),
    "int": Int32(-(2**31)),
    "long": -(2**63),
    "float": Float32(0.5),
    "double": 1e300,
    "decimal32": Decimal32(b"abcd"),
    "decimal64": Decimal64(b"abcdefgh"),
    "decimal128": Decimal128(b"abcdefghabcdefgh"),
    "char": Char("ü"),
    "timestamp": Timestamp(-1),
    "uuid": uuid.UUID(int=7),
    "binary": b"\x00\xff" * 200,
    "string": "größer",
    "symbol": Symbol("sym"),
    "list": [1, "two", [UInt(3)]],
    "map": {"a": Int32(1), Symbol("b"): [None]},
    "map that is no dict": Pairs([(UInt(1), "uint"), (1, "long")]),
    "array": Array(Int32, (Int32(1), Int32(2))),
    "described": Described(Symbol("com.example:thing"), [1]),
}
DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION = 0x71, 0x72, 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78
WIDE_ENTRY = b"\xb3\x00\x00\x00\x01a\xb1\x00\x00\x00\x01b"
WIDE_MAP = b"\xd1" + (len(WIDE_ENTRY) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x02" + WIDE_ENTRY


def section(code: int, value: Any) -> bytes:
    return bytes((0, 0x53, code)) + encode(value)


def by_name(name: str, value: Any) -> bytes:
    return b"\x00" + encode(Symbol(name)) + encode(value)


WHOLE = Message()
WHOLE.header = Message.build(
    header=Header(durable=True, priority=9, ttl=UInt(60_000), first_acquirer=True, delivery_count=7)
).header
WHOLE.delivery_annotations = section(DELIVERY, {Symbol("hop"): EVERY_TYPE["list"]})
WHOLE.message_annotations = section(ANNOTATIONS, {Symbol("x-mine"): EVERY_TYPE["map"]})
WHOLE.properties = Message.build(
    properties=Properties(
        message_id=uuid.UUID(int=5),
        user_id=b"me",
        to="to",
        subject="subject",
        reply_to="reply to",
        correlation_id=ULong(5),
        content_type=Symbol("text/plain"),
        content_encoding=Symbol("gzip"),
        absolute_expiry_time=Timestamp(5),
        creation_time=Timestamp(6),
        group_id="session",
        group_sequence=UInt(7),
        reply_to_group_id="other session",
    )
).properties
WHOLE.application_properties = section(APPLICATION, EVERY_TYPE)
WHOLE.body = section(DATA, b"one") + section(DATA, b"") + section(DATA, b"three")
WHOLE.footer = section(FOOTER, {Symbol("x-sum"): b"1234"})


def with_parts(**parts: bytes) -> bytes:
    message = Message()
    for name, raw in parts.items():
        setattr(message, name, raw)
    return message.encode()


MESSAGES: dict[str, bytes] = {
    "whole": WHOLE.encode(),
    "nothing but a body": with_parts(body=section(VALUE, "x")),
    "no body": with_parts(header=WHOLE.header),
    "nothing": b"",
    "sequences": with_parts(body=section(SEQUENCE, [1, [2]]) + section(SEQUENCE, [])),
    "large body": with_parts(body=section(DATA, bytes(300_000))),
    "empty header": with_parts(header=section(0x70, []), body=section(DATA, b"")),
    "empty maps": with_parts(
        delivery_annotations=section(DELIVERY, {}),
        message_annotations=section(ANNOTATIONS, {}),
        application_properties=section(APPLICATION, {}),
        footer=section(FOOTER, {}),
    ),
    "descriptors by name": by_name("amqp:header:list", [True])
    + by_name("amqp:delivery-annotations:map", {Symbol("a"): 1})
    + by_name("amqp:message-annotations:map", {Symbol("b"): 2})
    + by_name("amqp:properties:list", ["id"])
    + by_name("amqp:application-properties:map", {"c": 3})
    + by_name("amqp:data:binary", b"d")
    + by_name("amqp:footer:map", {Symbol("e"): 4}),
    "wide encodings": b"".join(
        b"\x00\x80" + code.to_bytes(8, "big") + WIDE_MAP
        for code in (DELIVERY, ANNOTATIONS, APPLICATION, FOOTER)
    ),
    **{f"a {kind} as value": with_parts(body=section(VALUE, v)) for kind, v in EVERY_TYPE.items()},
    **{
        f"{type(value).__name__} as message id": with_parts(properties=section(PROPERTIES, [value]))
        for value in ("text", ULong(1), uuid.UUID(int=1), b"binary")
    },
}


def taken_in(raw: bytes, sequence: int = 5, state: int = ACTIVE, now: int = 1000) -> StoredMessage:
    return to_stored(parse_message(raw), sequence, state, now, None)


def entries(message: Message) -> tuple[int, bytes]:
    return map_entries(message.message_annotations)


def check_same(before: Message, after: Message, annotations: int) -> None:
    """Every section is what it was, with so many annotations more behind the sender's."""
    for name in ("delivery_annotations", "properties", "application_properties", "body", "footer"):
        assert getattr(after, name) == getattr(before, name), name
    (count, raw), (more, longer) = entries(before), entries(after)
    assert more == count + 2 * annotations
    assert longer.startswith(raw)
    was, now = before.read_header(), after.read_header()
    for field in ("durable", "priority", "ttl", "first_acquirer"):
        assert same(getattr(now, field), getattr(was, field)), field


@pytest.mark.parametrize("raw", MESSAGES.values(), ids=MESSAGES.keys())
def test_a_message_is_delivered_as_it_was_sent(raw: bytes) -> None:
    stored = taken_in(raw)

    for locked_until, added in ((2000, 3), (None, 2)):
        after = Message.parse(encode_delivery(stored, 4, locked_until))
        check_same(Message.parse(raw), after, added)
        assert after.read_header().delivery_count == 4
        told = after.read_message_annotations()
        assert told["x-opt-enqueued-time"] == 1000
        assert told["x-opt-sequence-number"] == 5
        assert told.get("x-opt-locked-until") == locked_until


@pytest.mark.parametrize("raw", MESSAGES.values(), ids=MESSAGES.keys())
def test_a_message_is_peeked_at_as_it_was_sent(raw: bytes) -> None:
    after = Message.parse(encode_peeked(taken_in(raw, state=SCHEDULED)))

    check_same(Message.parse(raw), after, 3)
    state = after.read_message_annotations()["x-opt-message-state"]
    assert same(state, Int32(SCHEDULED))


@pytest.mark.parametrize("raw", MESSAGES.values(), ids=MESSAGES.keys())
def test_a_message_can_be_sent_on_as_it_was_sent(raw: bytes) -> None:
    before, after = Message.parse(raw), Message.parse(encode_original(taken_in(raw)))

    check_same(before, after, 0)
    assert after.header == before.header


@pytest.mark.parametrize("raw", MESSAGES.values(), ids=MESSAGES.keys())
def test_changes_touch_the_application_properties_only(raw: bytes) -> None:
    stored = taken_in(raw)
    set_application_properties(stored, {})
    assert encode_original(stored) == encode_original(taken_in(raw))
    set_application_properties(stored, {"added": Int32(1)})

    before, after = Message.parse(raw), Message.parse(encode_delivery(stored, 0, None))
    changed = after.read_application_properties()
    after.application_properties = before.application_properties

    check_same(before, after, 2)
    assert same(changed, {**before.read_application_properties(), "added": Int32(1)})


def test_sections_are_delivered_in_the_order_of_the_standard() -> None:
    whole = encode_delivery(taken_in(WHOLE.encode()), 0, None)

    places = [whole.index(getattr(Message.parse(whole), name)) for name in ORDER]

    assert places == sorted(places)
    assert places[0] == 0


ORDER = (
    "header",
    "delivery_annotations",
    "message_annotations",
    "properties",
    "application_properties",
    "body",
    "footer",
)


def test_delivery_annotations_at_the_end_are_moved_to_their_place() -> None:
    """The Azure SDK writes them there."""
    parts = {name: getattr(WHOLE, name) for name in ORDER if name != "delivery_annotations"}
    raw = with_parts(**parts) + WHOLE.delivery_annotations

    assert encode_delivery(taken_in(raw), 1, 5) == encode_delivery(taken_in(WHOLE.encode()), 1, 5)


def test_annotations_that_only_the_emulator_writes_are_not_taken_from_a_sender() -> None:
    ours = ("enqueued-time", "sequence-number", "locked-until", "lock-token", "message-state")
    given: dict[Any, Any] = {Symbol(f"x-opt-{name}"): "forged" for name in ours}
    given["x-opt-enqueue-sequence-number"] = 1
    given[Symbol("x-opt-partition-key")] = "kept"
    raw = with_parts(message_annotations=section(ANNOTATIONS, given), body=section(DATA, b""))

    after = Message.parse(encode_delivery(taken_in(raw), 0, None))

    assert after.read_message_annotations() == {
        "x-opt-partition-key": "kept",
        "x-opt-enqueued-time": 1000,
        "x-opt-sequence-number": 5,
    }


def test_a_dead_letter_source_is_replaced_by_the_next() -> None:
    forged = section(ANNOTATIONS, {"x-opt-deadletter-source": "forged"})
    raw = with_parts(message_annotations=forged)
    stored = taken_in(raw)
    for path in ("first", "second"):
        set_dead_letter_source(stored, path)
        told = Message.parse(encode_original(stored)).read_message_annotations()
        assert told == {"x-opt-deadletter-source": path}


def test_the_header_of_one_message_is_not_taken_for_that_of_another() -> None:
    for priority in range(3):
        for deliveries in range(3):
            built = Message.build(header=Header(priority=priority), data=b"").encode()
            header = Message.parse(encode_delivery(taken_in(built), deliveries, None)).read_header()
            assert (header.priority, header.delivery_count) == (priority, deliveries)


# What the emulator reads.


def test_what_the_emulator_must_know_is_read() -> None:
    incoming = parse_message(payload("body", session="s", ttl=50, at=70, id="m"))

    assert (incoming.session, incoming.ttl_ms, incoming.scheduled_ms) == ("s", 50, 70)
    assert (incoming.message_id, incoming.is_ping) == ("m", False)
    assert incoming.size == len(payload("body", session="s", ttl=50, at=70, id="m"))


def test_what_is_not_set_is_none() -> None:
    incoming = parse_message(with_parts(body=section(DATA, b"")))

    assert incoming.session is incoming.ttl_ms is incoming.scheduled_ms is None
    assert incoming.message_id is None


@pytest.mark.parametrize("kind", [Symbol, str])
def test_a_ping_is_known_by_its_content_type(kind: type[str]) -> None:
    raw = with_parts(properties=section(PROPERTIES, [None] * 6 + [kind(PING_CONTENT_TYPE)]))

    assert parse_message(raw).is_ping


def test_a_schedule_is_kept_with_a_message_that_is_scheduled() -> None:
    incoming = parse_message(payload(at=70))

    assert to_stored(incoming, 1, SCHEDULED, 0, None).due_ms == 70
    assert to_stored(incoming, 1, ACTIVE, 0, None).due_ms is None
    assert to_stored(incoming, 1, DEFERRED, 0, 90).expires_ms == 90


def edited(fields: dict[int, Any]) -> bytes:
    message = Message.build(data=b"")
    message.edit_properties(fields)
    return message.encode()


def with_ttl(value: Any) -> bytes:
    message = Message.build(data=b"")
    message.edit_header({TTL: value})
    return message.encode()


def annotated(*pairs: tuple[Any, Any]) -> bytes:
    return with_parts(message_annotations=section(ANNOTATIONS, Pairs(pairs)))


AT, SOURCE = "x-opt-scheduled-enqueue-time", "x-opt-deadletter-source"


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (edited({GROUP_ID: 5}), DecodeError),
        (edited({GROUP_ID: b"x"}), DecodeError),
        (edited({GROUP_ID: "x" * 129}), Refused),
        (edited({MESSAGE_ID: "x" * 129}), Refused),
        (with_ttl("long"), DecodeError),
        (with_ttl(b"\x00"), DecodeError),
        (with_ttl([5]), DecodeError),
        (annotated((Symbol(AT), 5)), DecodeError),
        (annotated((Symbol(AT), Timestamp(5)), (AT, Timestamp(6))), DecodeError),
        (annotated((Symbol(SOURCE), "a"), (SOURCE, "b")), DecodeError),
        (annotated((Symbol("x-opt-lock-token"), 1), ("x-opt-lock-token", 2)), DecodeError),
        (with_parts(message_annotations=b"\x00\x53\x72\xc1\x03\x02\xa3\x05"), DecodeError),
        (with_parts(application_properties=b"\x00\x53\x74\xc1\x03\x02\xa1\x05"), DecodeError),
        (with_parts(application_properties=b"\x00\x53\x74\xc1\x03\x01\xa1\x00"), DecodeError),
        (
            with_parts(
                application_properties=section(APPLICATION, Pairs([("a", 1), (Symbol("a"), 2)]))
            ),
            DecodeError,
        ),
        (payload(properties={"a": "x" * 70_000}), Refused),
        (b"\x00", DecodeError),
        (b"AMQP", DecodeError),
        (section(DATA, b"") + section(0x70, []), DecodeError),
    ],
)
def test_what_no_service_bus_would_take_is_refused(raw: bytes, kind: type[PairbusError]) -> None:
    with pytest.raises(kind):
        parse_message(raw)


def test_the_longest_ids_and_sections_are_taken() -> None:
    parse_message(edited({MESSAGE_ID: "ü" * 128, GROUP_ID: "ü" * 128}))
    parse_message(payload("x" * 200_000, properties={"a": "x" * 60_000}))


@pytest.mark.parametrize("count", [0, 1, 60, 61, 62, 63, 64, 200])
def test_any_number_of_annotations_is_carried(count: int) -> None:
    """The map that holds them is written in another way from a certain size on."""
    given = {Symbol(f"x{number}"): number for number in range(count)}
    stored = taken_in(with_parts(message_annotations=section(ANNOTATIONS, given)))

    after = Message.parse(encode_delivery(stored, 0, 7)).read_message_annotations()

    assert len(after) == count + 3
    assert all(after[key] == value for key, value in given.items())
