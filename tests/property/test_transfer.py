"""Random messages in the backlog format and restored, and bytes that are not messages."""

from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus import transfer
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
)
from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.types import Symbol, Timestamp, UByte, UInt, ULong
from pairbus.emulator.entities import message_codec
from pairbus.errors import DecodeError, NotTransferable, ReservedProperty
from pairbus.servicebus.application_properties import ALIASES
from pairbus.servicebus.message_states import ACTIVE
from pairbus.transfer import from_backlog, to_backlog
from tests.property.amqp_values import scalars
from tests.unit.amqp.same import same

SCHEDULE = Symbol("x-opt-scheduled-enqueue-time")
ENQUEUED = 1_700_000_000_000

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
paths = st.text("abc/-ä", min_size=1, max_size=40)
ids = st.one_of(texts, st.uuids(), st.integers(0, 2**64 - 1).map(ULong), st.binary(max_size=20))
times = st.integers(0, 2**62).map(Timestamp)
names = st.one_of(st.sampled_from(["a", "größe", "x-ms-pathe", "x-ms-"]), texts).filter(
    lambda name: name not in ALIASES  # Hypothesis also generates strings of the code
)
annotation_names = st.one_of(
    st.sampled_from(["x-opt-partition-key", "x-opt-via-partition-key", "x-opt-mine"]),
    st.text("abcdefgh-", max_size=8),
)
property_fields: list[st.SearchStrategy[Any]] = [
    ids,
    st.binary(max_size=20),
    texts,
    texts,
    texts,
    ids,
    st.text("abc/", max_size=8).map(Symbol),
    st.text("abc/", max_size=8).map(Symbol),
    times,
    times,
    texts,
    st.integers(0, 2**32 - 1).map(UInt),
    texts,
]
header_fields: list[st.SearchStrategy[Any]] = [
    st.booleans(),
    st.integers(0, 255).map(UByte),
    st.sampled_from([0, 1, 255, 256, 2**32 - 1]).map(UInt) | st.integers(0, 2**32 - 1).map(UInt),
    st.booleans(),
]
values = st.one_of(
    scalars, st.lists(scalars, max_size=3), st.dictionaries(texts, scalars, max_size=3)
)
bodies = st.one_of(
    st.lists(st.binary(max_size=300), max_size=3).map(lambda items: body(DATA, items)),
    st.lists(st.lists(scalars, max_size=3), max_size=2).map(lambda items: body(SEQUENCE, items)),
    values.map(lambda value: body(VALUE, [value])),
)


def section(code: int, value: Any) -> bytes:
    return b"\x00" + encode(ULong(code)) + encode(value)


def body(code: int, items: list[Any]) -> bytes:
    return b"".join(section(code, item) for item in items)


def fields(choices: list[st.SearchStrategy[Any]]) -> st.SearchStrategy[list[Any]]:
    """Return the fields of a list: all of them, with nulls, as the SDK writes it, or fewer."""
    whole = st.tuples(*(st.none() | choice for choice in choices)).map(list)
    return st.tuples(whole, st.integers(0, len(choices))).map(lambda cut: cut[0][: cut[1]]) | whole


annotations = st.dictionaries(annotation_names.map(Symbol), scalars, max_size=4)


@st.composite
def messages(draw: st.DrawFn, *, timed: bool = True) -> bytes:
    """Return any message that Service Bus accepts; its schedule, if any, is the first
    annotation."""
    message = Message()
    header = draw(fields(header_fields))
    properties = draw(fields(property_fields))
    if not timed:
        header[2:] = []
    entries = draw(st.none() | times.map(lambda when: {SCHEDULE: when}))
    others = draw(annotations)
    if any(field is not None for field in header):
        message.header = section(HEADER, header)
    if properties:
        message.properties = section(PROPERTIES, properties)
    if entries or others:
        message.message_annotations = section(MESSAGE_ANNOTATIONS, (entries or {}) | others)
    if application := draw(st.dictionaries(names, scalars, max_size=5)):
        message.application_properties = section(APPLICATION_PROPERTIES, application)
    if delivery := draw(annotations):
        message.delivery_annotations = section(DELIVERY_ANNOTATIONS, delivery)
    message.body = draw(bodies)
    if footer := draw(annotations):
        message.footer = section(FOOTER, footer)
    return message.encode()


def received(payload: bytes, deliveries: int) -> bytes:
    stored = message_codec.to_stored(
        message_codec.parse_message(payload), 17, ACTIVE, ENQUEUED, None
    )
    stored.deliveries = deliveries
    return message_codec.encode_deliveries([stored], [bytes(range(16))], ENQUEUED + 60_000)[0]


def fields_of(message: Message) -> list[Any]:
    read = message.read_properties()
    return [getattr(read, name) for name in Properties.__dataclass_fields__]


def check_restored(before: bytes, after: bytes) -> None:
    """Check that all sections are equal, except derived times and nulls at the end of lists."""
    original, restored = Message.parse(before), Message.parse(after)
    assert restored.read_header() == original.read_header()
    expected = fields_of(original)
    if original.read_header().ttl:
        expected[8:10] = [None, None]
    assert same(fields_of(restored), expected)
    for name in ("message_annotations", "application_properties", "delivery_annotations"):
        assert getattr(restored, name) == getattr(original, name), name
    assert (restored.body, restored.footer) == (original.body, original.footer)


