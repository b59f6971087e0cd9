"""Messages of the real SDK, written to the backlog format and restored from it."""

import datetime
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._common.utils import transform_outbound_messages
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

from pairbus import transfer
from pairbus.amqp.section_edit import read_fields
from pairbus.amqp.sections import (
    ABSOLUTE_EXPIRY_TIME,
    CREATION_TIME,
    DELIVERY_COUNT,
    DURABLE,
    GROUP_ID,
    TTL,
    Header,
    Message,
    Properties,
)
from pairbus.amqp.types import Described, Float32, Int32, Symbol, Timestamp, UInt, ULong
from pairbus.emulator.entities import message_codec
from pairbus.errors import DecodeError, EncodeError, NotTransferable, ReservedProperty
from pairbus.servicebus.application_properties import ALIASES
from pairbus.servicebus.message_states import ACTIVE
from pairbus.transfer import TransferredMessage, from_backlog, reserved_name, to_backlog
from tests.unit.amqp.same import same

PATH = "orders/incoming"
WHEN = datetime.datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.UTC)
WHEN_MS = 1_893_553_445_678
ENQUEUED = 1_700_000_000_000
MINUTE = datetime.timedelta(minutes=1)
SCHEDULE = "x-opt-scheduled-enqueue-time"


def plain(message: Any) -> bytes:
    """Return the bytes that the SDK's sender would send."""
    outgoing = transform_outbound_messages(
        message, ServiceBusMessage, PyamqpTransport.to_outgoing_amqp_message
    )
    return bytes(PyamqpTransport.encode_message(outgoing))


def received(payload: bytes, deliveries: int = 1) -> bytes:
    """Return the bytes that a receiver gets of a message in a queue of the emulator."""
    stored = message_codec.to_stored(
        message_codec.parse_message(payload), 17, ACTIVE, ENQUEUED, None
    )
    stored.deliveries = deliveries
    return message_codec.encode_deliveries([stored], [bytes(range(16))], ENQUEUED + 60_000)[0]


def aliases_of(payload: bytes) -> dict[str, Any]:
    properties = Message.parse(payload).read_application_properties()
    return {name: value for name, value in properties.items() if name in ALIASES}


def without_derived_times(payload: bytes) -> bytes:
    message = Message.parse(payload)
    if message.read_header().ttl:
        count = len(message.properties)
        message.edit_properties({ABSOLUTE_EXPIRY_TIME: None, CREATION_TIME: None})
        assert len(message.properties) < count
    return message.encode()


def check_same(after: bytes, before: bytes) -> None:
    """Check that all fields have the same values and AMQP types; maps may differ in order."""
    a, b = Message.parse(after), Message.parse(before)
    assert a.read_header() == b.read_header()
    assert same(fields_of(a), fields_of(b))
    assert same(sorted_map(a.read_message_annotations()), sorted_map(b.read_message_annotations()))
    for name in ("delivery_annotations", "application_properties", "body", "footer"):
        assert getattr(a, name) == getattr(b, name), name


def fields_of(message: Message) -> list[Any]:
    read = message.read_properties()
    return [getattr(read, name) for name in Properties.__dataclass_fields__]


def sorted_map(entries: dict[Any, Any]) -> list[Any]:
    return sorted(entries.items(), key=lambda entry: str(entry[0]))


def in_backlog(changes: dict[str, Any] | None = None, **sections: Any) -> bytes:
    """Return a message for PATH in the backlog format, with changed application properties."""
    properties = {"x-ms-path": PATH} | (changes or {})
    kept = {name: value for name, value in properties.items() if value is not ...}
    return Message.build(application_properties=kept, data=b"body", **sections).encode()


# Messages of the SDK, each with one property that must survive.

