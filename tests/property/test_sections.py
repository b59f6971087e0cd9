"""Messages with random values, edits compared with a model, and random data."""

import uuid
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.batch import make_batch, size_in_batch, split_batch
from pairbus.amqp.decode import decode, skip_value
from pairbus.amqp.encode import encode
from pairbus.amqp.section_edit import EncodedKeys
from pairbus.amqp.sections import (
    APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Header,
    Message,
    Properties,
)
from pairbus.amqp.types import Byte, Float32, Int32, Symbol, Timestamp, UByte, UInt, ULong, UShort
from pairbus.errors import DecodeError
from tests.unit.amqp.same import same

# Values, and their valid encodings, which are not always the smallest.

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.one_of(st.sampled_from(["a", "b", "color", "größe", ""]), texts)
ascii_names = st.one_of(
    st.sampled_from(["x-opt-a", "x-opt-b", "x"]), st.text("abcdefgh-", max_size=8)
)
simple = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(0, 255).map(UByte),
    st.integers(0, 65535).map(UShort),
    st.integers(-128, 127).map(Byte),
    st.integers(-(2**31), 2**31 - 1).map(Int32),
    st.floats(width=64, allow_nan=False),
    st.floats(width=32, allow_nan=False).map(Float32),
    st.integers(-(2**63), 2**63 - 1).map(Timestamp),
    st.uuids(),
    st.binary(max_size=300),
    texts,
    ascii_names.map(Symbol),
)
values = st.recursive(
    simple,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)


def widened(raw: bytes) -> bytes:
    """Return a longer valid encoding of the value, if there is one."""
    code, rest = raw[0], raw[1:]
    if code in (0xA0, 0xA1, 0xA3):
        return bytes((code + 0x10,)) + rest[0].to_bytes(4, "big") + rest[1:]
    if code in (0xC0, 0xC1):
        size, count = (rest[0] + 3).to_bytes(4, "big"), rest[1].to_bytes(4, "big")
        return bytes((code + 0x10,)) + size + count + rest[2:]
    if code in (0x41, 0x42):
        return b"\x56" + (b"\x01" if code == 0x41 else b"\x00")
    if code in (0x43, 0x52):
        return b"\x70" + rest.rjust(4, b"\x00")
    if code in (0x44, 0x53):
        return b"\x80" + rest.rjust(8, b"\x00")
    if code == 0x55:
        return b"\x81" + rest.rjust(8, b"\xff" if rest[0] & 0x80 else b"\x00")
    if code == 0x45:
        return b"\xc0\x01\x00"
    return raw


def written(value: Any) -> st.SearchStrategy[bytes]:
    raw = encode(value)
    return st.sampled_from([raw, widened(raw)])


written_values = values.flatmap(written)


class Entry(NamedTuple):
    key: str
    raw_key: bytes
    raw_value: bytes


def entries(keys: st.SearchStrategy[str]) -> st.SearchStrategy[list[Entry]]:
    def entry(key: str) -> st.SearchStrategy[Entry]:
        return st.builds(Entry, st.just(key), written(key), written_values)

    unique = st.lists(keys, max_size=5, unique=True)
    return unique.flatmap(lambda unique_keys: st.tuples(*map(entry, unique_keys)).map(list))


def described(code: int, name: str) -> st.SearchStrategy[bytes]:
    encodings = (encode(ULong(code)), widened(encode(ULong(code))), encode(Symbol(name)))
    return st.sampled_from([b"\x00" + encoding for encoding in encodings])


def compound(small: int, parts: list[bytes], wide: bool) -> bytes:
    body = b"".join(parts)
    if not wide and len(body) < 255:
        return bytes((small, len(body) + 1, len(parts))) + body
    size, count = (len(body) + 4).to_bytes(4, "big"), len(parts).to_bytes(4, "big")
    return bytes((small + 0x10,)) + size + count + body


@st.composite
def map_sections(draw: st.DrawFn, code: int, name: str, keys: Any) -> tuple[bytes, list[Entry]]:
    entries_drawn = draw(entries(keys))
    parts = [part for entry in entries_drawn for part in (entry.raw_key, entry.raw_value)]
    return draw(described(code, name)) + compound(0xC1, parts, draw(st.booleans())), entries_drawn


application_properties = map_sections(
    APPLICATION_PROPERTIES, "amqp:application-properties:map", names
)
message_annotations = map_sections(
    MESSAGE_ANNOTATIONS, "amqp:message-annotations:map", ascii_names.map(Symbol)
)

