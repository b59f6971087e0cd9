"""Messages: parsing, reading, editing and encoding of sections."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from pairbus.amqp.encode import encode
from pairbus.amqp.section_edit import EncodedKeys
from pairbus.amqp.sections import (
    CONTENT_TYPE,
    CREATION_TIME,
    DATA,
    DELIVERY_COUNT,
    DURABLE,
    GROUP_ID,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO_GROUP_ID,
    SEQUENCE,
    SUBJECT,
    TTL,
    VALUE,
    Header,
    Message,
    Properties,
    ttl_field,
)
from pairbus.amqp.types import Described, Float32, Int32, Symbol, Timestamp, UByte, UInt, ULong
from pairbus.errors import DecodeError, EncodeError
from tests.unit.amqp.same import same

ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
NAMES = {
    0x70: "amqp:header:list",
    0x71: "amqp:delivery-annotations:map",
    0x72: "amqp:message-annotations:map",
    0x73: "amqp:properties:list",
    0x74: "amqp:application-properties:map",
    0x75: "amqp:data:binary",
    0x76: "amqp:amqp-sequence:list",
    0x77: "amqp:amqp-value:*",
    0x78: "amqp:footer:map",
}

# All encodings of a descriptor, smallest first.
SPELLINGS: dict[str, Callable[[int], bytes]] = {
    "small ulong": lambda code: bytes((0, 0x53, code)),
    "ulong": lambda code: b"\x00\x80" + code.to_bytes(8, "big"),
    "symbol": lambda code: b"\x00\xa3" + bytes((len(NAMES[code]),)) + NAMES[code].encode(),
    "long symbol": lambda code: (
        b"\x00\xb3" + len(NAMES[code]).to_bytes(4, "big") + NAMES[code].encode()
    ),
}


def section(code: int, content: bytes, spelling: str = "small ulong") -> bytes:
    return SPELLINGS[spelling](code) + content


def compound8(constructor: int, elements: list[bytes]) -> bytes:
    body = b"".join(elements)
    return bytes((constructor, len(body) + 1, len(elements))) + body


def compound32(constructor: int, elements: list[bytes]) -> bytes:
    body = b"".join(elements)
    size, count = (len(body) + 4).to_bytes(4, "big"), len(elements).to_bytes(4, "big")
    return bytes((constructor + 0x10,)) + size + count + body


def long_text(text: str, constructor: int = 0xB1) -> bytes:
    """Return a short string or symbol with a size of four bytes."""
    raw = text.encode()
    return bytes((constructor,)) + len(raw).to_bytes(4, "big") + raw


BROKEN = b"\xc0\x02\x01\xff"
"""A list whose element is invalid. It can be skipped because it has a size."""

EVERY_SECTION = [
    section(0x70, compound8(0xC0, [b"\x41", b"\x50\x07", b"\x70\x00\x00\x00\x05"])),
    section(0x71, compound8(0xC1, [encode(Symbol("x-opt-d")), b"\x41"])),
    section(0x72, compound8(0xC1, [encode(Symbol("x-opt-m")), encode(17)])),
    section(0x73, compound8(0xC0, [encode("id"), b"\x40", encode("to")])),
    section(0x74, compound8(0xC1, [encode("color"), encode("red")])),
    section(0x75, encode(b"one")),
    section(0x75, encode(b"two" * 100)),
    section(0x78, compound8(0xC1, [encode(Symbol("f")), b"\x40"])),
]
SLOTS = (
    "header",
    "delivery_annotations",
    "message_annotations",
    "properties",
    "application_properties",
    "body",
    "footer",
)


def sections_except(message: Message, slot: str) -> dict[str, bytes]:
    return {name: getattr(message, name) for name in SLOTS if name != slot}


# Parsing and encoding.


def test_message_with_every_section_survives_byte_for_byte():
    data = b"".join(EVERY_SECTION)

    message = Message.parse(data)

    assert message.header == EVERY_SECTION[0]
    assert message.delivery_annotations == EVERY_SECTION[1]
    assert message.message_annotations == EVERY_SECTION[2]
    assert message.properties == EVERY_SECTION[3]
    assert message.application_properties == EVERY_SECTION[4]
    assert message.body == EVERY_SECTION[5] + EVERY_SECTION[6]
    assert message.footer == EVERY_SECTION[7]
    assert message.encode() == data


def test_truncated_message_is_an_error_unless_cut_between_sections():
    data = b"".join(EVERY_SECTION)
    between = {len(b"".join(EVERY_SECTION[:n])) for n in range(len(EVERY_SECTION) + 1)}

    for size in range(len(data) + 1):
        if size in between:
            assert Message.parse(data[:size]).encode() == data[:size]
        else:
            with pytest.raises(DecodeError):
                Message.parse(data[:size])


@pytest.mark.parametrize(
    "data",
    [
        section(0x70, b"\x45"),
        section(0x73, b"\x45"),
        section(0x76, b"\x45"),
        section(0x77, b"\x40"),
        section(0x77, b"\x41"),
        section(0x77, b"\x43"),
        section(0x70, b"\x45") + section(0x77, b"\x40"),
        section(0x75, b"\xa0\x00"),
        b"",
    ],
    ids=bytes.hex,
)
def test_smallest_messages_are_parsed(data: bytes):
    assert Message.parse(data).encode() == data


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("wide", [False, True], ids=["small sizes", "large sizes"])
def test_every_valid_encoding_of_a_section_is_parsed_and_kept(spelling: str, wide: bool):
    compound = compound32 if wide else compound8
    binary = b"\xb0\x00\x00\x00\x03abc" if wide else b"\xa0\x03abc"
    data = (
        section(0x70, compound(0xC0, [b"\x56\x01"]), spelling)
        + section(0x71, compound(0xC1, []), spelling)
        + section(0x72, compound(0xC1, [long_text("x-opt-a", 0xB3), b"\x55\x05"]), spelling)
        + section(0x73, compound(0xC0, [long_text("id")]), spelling)
        + section(0x74, compound(0xC1, [long_text("key"), long_text("value")]), spelling)
        + section(0x75, binary, spelling)
        + section(0x78, compound(0xC1, []), spelling)
    )

    message = Message.parse(data)

    assert message.encode() == data
    assert message.read_header() == Header(durable=True)
    assert same(message.read_message_annotations(), {Symbol("x-opt-a"): 5})
    assert message.read_properties().message_id == "id"
    assert same(message.read_application_properties(), {"key": "value"})
    assert message.read_body() == (DATA, [b"abc"])


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_message_in_any_buffer_is_parsed(kind: Any):
    data = b"".join(EVERY_SECTION)

    message = Message.parse(kind(data))

    assert message.encode() == data
    assert message.read_application_properties() == {"color": "red"}


def test_trailing_delivery_annotations_of_the_azure_sdk_are_parsed():
    annotations, data = EVERY_SECTION[1], section(0x75, b"\xa0\x01x")

    message = Message.parse(EVERY_SECTION[0] + data + annotations)

    assert message.delivery_annotations == annotations
    assert message.encode() == EVERY_SECTION[0] + annotations + data


@pytest.mark.parametrize(
    "codes",
    [
        pytest.param([0x72, 0x70], id="annotations before header"),
        pytest.param([0x74, 0x73], id="application properties before properties"),
        pytest.param([0x75, 0x73], id="body before properties"),
        pytest.param([0x78, 0x75], id="footer before body"),
        pytest.param([0x71, 0x71], id="delivery annotations twice"),
        pytest.param([0x75, 0x71, 0x71], id="delivery annotations twice at the end"),
        pytest.param([0x71, 0x75, 0x71], id="delivery annotations at both ends"),
        pytest.param([0x75, 0x71, 0x78], id="delivery annotations before the footer"),
        pytest.param([0x70, 0x70], id="header twice"),
        pytest.param([0x72, 0x72], id="message annotations twice"),
        pytest.param([0x73, 0x73], id="properties twice"),
        pytest.param([0x74, 0x74], id="application properties twice"),
        pytest.param([0x77, 0x77], id="two values"),
        pytest.param([0x78, 0x78], id="two footers"),
        pytest.param([0x75, 0x76], id="data and sequence"),
        pytest.param([0x75, 0x77], id="data and value"),
        pytest.param([0x76, 0x77], id="sequence and value"),
        pytest.param([0x76, 0x75], id="sequence and data"),
        pytest.param([0x77, 0x75], id="value and data"),
    ],
)
def test_sections_out_of_order_are_an_error(codes: list[int]):
    content = {0x70: b"\x45", 0x73: b"\x45", 0x75: b"\xa0\x00", 0x76: b"\x45", 0x77: b"\x40"}
    data = b"".join(section(code, content.get(code, b"\xc1\x01\x00")) for code in codes)

    with pytest.raises(DecodeError):
        Message.parse(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(bytes((0, 0x53, 0x6F)) + b"\xc1\x01\x00", id="code below"),
        pytest.param(bytes((0, 0x53, 0x79)) + b"\xc1\x01\x00", id="code above"),
        pytest.param(bytes((0, 0x53, 0x10)) + b"\xc0\x01\x00", id="a performative"),
        pytest.param(b"\x00\xa3\x05hello\xc1\x01\x00", id="unknown symbol"),
        pytest.param(b"\x00\x80" + bytes(7) + b"\x79\xc1\x01\x00", id="unknown long code"),
        pytest.param(b"\x00\xc0\x01\x00\xc1\x01\x00", id="list as descriptor"),
        pytest.param(b"\x00\x40\x40", id="null as descriptor"),
        pytest.param(b"\xa0\x03abc", id="no descriptor"),
        pytest.param(b"hello, world", id="text"),
        pytest.param(b"\x00", id="descriptor marker only"),
        pytest.param(b"\x00\x53", id="no code"),
        pytest.param(b"\x00\x53\x75", id="no content"),
        pytest.param(section(0x70, b"\xc1\x01\x00"), id="header as map"),
        pytest.param(section(0x72, b"\x45"), id="annotations as list"),
        pytest.param(section(0x74, b"\x40"), id="application properties as null"),
        pytest.param(section(0x75, b"\xa1\x01x"), id="data as string"),
        pytest.param(section(0x76, b"\xe0\x02\x00\x40"), id="sequence as array"),
        pytest.param(section(0x78, b"\xa3\x01x"), id="footer as symbol"),
        pytest.param(section(0x77, b"\x01"), id="value of an unknown type"),
        pytest.param(section(0x75, b"\xb0\xff\xff\xff\xff"), id="size beyond the end"),
    ],
)
def test_data_that_is_not_a_message_is_an_error(data: bytes):
    with pytest.raises(DecodeError):
        Message.parse(data)


def test_many_small_body_sections_take_linear_time():
    data = (
        section(0x75, b"\xa0\x00") * 200_000
    )  # Copying the body for each section would take minutes.

    assert Message.parse(data).body == data


# Sections are decoded only when they are read.


@pytest.mark.parametrize(
    ("slot", "broken"),
    [
        ("header", section(0x70, BROKEN)),
        ("delivery_annotations", section(0x71, b"\xc1" + BROKEN[1:])),
        ("message_annotations", section(0x72, b"\xc1" + BROKEN[1:])),
        ("properties", section(0x73, BROKEN)),
        ("application_properties", section(0x74, b"\xc1" + BROKEN[1:])),
        ("body", section(0x76, BROKEN)),
        ("body", section(0x77, BROKEN)),
        ("footer", section(0x78, b"\xc1" + BROKEN[1:])),
    ],
)
def test_undecodable_section_is_kept_while_others_are_edited(slot: str, broken: bytes):
    message = Message.parse(broken)
    assert getattr(message, slot) == broken

    if slot != "header":
        message.edit_header({TTL: UInt(5)})
    if slot != "message_annotations":
        message.edit_message_annotations({Symbol("x-opt-a"): 1})
    if slot != "properties":
        message.edit_properties({GROUP_ID: "g"})
    if slot != "application_properties":
        message.edit_application_properties({"a": 1})

    assert getattr(Message.parse(message.encode()), slot) == broken


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (section(0x70, BROKEN), Message.read_header),
        (section(0x72, b"\xc1" + BROKEN[1:]), Message.read_message_annotations),
        (section(0x73, BROKEN), Message.read_properties),
        (section(0x74, b"\xc1" + BROKEN[1:]), Message.read_application_properties),
        (section(0x76, BROKEN), Message.read_body),
        (section(0x77, BROKEN), Message.read_value),
        (section(0x70, b"\xc0\x00"), Message.read_header),
        (section(0x74, b"\xc1\x00"), Message.read_application_properties),
        (section(0x70, compound8(0xC0, [b"\x40"] * 6)), Message.read_header),
        (section(0x73, compound8(0xC0, [b"\x40"] * 14)), Message.read_properties),
        (section(0x70, compound8(0xC0, [encode("yes")])), Message.read_header),
        (section(0x70, compound8(0xC0, [b"\x40", b"\x40", encode(5)])), Message.read_header),
        (section(0x73, compound8(0xC0, [b"\x40"] * 10 + [encode(5)])), Message.read_properties),
        (section(0x74, compound8(0xC1, [encode("a")])), Message.read_application_properties),
        (
            section(0x74, compound8(0xC1, [encode("a"), b"\x40", encode("a"), b"\x40"])),
            Message.read_application_properties,
        ),
        (
            section(0x72, compound8(0xC1, [encode("a"), b"\x40", encode(Symbol("a")), b"\x40"])),
            Message.read_message_annotations,
        ),
        (
            section(0x74, compound8(0xC1, [b"\xa1\x01\xff", b"\x40"])),
            Message.read_application_properties,
        ),
    ],
)
def test_reading_an_invalid_section_is_an_error(data: bytes, read: Callable[[Message], Any]):
    message = Message.parse(data)

    with pytest.raises(DecodeError):
        read(message)


# Reading.


def test_absent_sections_read_as_their_defaults():
    message = Message.parse(b"")

    assert message.read_header() == Header()
    assert message.read_properties() == Properties()
    assert message.read_message_annotations() == {}
    assert message.read_application_properties() == {}
    assert message.read_body() == (VALUE, [])
    assert message.read_value() is None


def test_header_is_read_with_its_defaults():
    header = Message.parse(EVERY_SECTION[0]).read_header()

    assert header == Header(durable=True, priority=7, ttl=5, first_acquirer=False, delivery_count=0)


def test_all_properties_are_read_as_they_were_built():
    properties = Properties(
        message_id=ID,
        user_id=b"user",
        to="queue",
        subject="subject",
        reply_to="answers",
        correlation_id=ULong(7),
        content_type="text/plain",
        content_encoding="gzip",
        absolute_expiry_time=Timestamp(2_000),
        creation_time=Timestamp(1_000),
        group_id="group",
        group_sequence=3,
        reply_to_group_id="other group",
    )
    message = Message.build(properties=properties)

    assert Message.parse(message.encode()).read_properties() == properties


def test_types_of_application_properties_and_annotations_survive():
    values = {
        "long": 1,
        "int": Int32(1),
        "ulong": ULong(1),
        "float": Float32(0.5),
        "uuid": ID,
        "time": Timestamp(5),
        "symbol": Symbol("s"),
        "none": None,
    }
    annotations = {Symbol(key): value for key, value in values.items()} | {ULong(3): UByte(1)}
    built = Message.build(application_properties=values, message_annotations=annotations)

    message = Message.parse(built.encode())

    assert same(message.read_application_properties(), values)
    assert same(message.read_message_annotations(), annotations)


def test_several_data_sections_are_read_in_order():
    data = b"".join(section(0x75, encode(part)) for part in (b"a", b"", b"b" * 300))

    message = Message.parse(data)

    assert message.read_body() == (DATA, [b"a", b"", b"b" * 300])
    assert message.read_value() is None


def test_several_sequences_are_read_in_order():
    data = section(0x76, encode([1, "a"])) + section(0x76, encode([])) + section(0x76, encode([2]))

    assert Message.parse(data).read_body() == (SEQUENCE, [[1, "a"], [], [2]])


@pytest.mark.parametrize("value", [None, 5, "text", [1], {"a": Int32(1)}, Described(ULong(5), 1)])
def test_body_of_one_value_is_read_with_its_type(value: Any):
    message = Message.parse(Message.build(value=value).encode())

    kind, values = message.read_body()
    assert kind == VALUE
    assert same(values, [value])
    assert same(message.read_value(), value)


def test_body_is_data_else_sequence_else_value():
    assert Message.build(data=b"", sequence=[1], value=2).read_body() == (DATA, [b""])
    assert Message.build(sequence=[], value=2).read_body() == (SEQUENCE, [[]])
    assert Message.build(value=2).read_body() == (VALUE, [2])


# Editing fields.


def test_field_of_an_absent_section_is_added():
    message = Message.parse(section(0x75, b"\xa0\x00"))

    message.edit_header({TTL: UInt(1000)})
    message.edit_properties({GROUP_ID: "group"})

    parsed = Message.parse(message.encode())
    assert parsed.read_header() == Header(ttl=1000)
    assert parsed.read_properties() == Properties(group_id="group")
    assert parsed.body == section(0x75, b"\xa0\x00")


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("compound", [compound8, compound32])
def test_other_fields_are_kept_byte_for_byte(
    spelling: str, compound: Callable[[int, list[bytes]], bytes]
):
    durable, priority, ttl = b"\x56\x01", b"\x50\x04", b"\x70\x00\x00\x00\x01"
    header = section(0x70, compound(0xC0, [durable, priority, ttl, b"\x56\x00"]), spelling)
    message = Message.parse(header)

    message.edit_header({TTL: UInt(1000)})

    fields = [durable, priority, encode(UInt(1000)), b"\x56\x00"]
    assert message.header == section(0x70, compound8(0xC0, fields))


def test_undecodable_field_is_kept():
    described = b"\x00\xa3\x01d" + BROKEN
    message = Message.parse(section(0x73, compound8(0xC0, [described, b"\x40", encode("to")])))

    message.edit_properties({SUBJECT: "subject"})
    message.edit_properties({SUBJECT: "other"})

    fields = [described, b"\x40", encode("to"), encode("other")]
    assert message.properties == section(0x73, compound8(0xC0, fields))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({MESSAGE_ID: "new"}, Properties("new", to="to")),
        ({MESSAGE_ID: None}, Properties(to="to")),
        ({SUBJECT: "s"}, Properties("id", to="to", subject="s")),
        ({GROUP_ID: "g", SUBJECT: "s"}, Properties("id", to="to", subject="s", group_id="g")),
        ({MESSAGE_ID: ID, REPLY_TO_GROUP_ID: "r"}, Properties(ID, to="to", reply_to_group_id="r")),
        ({GROUP_ID: None, REPLY_TO_GROUP_ID: None}, Properties("id", to="to")),
        ({CREATION_TIME: Timestamp(5), MESSAGE_ID: None}, Properties(to="to", creation_time=5)),
        ({CONTENT_TYPE: Symbol("c")}, Properties("id", to="to", content_type="c")),
        ({}, Properties("id", to="to")),
    ],
)
def test_fields_are_set_and_cleared_by_index(fields: dict[int, Any], expected: Properties):
    message = Message.parse(b"".join(EVERY_SECTION))
    others = sections_except(message, "properties")

    message.edit_properties(fields)

    assert message.read_properties() == expected
    assert sections_except(message, "properties") == others
    assert Message.parse(message.encode()).read_properties() == expected


def test_order_of_edited_fields_does_not_matter():
    first, second = Message(), Message()

    first.edit_header({DURABLE: True, DELIVERY_COUNT: UInt(2)})
    second.edit_header({DELIVERY_COUNT: UInt(2), DURABLE: True})

    assert first.header == second.header


def test_section_without_a_set_field_is_removed():
    message = Message.build(header=Header(ttl=5), properties=Properties(group_id="g"))

    message.edit_header({TTL: None})
    message.edit_properties({GROUP_ID: None})

    assert message.header == b""
    assert message.properties == b""
    assert message.encode() == message.body


def test_clearing_a_field_of_an_absent_section_adds_nothing():
    message = Message.build()

    message.edit_header({TTL: None, PRIORITY: None})

    assert message.header == b""


def test_list_grows_beyond_small_sizes():
    message = Message.build(properties=Properties(message_id="a" * 200))

    message.edit_properties({SUBJECT: "b" * 200})

    assert message.properties[3] == 0xD0
    expected = Properties(message_id="a" * 200, subject="b" * 200)
    assert Message.parse(message.encode()).read_properties() == expected


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\xc0\x00", id="too short for a count"),
        pytest.param(b"\xd0\x00\x00\x00\x02\x00\x00", id="too short for a long count"),
        pytest.param(b"\xc0\x01\x01", id="count without a field"),
        pytest.param(b"\xc0\x03\x01\x41\x41", id="more than the count"),
        pytest.param(b"\xc0\x03\x01\xa1\x05", id="field beyond the end"),
        pytest.param(b"\xc0\x02\x01\x01", id="field of an unknown type"),
        pytest.param(b"\xd0\x00\x00\x00\x05\xff\xff\xff\xff\x40", id="count of billions"),
    ],
)
def test_editing_a_malformed_list_is_an_error(content: bytes):
    message = Message.parse(section(0x70, content))

    with pytest.raises(DecodeError):
        message.edit_header({DURABLE: True})

    assert message.header == section(0x70, content)


@pytest.mark.parametrize(
    ("edit", "slot"),
    [
        (lambda m: m.edit_header({TTL: UInt(2**32)}), "header"),
        (lambda m: m.edit_properties({SUBJECT: object()}), "properties"),
        (lambda m: m.edit_properties({SUBJECT: "\ud800"}), "properties"),
        (
            lambda m: m.edit_application_properties({"new": object()}, ["color"]),
            "application_properties",
        ),
        (
            lambda m: m.edit_application_properties({"\ud800": 1}, ["color"]),
            "application_properties",
        ),
        (
            lambda m: m.edit_message_annotations({ULong(1): 1}, ["x-opt-m"]),
            "message_annotations",
        ),
        (
            lambda m: m.edit_message_annotations({Symbol("ö"): 1}, ["x-opt-m"]),
            "message_annotations",
        ),
    ],
)
def test_value_without_an_amqp_encoding_changes_nothing(edit: Callable[[Message], Any], slot: str):
    message = Message.parse(b"".join(EVERY_SECTION))

    with pytest.raises(EncodeError):
        edit(message)

    assert message.encode() == b"".join(EVERY_SECTION)
    assert getattr(message, slot)


@pytest.mark.parametrize(
    ("milliseconds", "field"),
    [(None, None), (0, 0), (5, 5), (2**32 - 1, 2**32 - 1), (2**32, 2**32 - 1)],
)
def test_time_to_live_is_limited_to_49_days(milliseconds: int | None, field: int | None):
    ttl = ttl_field(milliseconds)

    assert ttl == field
    assert ttl is None or isinstance(ttl, UInt)


# Editing entries.


def test_entries_are_added_to_an_absent_section():
    message = Message.parse(section(0x75, b"\xa0\x00"))

    assert message.edit_message_annotations({Symbol("x-opt-a"): Int32(1)}) == {}
    assert message.edit_application_properties({"a": UInt(2), "b": None}) == {}

    parsed = Message.parse(message.encode())
    assert same(parsed.read_message_annotations(), {Symbol("x-opt-a"): Int32(1)})
    assert same(parsed.read_application_properties(), {"a": UInt(2), "b": None})
    assert parsed.body == section(0x75, b"\xa0\x00")


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("compound", [compound8, compound32])
@pytest.mark.parametrize("remove", [["removed"], EncodedKeys(["removed"]), {"removed", "absent"}])
def test_other_entries_are_kept_byte_for_byte(
    spelling: str, compound: Callable[[int, list[bytes]], bytes], remove: Any
):
    kept_before = [long_text("key"), b"\x81" + bytes(7) + b"\x01"]  # Both have shorter encodings.
    removed = [long_text("removed"), b"\x70\x00\x00\x00\x07"]
    old = [encode("old"), b"\x56\x01"]
    kept_after = [encode("last"), BROKEN]
    elements = kept_before + removed + old + kept_after
    message = Message.parse(section(0x74, compound(0xC1, elements), spelling))

    old_values = message.edit_application_properties({"old": "new", "added": 1}, remove)

    assert same(old_values, {"removed": UInt(7), "old": True})
    expected = [*kept_before, *kept_after, encode("old"), encode("new"), encode("added"), encode(1)]
    assert message.application_properties == section(0x74, compound8(0xC1, expected))


@pytest.mark.parametrize("constructor", [0xA3, 0xB3, 0xA1, 0xB1])
def test_annotation_is_found_in_any_encoding_of_its_key(constructor: int):
    size = 1 if constructor < 0xB0 else 4
    key = bytes((constructor,)) + (7).to_bytes(size, "big") + b"x-opt-a"
    message = Message.parse(section(0x72, compound8(0xC1, [key, b"\x55\x05", b"\x44", b"\x41"])))

    assert message.edit_message_annotations({}, ["x-opt-a"]) == {"x-opt-a": 5}
    assert message.message_annotations == section(0x72, compound8(0xC1, [b"\x44", b"\x41"]))


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(b"\x44", id="ulong zero"),
        pytest.param(b"\x80" + bytes(7) + b"\x05", id="ulong"),
        pytest.param(b"\x40", id="null"),
        pytest.param(b"\x45", id="empty list"),
        pytest.param(b"\xc0\x03\x01\xa1\x00", id="list"),
        pytest.param(b"\xa0\x01\xff", id="binary"),
        pytest.param(b"\x00\x53\x01\x40", id="described"),
    ],
)
def test_entry_with_an_unusual_key_is_kept(key: bytes):
    message = Message.parse(
        section(0x72, compound8(0xC1, [key, BROKEN, encode(Symbol("a")), b"\x41"]))
    )

    assert message.edit_message_annotations({Symbol("b"): 1}, ["a"]) == {"a": True}

    expected = [key, BROKEN, encode(Symbol("b")), encode(1)]
    assert message.message_annotations == section(0x72, compound8(0xC1, expected))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_removing_an_absent_entry_changes_no_byte(spelling: str):
    data = section(0x74, compound32(0xC1, [long_text("key"), b"\x56\x01"]), spelling)
    message = Message.parse(data)

    assert message.edit_application_properties({}, ["other"]) == {}
    assert message.edit_application_properties({}) == {}
    assert message.edit_message_annotations({}, ["other"]) == {}

    assert message.encode() == data


def test_removing_the_last_entry_removes_the_section():
    message = Message.build(
        message_annotations={Symbol("x-opt-a"): 1}, application_properties={"a": 1, "b": 2}
    )

    assert message.edit_message_annotations({}, ["x-opt-a"]) == {"x-opt-a": 1}
    assert message.edit_application_properties({}, ["b", "a"]) == {"a": 1, "b": 2}

    assert message.message_annotations == b""
    assert message.application_properties == b""
    assert message.encode() == message.body


def test_replacing_the_last_entry_keeps_the_section():
    message = Message.build(application_properties={"a": 1})

    assert message.edit_application_properties({"a": 2}) == {"a": 1}

    assert same(message.read_application_properties(), {"a": 2})


def test_entry_that_is_removed_and_set_has_the_new_value():
    message = Message.build(application_properties={"a": 1, "b": 2})

    assert message.edit_application_properties({"a": 3}, ["a"]) == {"a": 1}

    assert same(message.read_application_properties(), {"b": 2, "a": 3})


def test_text_of_a_key_is_not_found_in_values_or_other_keys():
    before = {"a": "color", "colors": "a", "x": ["color"]}
    message = Message.build(application_properties=before)

    assert message.edit_application_properties({"color": "red"}, ["x"]) == {"x": ["color"]}

    expected = {"a": "color", "colors": "a", "color": "red"}
    assert same(message.read_application_properties(), expected)


@pytest.mark.parametrize("name", ["größe", "キー", "x" * 255, "x" * 256, "x" * 70_000, ""])
def test_any_text_can_be_a_key(name: str):
    message = Message.build(application_properties={"first": 1, name: 2, "last": 3})

    assert message.edit_application_properties({name: 4}) == {name: 2}
    assert message.edit_application_properties({}, EncodedKeys([name])) == {name: 4}

    assert same(message.read_application_properties(), {"first": 1, "last": 3})


@pytest.mark.parametrize("remove", [["a"], EncodedKeys(["a"])])
@pytest.mark.parametrize("second", [encode("a"), encode(Symbol("a")), long_text("a")])
def test_duplicate_key_is_an_error(remove: Any, second: bytes):
    elements = [encode("a"), encode(1), encode("b"), encode(2), second, encode(3)]
    data = section(0x74, compound8(0xC1, elements))
    message = Message.parse(data)

    with pytest.raises(DecodeError):
        message.edit_application_properties({}, remove)

    assert message.encode() == data


def test_map_grows_and_shrinks_between_small_and_large_sizes():
    few = {f"key{n}": n for n in range(20)}
    many = {f"more{n}": n for n in range(150)}
    message = Message.build(application_properties=few)
    assert message.application_properties[3] == 0xC1

    message.edit_application_properties(many)

    assert message.application_properties[3] == 0xD1
    assert same(Message.parse(message.encode()).read_application_properties(), few | many)

    assert message.edit_application_properties({}, list(many)) == many

    assert (
        message.application_properties
        == Message.build(application_properties=few).application_properties
    )


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\xc1\x00", id="too short for a count"),
        pytest.param(b"\xd1\x00\x00\x00\x01\x00", id="too short for a long count"),
        pytest.param(b"\xc1\x01\x02", id="count without an entry"),
        pytest.param(b"\xc1\x04\x01\xa1\x01a", id="key without a value"),
        pytest.param(b"\xc1\x08\x03\xa1\x01a\x41\xa1\x01b", id="second key without a value"),
        pytest.param(b"\xc1\x06\x02\xa1\x01a\x41\x41", id="more than the count"),
        pytest.param(b"\xc1\x03\x02\xa1\x05", id="key beyond the end"),
        pytest.param(b"\xc1\x06\x02\xa1\x01a\xa1\x05", id="value beyond the end"),
        pytest.param(b"\xc1\x05\x02\xa1\x01a\x01", id="value of an unknown type"),
        pytest.param(b"\xd1\x00\x00\x00\x05\xff\xff\xff\xfe\x40", id="count of billions"),
    ],
)
@pytest.mark.parametrize("key", ["a", "other"])
def test_searching_a_malformed_map_is_an_error(content: bytes, key: str):
    message = Message.parse(section(0x74, content))

    with pytest.raises(DecodeError):
        message.edit_application_properties({}, [key])

    assert message.application_properties == section(0x74, content)


def test_removing_an_undecodable_value_is_an_error():
    elements = [encode("a"), BROKEN, encode("b"), encode(1)]
    message = Message.parse(section(0x74, compound8(0xC1, elements)))

    with pytest.raises(DecodeError):
        message.edit_application_properties({}, ["a"])
    with pytest.raises(DecodeError):
        message.edit_application_properties({"a": 1})


def test_edits_of_four_sections_leave_the_others_unchanged():
    body = b"".join(section(0x75, encode(bytes(n))) for n in range(5))
    footer = section(0x78, compound32(0xC1, []), "long symbol")
    delivery = section(0x71, compound32(0xC1, []), "ulong")
    message = Message.parse(
        b"".join([*EVERY_SECTION[:1], delivery, *EVERY_SECTION[2:5]]) + body + footer
    )

    message.edit_header({TTL: ttl_field(90_000)})
    message.edit_message_annotations({Symbol("x-opt-new"): 1}, ["x-opt-m"])
    message.edit_properties({GROUP_ID: None, MESSAGE_ID: "new"})
    message.edit_application_properties({"size": "large"}, ["color"])

    parsed = Message.parse(message.encode())
    assert parsed.read_header() == Header(durable=True, priority=7, ttl=90_000)
    assert parsed.delivery_annotations == delivery
    assert same(parsed.read_message_annotations(), {Symbol("x-opt-new"): 1})
    assert parsed.read_properties() == Properties("new", to="to")
    assert same(parsed.read_application_properties(), {"size": "large"})
    assert parsed.body == body
    assert parsed.footer == footer