EVERY_PROPERTY: dict[str | bytes, Any] = {
    "int": 42,
    "negative": -7,
    "float": 1.5,
    "bool": True,
    "str": "größe",
    "bytes": b"text",
    b"key as bytes": "value",
    "uuid": uuid.UUID(int=7),
    "datetime": WHEN,
    "none": None,
    "long text": "x" * 300,
    "decimal": Decimal("1.5e-40"),  # The service encodes others, which .NET can hold, anew.
    "x-ms-other": "not an alias",
    "alias as value": "x-ms-path",
}
PLAIN: dict[str, Callable[[], Any]] = {
    "bytes": lambda: ServiceBusMessage(b"body"),
    "text": lambda: ServiceBusMessage("body"),
    "no body": lambda: ServiceBusMessage(None),
    "empty body": lambda: ServiceBusMessage(b""),
    "large body": lambda: ServiceBusMessage(b"x" * 100_000),
    "a dict": lambda: {"body": b"body", "subject": "s"},
    "data": lambda: AmqpAnnotatedMessage(data_body=[b"one", b"", b"three"]),
    "sequence": lambda: AmqpAnnotatedMessage(sequence_body=[1, "two", [3.0], None]),
    "value": lambda: AmqpAnnotatedMessage(value_body={"a": [1, b"b", None]}),
    "every application property": lambda: ServiceBusMessage(
        b"body", application_properties=dict(EVERY_PROPERTY)
    ),
    "ids and addresses": lambda: ServiceBusMessage(
        b"body",
        message_id="id",
        correlation_id="correlation",
        subject="subject",
        content_type="application/json",
        to="to",
        reply_to="reply",
        reply_to_session_id="reply session",
        partition_key="partition",
    ),
    "every property of AMQP": lambda: AmqpAnnotatedMessage(
        data_body=b"body",
        properties=AmqpMessageProperties(
            message_id=uuid.UUID(int=9),
            user_id=b"user",
            to=b"to",
            subject=b"subject",
            correlation_id=b"binary",
            reply_to=b"reply",
            content_type=b"type",
            content_encoding=b"gzip",
            creation_time=5,
            absolute_expiry_time=7,
            group_id=b"session",
            group_sequence=3,
            reply_to_group_id=b"other",
        ),
    ),
    "header": lambda: AmqpAnnotatedMessage(
        data_body=b"body", header=AmqpMessageHeader(durable=True, priority=9, first_acquirer=True)
    ),
    "annotations": lambda: AmqpAnnotatedMessage(
        data_body=b"body",
        annotations={
            "x-opt-partition-key": "p",
            "x-opt-via-partition-key": "v",
            b"x-opt-mine": 5,
            "x-opt-when": WHEN,
        },
    ),
    "delivery annotations and footer": lambda: AmqpAnnotatedMessage(
        data_body=b"body", delivery_annotations={"x-opt-d": 1}, footer={"x-opt-f": "2"}
    ),
    "session": lambda: ServiceBusMessage(b"body", session_id="s", partition_key="s"),
    "empty session": lambda: ServiceBusMessage(b"body", session_id=""),
    "long session": lambda: ServiceBusMessage(b"body", session_id="ß" * 128),
    "time-to-live": lambda: ServiceBusMessage(b"body", time_to_live=MINUTE),
    "short time-to-live": lambda: AmqpAnnotatedMessage(
        data_body=b"body", header=AmqpMessageHeader(time_to_live=1)
    ),
    "longest time-to-live": lambda: AmqpAnnotatedMessage(
        data_body=b"body", header=AmqpMessageHeader(time_to_live=2**32 - 1)
    ),
    "no time to live": lambda: ServiceBusMessage(b"body", time_to_live=datetime.timedelta(0)),
    "schedule": lambda: ServiceBusMessage(b"body", scheduled_enqueue_time_utc=WHEN),
    "schedule before 1970": lambda: ServiceBusMessage(
        b"body", scheduled_enqueue_time_utc=WHEN.replace(year=1960)
    ),
    "schedule among annotations": lambda: AmqpAnnotatedMessage(
        data_body=b"body", annotations={"x-opt-a": 1, SCHEDULE: WHEN, "x-opt-b": 2}
    ),
    "all of it": lambda: ServiceBusMessage(
        b"body",
        session_id="s",
        partition_key="s",
        time_to_live=MINUTE,
        scheduled_enqueue_time_utc=WHEN,
        application_properties=dict(EVERY_PROPERTY),
    ),
}
each_plain = pytest.mark.parametrize("make", PLAIN.values(), ids=PLAIN.keys())