@pytest.mark.rule("S6", "Y3")
@given(messages(), paths, st.integers(0, 2**32 - 1))
def test_restored_message_equals_the_message_that_was_sent(sent: bytes, path: str, deliveries: int):
    stored = to_backlog(sent, path)

    for back in (from_backlog(stored), from_backlog(received(stored, deliveries))):
        assert back.path == path
        check_restored(sent, back.payload)
        read = Message.parse(back.payload)
        assert back.session == read.read_properties().group_id
        assert back.ttl_ms == read.read_header().ttl
        assert back.scheduled_ms == read.read_message_annotations().get(SCHEDULE)
        assert same(back.message_id, read.read_properties().message_id)


@pytest.mark.rule("S6", "Y3")
@given(messages(timed=False), paths)
def test_message_without_a_time_to_live_is_restored_byte_for_byte(sent: bytes, path: str):
    assert from_backlog(to_backlog(sent, path)).payload == sent


@pytest.mark.rule("S6")
@given(messages(), paths, st.none() | st.integers(-(2**63), 2**63 - 1))
def test_message_in_the_backlog_has_no_time_to_live_schedule_or_session(
    sent: bytes, path: str, scheduled: int | None
):
    stored = Message.parse(to_backlog(sent, path, scheduled_ms=scheduled))

    original = Message.parse(sent)
    taken = stored.edit_application_properties({}, ALIASES)
    session, ttl = original.read_properties().group_id, original.read_header().ttl
    when = original.read_message_annotations().get(SCHEDULE)
    when = when if scheduled is None else Timestamp(scheduled)
    expected = {
        "x-ms-sessionid": session,
        "x-ms-timetolive": None if ttl is None else int(ttl),
        "x-ms-scheduledenqueuetimeutc": when,
        "x-ms-path": path,
    }
    assert same(taken, {name: value for name, value in expected.items() if value is not None})
    assert stored.read_header().ttl is None
    assert stored.read_properties().group_id is None
    assert SCHEDULE not in stored.read_message_annotations()
    assert stored.application_properties == original.application_properties


@pytest.mark.rule("Y3")
@given(
    st.integers(0, 2**32 - 1),
    st.none() | st.integers(ENQUEUED - 10**6, ENQUEUED + 10**6),
    st.integers(ENQUEUED - 10**6, ENQUEUED + 2**33),
)
def test_remaining_time_to_live_is_between_zero_and_the_original(
    ttl: int, scheduled: int | None, now: int
):
    message = Message.build(data=b"")
    message.edit_header({2: UInt(ttl)})
    stored = received(to_backlog(message.encode(), "q", scheduled_ms=scheduled), 1)

    back = from_backlog(stored, now_ms=now)

    begin = ENQUEUED if scheduled is None else max(ENQUEUED, scheduled)
    assert back.ttl_ms == min(ttl, max(begin + ttl - now, 0))
    assert back.expired == (back.ttl_ms == 0)
    assert Message.parse(back.payload).read_header().ttl == back.ttl_ms


# Arbitrary bytes.


@st.composite
def broken_messages(draw: st.DrawFn) -> bytes:
    """Return a message of the backlog with a few bytes changed, removed or inserted."""
    data = bytearray(to_backlog(draw(messages()), "queue", scheduled_ms=5))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


aliases = st.dictionaries(
    st.sampled_from([*ALIASES, *map(Symbol, ALIASES), "x"]), values, max_size=5
).map(lambda entries: section(APPLICATION_PROPERTIES, entries))


@pytest.mark.rule("Y5")
@given(st.one_of(st.binary(max_size=60), broken_messages(), aliases))
def test_arbitrary_bytes_are_restored_or_refused_with_a_reason(data: bytes):
    reason, back = None, None
    try:
        back = from_backlog(data, now_ms=ENQUEUED)
    except NotTransferable as exc:
        reason = exc.reason, len(str(exc)) < 200
    except DecodeError:
        reason = "DecodeError", True

    if back is not None:
        assert back.path
        Message.parse(back.payload)
    else:
        assert reason in product(("MissingPath", "WrongAlias", "DecodeError"), [True])
    with suppress(DecodeError, ReservedProperty):
        Message.parse(to_backlog(data, "queue"))


@st.composite
def frequent_messages(draw: st.DrawFn) -> bytes:
    """Return a message as most applications send it: one data section, no header, no annotations
    and mostly no session."""
    fields_of_properties = [draw(st.none() | choice) for choice in property_fields]
    if draw(st.integers(0, 9)):
        fields_of_properties[10] = None
    message = Message()
    message.properties = section(PROPERTIES, fields_of_properties)
    if application := draw(st.dictionaries(names | st.sampled_from(ALIASES), scalars, max_size=5)):
        message.application_properties = section(APPLICATION_PROPERTIES, application)
    message.body = body(DATA, [draw(st.binary(max_size=300))])
    return message.encode()


@given(frequent_messages(), paths, st.lists(st.tuples(st.integers(0), st.integers(0, 255))))
def test_a_frequent_message_is_written_like_any_other(
    payload: bytes, path: str, damage: list[tuple[int, int]]
):
    damaged = bytearray(payload)
    for position, value in damage:
        damaged[position % len(damaged)] = value
    frequent = result_of(bytes(damaged), path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "_append_path", lambda payload, alias: None)
        assert frequent == result_of(bytes(damaged), path)


def result_of(payload: bytes, path: str) -> bytes | str:
    """Return a message in the backlog format, or the error."""
    try:
        return to_backlog(payload, path)
    except (DecodeError, ReservedProperty) as exc:
        return repr(exc)