headers = st.builds(
    Header,
    durable=st.booleans(),
    priority=st.integers(0, 255),
    ttl=st.none() | st.integers(0, 2**32 - 1),
    first_acquirer=st.booleans(),
    delivery_count=st.integers(0, 2**32 - 1),
)
ids = st.one_of(texts, st.uuids(), st.integers(0, 2**64 - 1).map(ULong), st.binary(max_size=20))
property_fields: list[st.SearchStrategy[Any]] = [
    ids,
    st.binary(max_size=20),
    texts,
    texts,
    texts,
    ids,
    ascii_names.map(Symbol),
    ascii_names.map(Symbol),
    st.integers(0, 2**62).map(Timestamp),
    st.integers(0, 2**62).map(Timestamp),
    texts,
    st.integers(0, 2**32 - 1).map(UInt),
    texts,
]
properties = st.tuples(*(st.none() | field for field in property_fields)).map(
    lambda fields: Properties(*fields)
)
maps = st.dictionaries(names, values, max_size=4)
annotation_maps = st.dictionaries(ascii_names.map(Symbol), values, max_size=4)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    body: dict[str, Any] = draw(
        st.one_of(
            st.binary(max_size=600).map(lambda data: {"data": data}),
            st.lists(values, max_size=3).map(lambda items: {"sequence": items}),
            values.map(lambda value: {"value": value}),
        )
    )
    return Message.build(
        header=draw(st.none() | headers),
        message_annotations=draw(st.none() | annotation_maps),
        properties=draw(st.none() | properties),
        application_properties=draw(st.none() | maps),
        **body,
    )


@given(messages())
def test_parsed_message_is_encoded_unchanged(built: Message):
    data = built.encode()

    message = Message.parse(data)

    assert message.encode() == data
    for slot in Message.__slots__:
        assert getattr(message, slot) == getattr(built, slot)


@given(headers, properties, annotation_maps, maps, values)
def test_built_message_is_read_with_its_values(
    header: Header,
    props: Properties,
    annotations: dict[Any, Any],
    application: dict[str, Any],
    value: Any,
):
    built = Message.build(
        header=header,
        properties=props,
        message_annotations=annotations,
        application_properties=application,
        value=value,
    )

    message = Message.parse(built.encode())

    assert message.read_header() == header
    assert message.read_properties() == props
    assert same(message.read_message_annotations(), annotations)
    assert same(message.read_application_properties(), application)
    assert same(message.read_value(), value)


@given(
    application_properties,
    st.dictionaries(names, values, max_size=4),
    st.lists(names, max_size=3),
    st.booleans(),
)
def test_edited_application_properties_match_a_model(
    section: tuple[bytes, list[Entry]], put: dict[str, Any], remove: list[str], ready: bool
):
    data, entries_drawn = section
    message = Message.parse(data)

    taken = message.edit_application_properties(put, EncodedKeys(remove) if ready else remove)

    check_map(message.application_properties, data, entries_drawn, put, remove, taken)
    assert Message.parse(message.encode()).encode() == message.encode()


@given(
    message_annotations,
    st.dictionaries(ascii_names.map(Symbol), values, max_size=4),
    st.lists(ascii_names, max_size=3),
)
def test_edited_annotations_match_a_model(
    section: tuple[bytes, list[Entry]], put: dict[str, Any], remove: list[str]
):
    data, entries_drawn = section
    message = Message.parse(data)

    taken = message.edit_message_annotations(put, remove)

    check_map(message.message_annotations, data, entries_drawn, put, remove, taken)


def check_map(
    result: bytes,
    before: bytes,
    entries_drawn: list[Entry],
    put: dict[str, Any],
    remove: list[str],
    taken: dict[str, Any],
) -> None:
    """Return the expected section: named entries are removed, others kept, new ones added."""
    removed = {
        entry.key: entry for entry in entries_drawn if entry.key in put or entry.key in remove
    }
    assert taken.keys() == removed.keys()
    for key, entry in removed.items():
        assert same(taken[key], decode(entry.raw_value)[0])
    if not removed and not put:
        assert result == before
        return
    parts = [
        part
        for entry in entries_drawn
        if entry.key not in removed
        for part in (entry.raw_key, entry.raw_value)
    ]
    for key, value in put.items():
        parts += [encode(key), encode(value)]
    assert elements_of(result) == parts


def elements_of(section: bytes) -> list[bytes]:
    """Return the bytes of each element of a section."""
    if not section:
        return []
    constructor = section[3]
    pos = 6 if constructor in (0xC0, 0xC1) else 12
    assert constructor in (0xC0, 0xC1, 0xD0, 0xD1)
    elements = []
    while pos < len(section):
        end = skip_value(section, pos)
        elements.append(section[pos:end])
        pos = end
    count = section[5] if constructor in (0xC0, 0xC1) else int.from_bytes(section[8:12], "big")
    assert count == len(elements)
    return elements