@pytest.mark.rule("S6", "Y3")
@each_plain
def test_restored_message_is_the_one_that_the_sdk_would_have_sent(
    make: Callable[[], Any],
):
    sent = plain(make())

    direct = from_backlog(to_backlog(sent, PATH))
    through_a_queue = from_backlog(received(to_backlog(sent, PATH), deliveries=3))

    assert direct.path == through_a_queue.path == PATH
    assert through_a_queue.payload == direct.payload
    check_same(direct.payload, without_derived_times(sent))


@pytest.mark.rule("S6", "Y3")
@pytest.mark.parametrize(
    "name",
    [
        name
        for name in PLAIN
        if "time-to-live" not in name
        and name
        not in ("all of it", "schedule among annotations", "delivery annotations and footer")
    ],
)
def test_message_without_derived_times_is_restored_byte_for_byte(name: str):
    sent = plain(PLAIN[name]())

    assert from_backlog(to_backlog(sent, PATH)).payload == sent
    assert from_backlog(received(to_backlog(sent, PATH))).payload == sent


@pytest.mark.rule("S6", "Y3")
def test_message_with_all_properties_is_restored_byte_for_byte_except_derived_times():
    sent = Message.parse(plain(PLAIN["all of it"]()))

    back = Message.parse(from_backlog(received(to_backlog(sent.encode(), PATH))).payload)

    for name in ("header", "message_annotations", "application_properties", "body"):
        assert getattr(back, name) == getattr(sent, name), name
    times = {ABSOLUTE_EXPIRY_TIME, CREATION_TIME}
    for index, (after, before) in enumerate(zip(fields_of(back), fields_of(sent), strict=True)):
        assert (after, before is None) == (None, False) if index in times else same(after, before)


@pytest.mark.rule("S6")
@each_plain
def test_message_in_the_backlog_differs_by_its_aliases_only(make: Callable[[], Any]):
    sent = Message.parse(plain(make()))

    stored = Message.parse(to_backlog(sent.encode(), PATH))

    taken = stored.edit_application_properties({}, ALIASES)
    assert same(taken["x-ms-path"], PATH)
    for name in ("delivery_annotations", "application_properties", "body", "footer"):
        assert getattr(stored, name) == getattr(sent, name), name
    cleared = {GROUP_ID: None}
    if sent.read_header().ttl:
        cleared |= {ABSOLUTE_EXPIRY_TIME: None, CREATION_TIME: None}
    sent.edit_header({TTL: None})
    sent.edit_properties(cleared)
    sent.edit_message_annotations({}, [SCHEDULE])
    assert stored.read_header() == sent.read_header()
    assert same(fields_of(stored), fields_of(sent))
    assert stored.message_annotations == sent.message_annotations


@pytest.mark.rule("S6")
def test_aliases_have_exactly_these_names_and_amqp_types():
    sent = plain(PLAIN["all of it"]())

    assert same(
        aliases_of(to_backlog(sent, PATH)),
        {
            "x-ms-sessionid": "s",
            "x-ms-timetolive": 60_000,
            "x-ms-scheduledenqueuetimeutc": Timestamp(WHEN_MS),
            "x-ms-path": PATH,
        },
    )
    assert sorted(ALIASES) == sorted(aliases_of(to_backlog(sent, PATH)))


@pytest.mark.rule("S6")
def test_message_without_these_properties_has_the_path_alias_only():
    assert aliases_of(to_backlog(plain(ServiceBusMessage(b"body")), PATH)) == {"x-ms-path": PATH}


@pytest.mark.rule("S6")
@pytest.mark.parametrize("milliseconds", [1, 127, 128, 255, 256, 1500, 2**31, 2**32 - 1])
def test_time_to_live_is_kept_to_the_millisecond(milliseconds: int):
    header = AmqpMessageHeader(time_to_live=milliseconds)
    sent = plain(AmqpAnnotatedMessage(data_body=b"body", header=header))

    stored = to_backlog(sent, PATH)

    assert same(aliases_of(stored)["x-ms-timetolive"], milliseconds)
    assert from_backlog(stored).ttl_ms == milliseconds
    assert Message.parse(from_backlog(stored).payload).header == Message.parse(sent).header


