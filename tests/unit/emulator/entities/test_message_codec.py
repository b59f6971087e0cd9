"""A message comes out as it went in, but for the delivery count and the emulator's annotations."""

import uuid
from dataclasses import replace
from typing import Any

import pytest

from pairbus.amqp.decode import decode_whole
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
    encode_deferred,
    encode_deliveries,
    encode_original,
    encode_peeked,
    encode_removed,
    parse_message,
    set_application_properties,
    set_dead_letter_source,
    to_stored,
    with_message_id,
)
from pairbus.emulator.storage.stored_message import StoredMessage
from pairbus.errors import DecodeError, PairbusError, Refused
from pairbus.servicebus.message_states import ACTIVE, DEFERRED, SCHEDULED
from pairbus.servicebus.ping import PING_CONTENT_TYPE
from tests.unit.amqp.same import same
from tests.unit.emulator.entities.harness import payload

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
    "map with keys that Python considers equal": Pairs([(UInt(1), "uint"), (1, "long")]),
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


COMPLETE = Message()
COMPLETE.header = Message.build(
    header=Header(durable=True, priority=9, ttl=UInt(60_000), first_acquirer=True, delivery_count=7)
).header
COMPLETE.delivery_annotations = section(DELIVERY, {Symbol("hop"): EVERY_TYPE["list"]})
COMPLETE.message_annotations = section(ANNOTATIONS, {Symbol("x-mine"): EVERY_TYPE["map"]})
COMPLETE.properties = Message.build(
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
COMPLETE.application_properties = section(APPLICATION, EVERY_TYPE)
COMPLETE.body = section(DATA, b"one") + section(DATA, b"") + section(DATA, b"three")
COMPLETE.footer = section(FOOTER, {Symbol("x-sum"): b"1234"})


def with_parts(**parts: bytes) -> bytes:
    message = Message()
    for name, raw in parts.items():
        setattr(message, name, raw)
    return message.encode()


TOKEN = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
MESSAGES: dict[str, bytes] = {
    "complete": COMPLETE.encode(),
    "only a body": with_parts(body=section(VALUE, "x")),
    "no body": with_parts(header=COMPLETE.header),
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


def store_message(
    raw: bytes, sequence: int = 5, state: int = ACTIVE, now: int = 1000
) -> StoredMessage:
    return to_stored(parse_message(raw), sequence, state, now, None)


def entries(message: Message) -> tuple[int, bytes]:
    return map_entries(message.message_annotations)


def check_same(before: Message, after: Message, annotations: int) -> None:
    """Check that all sections are unchanged, except for `annotations` more message annotations."""
    for name in ("properties", "application_properties", "body", "footer"):
        assert getattr(after, name) == getattr(before, name), name
    raw = map_entries(before.delivery_annotations)[1]
    assert map_entries(after.delivery_annotations)[1].startswith(raw)
    (count_before, raw_before), (count_after, raw_after) = entries(before), entries(after)
    assert count_after == count_before + 2 * annotations
    assert raw_after.startswith(raw_before)
    header_before, header_after = before.read_header(), after.read_header()
    for field in ("durable", "priority", "ttl", "first_acquirer"):
        assert same(getattr(header_after, field), getattr(header_before, field)), field


@pytest.mark.parametrize("raw", MESSAGES.values(), ids=MESSAGES.keys())
def test_delivery_contains_the_message_as_sent(raw: bytes) -> None:
    before, stored = Message.parse(raw), store_message(raw)
    stored.deliveries = 4

    for locked_until, added in ((2000, 3), (None, 2)):
        if locked_until is None:
            after = Message.parse(encode_removed(stored))
        else:
            after = Message.parse(encode_deliveries([stored], [TOKEN.bytes_le], locked_until)[0])
        check_same(before, after, added)
        lock = {} if locked_until is None else {"x-opt-lock-token": TOKEN}
        assert delivery_annotations(after) == {**delivery_annotations(before), **lock}
        assert after.read_header().delivery_count == 4
        annotations = after.read_message_annotations()
        assert annotations["x-opt-enqueued-time"] == 1000
        assert annotations["x-opt-sequence-number"] == 5
        assert annotations.get("x-opt-locked-until") == locked_until


def delivery_annotations(message: Message) -> dict[Any, Any]:
    section = message.delivery_annotations
    return decode_whole(section).value if section else {}


def test_receiver_that_deletes_gets_empty_delivery_annotations() -> None:
    after = Message.parse(encode_removed(store_message(MESSAGES["only a body"])))

    assert after.delivery_annotations == section(DELIVERY, {})


def test_lock_token_of_a_sender_is_removed() -> None:
    forged = section(DELIVERY, {Symbol("x-opt-lock-token"): "forged", Symbol("kept"): 1})
    stored = store_message(with_parts(delivery_annotations=forged, body=section(DATA, b"")))

    after = Message.parse(encode_deliveries([stored], [TOKEN.bytes_le], 7)[0])

    assert delivery_annotations(after) == {"kept": 1, "x-opt-lock-token": TOKEN}
    assert delivery_annotations(Message.parse(encode_removed(stored))) == {"kept": 1}


@pytest.mark.parametrize("until", [None, 2000])
@pytest.mark.parametrize("raw", MESSAGES.values(), ids=MESSAGES.keys())
def test_deferred_message_contains_the_message_as_sent(raw: bytes, until: int | None) -> None:
    after = Message.parse(encode_deferred(store_message(raw, state=DEFERRED), until))

    check_same(Message.parse(raw), after, 3 if until is None else 4)
    annotations = after.read_message_annotations()
    assert same(annotations["x-opt-message-state"], Int32(DEFERRED))
    assert annotations.get("x-opt-locked-until") == until


@pytest.mark.parametrize("raw", MESSAGES.values(), ids=MESSAGES.keys())
def test_message_id_is_the_only_change_to_a_message_that_gets_one(raw: bytes) -> None:
    number = uuid.UUID("0123456789abcdef0123456789abcdef")
    incoming = parse_message(raw)

    changed = with_message_id(incoming, lambda: number)

    assert changed.message_id == changed.sections.read_properties().message_id == number.hex
    before, after = incoming.sections.read_properties(), changed.sections.read_properties()
    assert replace(after, message_id=before.message_id) == before
    changed.sections.properties = incoming.sections.properties
    assert changed.sections.encode() == incoming.sections.encode()
    assert replace(changed, sections=incoming.sections, message_id=incoming.message_id) == incoming


@pytest.mark.parametrize("raw", MESSAGES.values(), ids=MESSAGES.keys())
def test_peeked_message_contains_the_message_as_sent(raw: bytes) -> None:
    after = Message.parse(encode_peeked(store_message(raw, state=SCHEDULED)))

    check_same(Message.parse(raw), after, 3)
    state = after.read_message_annotations()["x-opt-message-state"]
    assert same(state, Int32(SCHEDULED))


@pytest.mark.parametrize("raw", MESSAGES.values(), ids=MESSAGES.keys())
def test_original_message_is_restored(raw: bytes) -> None:
    before, after = Message.parse(raw), Message.parse(encode_original(store_message(raw)))

    check_same(before, after, 0)
    assert after.header == before.header


@pytest.mark.parametrize("raw", MESSAGES.values(), ids=MESSAGES.keys())
def test_setting_properties_changes_only_the_application_properties(raw: bytes) -> None:
    stored = store_message(raw)
    set_application_properties(stored, {})
    assert encode_original(stored) == encode_original(store_message(raw))
    set_application_properties(stored, {"added": Int32(1)})

    before, after = Message.parse(raw), Message.parse(encode_removed(stored))
    changed = after.read_application_properties()
    after.application_properties = before.application_properties

    check_same(before, after, 2)
    assert same(changed, {**before.read_application_properties(), "added": Int32(1)})


def test_sections_are_delivered_in_the_order_of_the_specification() -> None:
    delivery = encode_removed(store_message(COMPLETE.encode()))

    positions = [delivery.index(getattr(Message.parse(delivery), name)) for name in ORDER]

    assert positions == sorted(positions)
    assert positions[0] == 0


ORDER = (
    "header",
    "delivery_annotations",
    "message_annotations",
    "properties",
    "application_properties",
    "body",
    "footer",
)


def test_delivery_annotations_at_the_end_are_moved_behind_the_header() -> None:
    """The Azure SDK writes them at the end."""
    parts = {name: getattr(COMPLETE, name) for name in ORDER if name != "delivery_annotations"}
    raw = with_parts(**parts) + COMPLETE.delivery_annotations

    assert encode_deliveries([store_message(raw)], [TOKEN.bytes_le], 5) == encode_deliveries(
        [store_message(COMPLETE.encode())], [TOKEN.bytes_le], 5
    )


def test_annotations_of_the_service_are_removed_from_sent_messages() -> None:
    names = ("enqueued-time", "sequence-number", "locked-until", "lock-token", "message-state")
    sent: dict[Any, Any] = {Symbol(f"x-opt-{name}"): "forged" for name in names}
    sent["x-opt-enqueue-sequence-number"] = 1
    sent[Symbol("x-opt-partition-key")] = "kept"
    raw = with_parts(message_annotations=section(ANNOTATIONS, sent), body=section(DATA, b""))

    after = Message.parse(encode_removed(store_message(raw)))

    assert after.read_message_annotations() == {
        "x-opt-partition-key": "kept",
        "x-opt-enqueued-time": 1000,
        "x-opt-sequence-number": 5,
    }


def test_dead_letter_source_is_replaced() -> None:
    forged = section(ANNOTATIONS, {"x-opt-deadletter-source": "forged"})
    raw = with_parts(message_annotations=forged)
    stored = store_message(raw)
    for path in ("first", "second"):
        set_dead_letter_source(stored, path)
        annotations = Message.parse(encode_original(stored)).read_message_annotations()
        assert annotations == {"x-opt-deadletter-source": path}


def test_cached_headers_are_not_mixed_up() -> None:
    for priority in range(3):
        for deliveries in range(3):
            built = Message.build(header=Header(priority=priority), data=b"").encode()
            stored = store_message(built)
            stored.deliveries = deliveries
            header = Message.parse(encode_removed(stored)).read_header()
            assert (header.priority, header.delivery_count) == (priority, deliveries)


# Parsing.


def test_fields_of_a_message_are_parsed() -> None:
    incoming = parse_message(payload("body", session="s", ttl=50, at=70, id="m"))

    assert (incoming.session, incoming.ttl_ms, incoming.scheduled_ms) == ("s", 50, 70)
    assert (incoming.message_id, incoming.is_ping) == ("m", False)
    assert incoming.size == len(payload("body", session="s", ttl=50, at=70, id="m"))


def test_absent_fields_are_none() -> None:
    incoming = parse_message(with_parts(body=section(DATA, b"")))

    assert incoming.session is incoming.ttl_ms is incoming.scheduled_ms is None
    assert incoming.message_id is None


@pytest.mark.parametrize("kind", [Symbol, str])
def test_ping_is_recognized_by_its_content_type(kind: type[str]) -> None:
    raw = with_parts(properties=section(PROPERTIES, [None] * 6 + [kind(PING_CONTENT_TYPE)]))

    assert parse_message(raw).is_ping


def test_only_a_scheduled_message_is_stored_with_its_due_time() -> None:
    incoming = parse_message(payload(at=70))

    assert to_stored(incoming, 1, SCHEDULED, 0, None).due_ms == 70
    assert to_stored(incoming, 1, ACTIVE, 0, None).due_ms is None
    assert to_stored(incoming, 1, DEFERRED, 0, 90).expires_ms == 90


def with_properties(fields: dict[int, Any]) -> bytes:
    message = Message.build(data=b"")
    message.edit_properties(fields)
    return message.encode()


def with_ttl(value: Any) -> bytes:
    message = Message.build(data=b"")
    message.edit_header({TTL: value})
    return message.encode()


def with_annotations(*pairs: tuple[Any, Any]) -> bytes:
    return with_parts(message_annotations=section(ANNOTATIONS, Pairs(pairs)))


SCHEDULED_TIME, SOURCE = "x-opt-scheduled-enqueue-time", "x-opt-deadletter-source"


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (with_properties({GROUP_ID: 5}), DecodeError),
        (with_properties({GROUP_ID: b"x"}), DecodeError),
        (with_properties({GROUP_ID: "x" * 129}), Refused),
        (with_properties({MESSAGE_ID: "x" * 129}), Refused),
        (with_ttl("long"), DecodeError),
        (with_ttl(b"\x00"), DecodeError),
        (with_ttl([5]), DecodeError),
        (with_annotations((Symbol(SCHEDULED_TIME), 5)), DecodeError),
        (
            with_annotations(
                (Symbol(SCHEDULED_TIME), Timestamp(5)), (SCHEDULED_TIME, Timestamp(6))
            ),
            DecodeError,
        ),
        (with_annotations((Symbol(SOURCE), "a"), (SOURCE, "b")), DecodeError),
        (with_annotations((Symbol("x-opt-lock-token"), 1), ("x-opt-lock-token", 2)), DecodeError),
        (with_parts(delivery_annotations=b"\x00\x53\x71\xc1\x00"), DecodeError),
        (with_parts(delivery_annotations=b"\x00\x53\x71\xc1\x03\x02\xa3\x05"), DecodeError),
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
def test_invalid_message_is_refused(raw: bytes, kind: type[PairbusError]) -> None:
    with pytest.raises(kind):
        parse_message(raw)


def test_ids_and_sections_of_maximum_size_are_accepted() -> None:
    parse_message(with_properties({MESSAGE_ID: "ü" * 128, GROUP_ID: "ü" * 128}))
    parse_message(payload("x" * 200_000, properties={"a": "x" * 60_000}))


@pytest.mark.parametrize("count", [0, 1, 60, 61, 62, 63, 64, 200])
def test_any_number_of_annotations_is_delivered(count: int) -> None:
    """From a certain size on, the map of annotations has another encoding."""
    annotations = {Symbol(f"x{number}"): number for number in range(count)}
    stored = store_message(with_parts(message_annotations=section(ANNOTATIONS, annotations)))

    delivered = Message.parse(
        encode_deliveries([stored], [TOKEN.bytes_le], 7)[0]
    ).read_message_annotations()

    assert len(delivered) == count + 3
    assert all(delivered[key] == value for key, value in annotations.items())