@st.composite
def property_sections(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """Return properties with up to 13 fields, including trailing nulls."""
    count = draw(st.integers(0, 13))
    fields = [draw((st.none() | field).flatmap(written)) for field in property_fields[:count]]
    head = draw(described(PROPERTIES, "amqp:properties:list"))
    return head + compound(0xC0, fields, draw(st.booleans())), fields


@st.composite
def property_edits(draw: st.DrawFn) -> dict[int, Any]:
    places = draw(st.lists(st.integers(0, 12), max_size=4, unique=True))
    return {place: draw(st.none() | property_fields[place]) for place in places}


@given(property_sections(), property_edits())
def test_edited_properties_match_a_model(section: tuple[bytes, list[bytes]], edits: dict[int, Any]):
    data, fields = section
    message = Message.parse(data)
    expected = dict(enumerate(fields)) | {place: encode(value) for place, value in edits.items()}

    message.edit_properties(edits)

    model = without_nulls(expected)
    if message.properties == data:
        assert without_nulls(dict(enumerate(fields))) == model
    else:
        assert without_nulls(dict(enumerate(elements_of(message.properties)))) == model
    read = message.read_properties()
    values_read = [getattr(read, name) for name in Properties.__dataclass_fields__]
    assert {place: value for place, value in enumerate(values_read) if value is not None} == {
        place: decode(raw)[0] for place, raw in model.items()
    }


def without_nulls(fields: dict[int, bytes]) -> dict[int, bytes]:
    return {place: raw for place, raw in fields.items() if raw != b"\x40"}


@given(messages(), st.lists(st.uuids(), max_size=3))
def test_reverted_edits_leave_other_sections_unchanged(built: Message, keys: list[uuid.UUID]):
    data = built.encode()
    message = Message.parse(data)
    put = {f"new-{key}": 1 for key in keys}

    message.edit_application_properties(put)
    message.edit_message_annotations({Symbol(key): value for key, value in put.items()})
    message = Message.parse(message.encode())
    assert message.edit_application_properties({}, list(put)) == put
    assert message.edit_message_annotations({}, list(put)) == put

    before, after = Message.parse(data), Message.parse(message.encode())
    for slot in ("header", "delivery_annotations", "properties", "body", "footer"):
        assert getattr(after, slot) == getattr(before, slot)
    assert same(after.read_application_properties(), before.read_application_properties())
    assert same(after.read_message_annotations(), before.read_message_annotations())


@given(st.lists(st.binary(max_size=600), max_size=8))
def test_batch_is_split_into_its_messages(members: list[bytes]):
    batch = make_batch(members)

    assert split_batch(batch) == members
    assert len(batch) == sum(size_in_batch(len(member)) for member in members)


# Random data.


@st.composite
def broken_messages(draw: st.DrawFn) -> bytes:
    """Return a message with a few bytes changed, removed or inserted."""
    data = bytearray(draw(messages()).encode())
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


SECTION_STARTS = [bytes((0, 0x53, code)) for code in range(0x6F, 0x7A)]
CONTENT_STARTS = [b"\xc0", b"\xc1", b"\xd0\x00\x00\x00", b"\xd1\x00\x00\x00", b"\x45", b"\xa0"]
near_messages = st.lists(
    st.one_of(
        st.builds(
            lambda start, content, rest: start + content + rest,
            st.sampled_from(SECTION_STARTS),
            st.sampled_from(CONTENT_STARTS),
            st.binary(max_size=12),
        ),
        st.binary(max_size=8),
    ),
    max_size=5,
).map(b"".join)


@given(st.one_of(st.binary(max_size=60), near_messages, broken_messages()))
def test_any_data_raises_only_decode_errors(data: bytes):
    attempt(lambda: split_batch(data))
    message = attempt(lambda: Message.parse(data))
    if message is None:
        return
    assert len(message.encode()) == len(data)
    for read in (
        message.read_header,
        message.read_properties,
        message.read_message_annotations,
        message.read_application_properties,
        message.read_body,
        message.read_value,
    ):
        attempt(read)
    before = message.encode()
    for edit in (
        lambda: message.edit_header({0: True, 2: UInt(5)}),
        lambda: message.edit_properties({0: None, 10: "g"}),
        lambda: message.edit_message_annotations({Symbol("x"): 1}, ["y"]),
        lambda: message.edit_application_properties({"a": 1}, ["color"]),
        lambda: message.edit_application_properties({}, EncodedKeys(["a"])),
    ):
        if attempt(lambda edit=edit: (edit(), True)) is None:
            assert message.encode() == before
        before = message.encode()
    assert Message.parse(message.encode()).encode() == message.encode()


def attempt(call: Any) -> Any:
    try:
        return call()
    except DecodeError:
        return None