@pytest.mark.rule("S6")
def test_times_of_the_sender_are_kept_without_a_time_to_live():
    sent = plain(PLAIN["every property of AMQP"]())

    read = Message.parse(to_backlog(sent, PATH)).read_properties()

    assert (read.creation_time, read.absolute_expiry_time) == (5, 7)


@pytest.mark.rule("S6", "S10")
def test_schedule_argument_replaces_the_schedule_of_the_message():
    sent = plain(ServiceBusMessage(b"body", scheduled_enqueue_time_utc=WHEN, partition_key="p"))

    stored = to_backlog(sent, PATH, scheduled_ms=WHEN_MS + 5)

    assert same(aliases_of(stored)["x-ms-scheduledenqueuetimeutc"], Timestamp(WHEN_MS + 5))
    assert Message.parse(stored).read_message_annotations() == {"x-opt-partition-key": "p"}
    assert from_backlog(stored).scheduled_ms == WHEN_MS + 5


@pytest.mark.rule("S6", "S10")
def test_schedule_argument_is_restored_as_the_sdk_would_have_set_it():
    message_id = "id"
    bare = plain(ServiceBusMessage(b"body", message_id=message_id))
    scheduled = ServiceBusMessage(b"body", message_id=message_id, scheduled_enqueue_time_utc=WHEN)

    back = from_backlog(to_backlog(bare, PATH, scheduled_ms=WHEN_MS))

    assert back.payload == plain(scheduled)


@pytest.mark.parametrize("value", [5, None, "2030-01-01"])
def test_schedule_that_is_not_a_timestamp_is_kept_and_has_no_effect(value: Any):
    sent = plain(AmqpAnnotatedMessage(data_body=b"body", annotations={SCHEDULE: value}))

    stored = to_backlog(sent, PATH)

    assert Message.parse(stored).message_annotations == Message.parse(sent).message_annotations
    back = from_backlog(stored)
    assert (back.payload, back.scheduled_ms) == (sent, None)
    replaced = to_backlog(sent, PATH, scheduled_ms=WHEN_MS)
    assert Message.parse(replaced).message_annotations == b""


def test_schedule_with_a_string_key_is_restored_with_a_symbol_key():
    sent = Message.build(message_annotations={SCHEDULE: Timestamp(5)}, data=b"body").encode()

    stored = to_backlog(sent, PATH)

    assert Message.parse(stored).message_annotations == b""
    back = Message.parse(from_backlog(stored).payload).read_message_annotations()
    assert same(back, {Symbol(SCHEDULE): Timestamp(5)})


def test_invalid_message_is_not_written_to_the_backlog_format():
    with pytest.raises(DecodeError):
        to_backlog(b"\x00\x53\x70\xc0\xff", PATH)
    with pytest.raises(EncodeError, match="path"):
        to_backlog(plain(ServiceBusMessage(b"body")), "")
    with pytest.raises(DecodeError, match="session"):
        to_backlog(edited(Message.edit_properties, {GROUP_ID: b"binary"}), PATH)
    with pytest.raises(DecodeError, match="time-to-live"):
        to_backlog(edited(Message.edit_header, {TTL: 5}), PATH)


def edited(edit: Callable[[Message, dict[int, Any]], None], fields: dict[int, Any]) -> bytes:
    message = Message.build(data=b"body")
    edit(message, fields)
    return message.encode()


# Reserved names.


@pytest.mark.rule("S7")
@pytest.mark.parametrize("name", ALIASES)
def test_alias_is_a_reserved_name_of_application_properties(name: str):
    assert reserved_name({"a": 1, name: 2}) == name
    assert reserved_name({b"a": 1, name.encode(): 2}) == name
    assert reserved_name(["a", name]) == name


@pytest.mark.rule("S7")
def test_other_names_are_not_reserved():
    assert reserved_name({}) is None
    assert reserved_name({"x-ms-other": 1, b"x-ms-": 2, "X-MS-PATH": 3, "x-ms-path ": 4}) is None


@pytest.mark.rule("S7")
@pytest.mark.parametrize("name", ALIASES)
def test_message_with_an_application_property_named_like_an_alias_is_refused(name: str):
    sent = plain(ServiceBusMessage(b"body", application_properties={"a": 1, name: "mine"}))

    with pytest.raises(ReservedProperty, match=name):
        to_backlog(sent, PATH)


# Restoring.


@pytest.mark.rule("Y3")
def test_restored_message_has_its_destination_session_and_times():
    sent = plain(PLAIN["all of it"]())
    message_id = Message.parse(sent).read_properties().message_id

    back = from_backlog(received(to_backlog(sent, PATH)))

    assert back == TransferredMessage(PATH, back.payload, "s", 60_000, WHEN_MS, ENQUEUED, False)
    assert back.message_id == message_id


@pytest.mark.rule("Y3")
def test_annotations_and_header_fields_of_the_backlog_are_removed():
    own = {Symbol("x-opt-partition-key"): "p", Symbol("x-opt-mine"): Int32(5)}
    added = {
        Symbol("x-opt-enqueued-time"): Timestamp(1),
        Symbol("x-opt-sequence-number"): 2,
        Symbol("x-opt-enqueue-sequence-number"): 3,
        Symbol("x-opt-locked-until"): Timestamp(4),
        Symbol("x-opt-message-state"): Int32(0),
        Symbol("x-opt-partition-id"): Int32(1),
        Symbol("x-opt-lock-token"): uuid.UUID(int=5),
    }
    stored = in_backlog(
        header=Header(durable=True, delivery_count=7, ttl=1_209_600_000),
        message_annotations=added | own,
    )

    back = Message.parse(from_backlog(stored).payload)

    assert same(back.read_message_annotations(), own)
    assert back.read_header() == Header(durable=True)


@pytest.mark.rule("Y3")
def test_sections_that_only_the_backlog_filled_are_removed():
    stored = in_backlog(
        header=Header(delivery_count=7),
        message_annotations={Symbol("x-opt-sequence-number"): 2},
    )

    back = Message.parse(from_backlog(stored).payload)

    assert (back.header, back.message_annotations, back.application_properties) == (b"", b"", b"")


@pytest.mark.rule("Y3")
def test_schedule_alias_replaces_a_schedule_annotation():
    stored = in_backlog(
        {"x-ms-scheduledenqueuetimeutc": Timestamp(5)},
        message_annotations={Symbol(SCHEDULE): Timestamp(6)},
    )

    back = Message.parse(from_backlog(stored).payload).read_message_annotations()

    assert same(back, {Symbol(SCHEDULE): Timestamp(5)})


@pytest.mark.rule("Y3")
def test_expiry_and_creation_times_are_removed_with_a_time_to_live():
    times = Properties(
        message_id="id", absolute_expiry_time=Timestamp(9), creation_time=Timestamp(8)
    )

    with_ttl = from_backlog(in_backlog({"x-ms-timetolive": 5}, properties=times))
    without = from_backlog(in_backlog(properties=times))

    assert Message.parse(with_ttl.payload).read_properties() == Properties(message_id="id")
    assert Message.parse(without.payload).read_properties() == times


def test_header_that_is_too_large_for_the_cache_is_restored():
    message = Message.parse(in_backlog({"x-ms-timetolive": 5}))
    message.edit_header({DURABLE: "x" * 100, DELIVERY_COUNT: UInt(3)})
    cached = transfer._with_ttl.cache_info().currsize

    back = Message.parse(from_backlog(message.encode()).payload)

    assert read_fields(back.header, range(5)) == ["x" * 100, None, 5, None, None]
    assert transfer._with_ttl.cache_info().currsize == cached


@pytest.mark.rule("Y3")
def test_full_time_to_live_is_restored_without_the_current_time():
    stored = received(to_backlog(plain(ServiceBusMessage(b"body", time_to_live=MINUTE)), PATH))

    back = from_backlog(stored)

    assert (back.ttl_ms, back.expired) == (60_000, False)


@pytest.mark.rule("Y3")
@pytest.mark.parametrize(
    ("passed", "left", "expired"),
    [
        (0, 60_000, False),
        (1, 59_999, False),
        (59_999, 1, False),
        (60_000, 0, True),
        (10**9, 0, True),
        (-5_000, 60_000, False),
    ],
)
def test_time_in_the_backlog_is_deducted_from_the_time_to_live(
    passed: int, left: int, expired: bool
):
    stored = received(to_backlog(plain(ServiceBusMessage(b"body", time_to_live=MINUTE)), PATH))

    back = from_backlog(stored, now_ms=ENQUEUED + passed)

    assert (back.ttl_ms, back.expired) == (left, expired)
    assert Message.parse(back.payload).read_header().ttl == left


@pytest.mark.rule("Y3")
def test_time_to_live_of_a_scheduled_message_runs_from_its_schedule():
    message = ServiceBusMessage(b"body", time_to_live=MINUTE, scheduled_enqueue_time_utc=WHEN)
    stored = received(to_backlog(plain(message), PATH))

    before = from_backlog(stored, now_ms=WHEN_MS - 1)
    after = from_backlog(stored, now_ms=WHEN_MS + 1_000)

    assert (before.ttl_ms, before.expired) == (60_000, False)
    assert (after.ttl_ms, after.expired) == (59_000, False)
    assert after.scheduled_ms == WHEN_MS


@pytest.mark.rule("Y3")
def test_message_without_a_time_to_live_never_expires():
    back = from_backlog(received(in_backlog()), now_ms=ENQUEUED + 10**15)

    assert (back.ttl_ms, back.expired) == (None, False)


@pytest.mark.parametrize("enqueued", [{}, {Symbol("x-opt-enqueued-time"): 5}])
def test_nothing_is_deducted_without_an_enqueued_time(enqueued: dict[Any, Any]):
    stored = in_backlog({"x-ms-timetolive": 5}, message_annotations=enqueued)

    back = from_backlog(stored, now_ms=ENQUEUED)

    assert (back.ttl_ms, back.enqueued_ms, back.expired) == (5, None, False)


def test_time_to_live_that_amqp_cannot_hold_becomes_the_longest():
    stored = received(in_backlog({"x-ms-timetolive": 922_337_203_685_477}))

    for back in (from_backlog(stored), from_backlog(stored, now_ms=ENQUEUED + 10**6)):
        assert back.ttl_ms == 2**32 - 1
        assert Message.parse(back.payload).read_header().ttl == 2**32 - 1


def test_aliases_in_any_encoding_and_any_order_are_read():
    wide_path = b"\xb1\x00\x00\x00\x01q"
    entries = [
        b"\xa1\x09x-ms-path" + wide_path,
        b"\xa1\x05other\x40",
        b"\xb1\x00\x00\x00\x0fx-ms-timetolive\x55\x07",
        b"\xa3\x0ex-ms-sessionid\xb1\x00\x00\x00\x01s",
    ]
    body = b"".join(entries)
    stored = b"\x00\x53\x74\xc1" + bytes((len(body) + 1, 8)) + body

    back = from_backlog(stored)

    assert (back.path, back.session, back.ttl_ms) == ("q", "s", 7)
    assert Message.parse(back.payload).read_application_properties() == {"other": None}


# Messages that cannot be restored.


@pytest.mark.rule("Y5")
@pytest.mark.parametrize("changes", [{"x-ms-path": ...}, {"x-ms-path": None}])
def test_message_without_a_path_is_not_transferable(changes: dict[str, Any]):
    with pytest.raises(NotTransferable, match="x-ms-path") as caught:
        from_backlog(in_backlog(changes | {"x-ms-sessionid": "s"}))

    assert caught.value.reason == transfer.MISSING_PATH == "MissingPath"


@pytest.mark.rule("Y5")
def test_message_without_application_properties_is_not_transferable():
    with pytest.raises(NotTransferable) as caught:
        from_backlog(plain(ServiceBusMessage(b"body")))

    assert caught.value.reason == "MissingPath"


@pytest.mark.rule("Y5")
@pytest.mark.parametrize(
    ("alias", "value"),
    [
        ("x-ms-path", ""),
        ("x-ms-path", b"queue"),
        ("x-ms-path", Symbol("queue")),
        ("x-ms-path", 5),
        ("x-ms-sessionid", b"s"),
        ("x-ms-sessionid", Symbol("s")),
        ("x-ms-sessionid", ["s"]),
        ("x-ms-sessionid", Described(ULong(5), "s")),
        ("x-ms-timetolive", Int32(5)),
        ("x-ms-timetolive", UInt(5)),
        ("x-ms-timetolive", ULong(5)),
        ("x-ms-timetolive", Timestamp(5)),
        ("x-ms-timetolive", True),
        ("x-ms-timetolive", 5.0),
        ("x-ms-timetolive", "5"),
        ("x-ms-timetolive", -1),
        ("x-ms-timetolive", -(2**63)),
        ("x-ms-scheduledenqueuetimeutc", 5),
        ("x-ms-scheduledenqueuetimeutc", 2**40),
        ("x-ms-scheduledenqueuetimeutc", Float32(5)),
        ("x-ms-scheduledenqueuetimeutc", "2030-01-01T00:00:00Z"),
    ],
)
def test_alias_of_a_wrong_type_or_value_is_not_transferable(alias: str, value: Any):
    with pytest.raises(NotTransferable, match=alias) as caught:
        from_backlog(in_backlog({alias: value}))

    assert caught.value.reason == transfer.WRONG_ALIAS == "WrongAlias"


@pytest.mark.rule("Y5")
def test_error_of_a_wrong_alias_names_both_types_and_is_short():
    with pytest.raises(NotTransferable) as caught:
        from_backlog(in_backlog({"x-ms-timetolive": Int32(5)}))
    assert str(caught.value) == "x-ms-timetolive must be a long, but is int 5"

    with pytest.raises(NotTransferable) as caught:
        from_backlog(in_backlog({"x-ms-sessionid": b"x" * 60_000}))
    assert len(str(caught.value)) < 120


@pytest.mark.rule("Y5")
@pytest.mark.parametrize(
    "alias", ["x-ms-sessionid", "x-ms-timetolive", "x-ms-scheduledenqueuetimeutc"]
)
def test_alias_that_is_null_is_not_set(alias: str):
    back = from_backlog(in_backlog({alias: None}))

    assert back[2:] == (None, None, None, None, False)


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff",
        b"\x00\x53\x74\xc1\x03\x02\xa1",
        b"\x00\x53\x74\xc1\x0d\x02\xa1\x09x-ms-path\xff",
        b"\x00\x53\x74\xc1\x0f\x02\xa1\x09x-ms-path\xa1\x01\xff",
        b"\x00\x53\x74\xc1\x19\x04" + b"\xa1\x09x-ms-path\x40" * 2,
        b"\x00\x53\x73\xc0\x0b\x09"
        + b"\x40" * 8
        + b"\xa1\x05"
        + in_backlog({"x-ms-timetolive": 5}),
    ],
)
def test_bytes_that_are_not_a_message_are_not_restored(payload: bytes):
    with pytest.raises(DecodeError):
        from_backlog(payload)


# Behaviour of the SDK that this module relies on.


def test_sdk_refuses_a_time_to_live_that_amqp_cannot_hold():
    with pytest.raises(ValueError, match="unsigned int"):
        plain(ServiceBusMessage(b"body", time_to_live=datetime.timedelta(days=50)))


def test_sdk_writes_the_keys_of_annotations_as_symbols_and_a_schedule_as_a_timestamp():
    sent = plain(ServiceBusMessage(b"body", scheduled_enqueue_time_utc=WHEN))

    annotations = Message.parse(sent).read_message_annotations()

    assert same(annotations, {Symbol(SCHEDULE): Timestamp(WHEN_MS)})


def test_sdk_derives_times_from_a_time_to_live_and_none_from_zero():
    for ttl, derived in ((MINUTE, True), (datetime.timedelta(0), False)):
        read = Message.parse(plain(ServiceBusMessage(b"", time_to_live=ttl))).read_properties()

        assert (read.creation_time is not None) == derived
        assert (read.absolute_expiry_time is not None) == derived
