"""The format of messages in the backlog: `to_backlog` writes it, `from_backlog` restores them.

The backlog must store a message without acting on it: there a message has no session, does not
expire and is not scheduled. The properties that are cleared for this are kept in application
properties, the aliases, together with the destination:

| property | AMQP | alias | type of the alias |
| --- | --- | --- | --- |
| SessionId | group-id | `x-ms-sessionid` | string |
| TimeToLive | ttl | `x-ms-timetolive` | long, milliseconds |
| ScheduledEnqueueTimeUtc | message annotation | `x-ms-scheduledenqueuetimeutc` | timestamp |
| destination | none | `x-ms-path` | string |

Both functions work on encoded messages. Every other property keeps its bytes, whatever its AMQP
type. The SDK writes the section of delivery annotations last; it moves to the place that AMQP
demands.
"""

from collections.abc import Collection
from functools import lru_cache, partial
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from pairbus.amqp.decode import decode_whole
from pairbus.amqp.encode import encode
from pairbus.amqp.map_shapes import ExtractedKeys
from pairbus.amqp.section_edit import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    encode_section,
    map_entries,
    read_fields,
    replace_fields,
    skip_values,
)
from pairbus.amqp.sections import (
    ABSOLUTE_EXPIRY_TIME,
    DELIVERY_COUNT,
    GROUP_ID,
    MESSAGE_ID,
    TTL,
    Message,
)
from pairbus.amqp.types import Int32, Symbol, Timestamp, UInt
from pairbus.backlog_shapes import MessageShape, MessageShapes
from pairbus.errors import DecodeError, EncodeError, NotTransferable, ReservedProperty
from pairbus.servicebus.annotations import (
    ENQUEUED_TIME,
    LOCK_TOKEN,
    SCHEDULED_ENQUEUE_TIME,
    SET_BY_SERVICE,
)
from pairbus.servicebus.application_properties import (
    ALIASES,
    PATH_ALIAS,
    SCHEDULE_ALIAS,
    SESSION_ALIAS,
    TTL_ALIAS,
)

MISSING_PATH: Final = "MissingPath"
"""Dead-letter reason: the message names no destination."""
WRONG_ALIAS: Final = "WrongAlias"
"""Dead-letter reason: an alias has the wrong AMQP type, or a value that no message can have. The
description names it."""

RESERVED_NAMES = frozenset((*ALIASES, *(name.encode() for name in ALIASES)))
_ALIAS_KEYS = ExtractedKeys(ALIASES)
_SCHEDULE_KEYS = ExtractedKeys((SCHEDULED_ENQUEUE_TIME,))
_SERVICE_KEYS = ExtractedKeys(SET_BY_SERVICE)
_LOCK_TOKEN_KEYS = ExtractedKeys((LOCK_TOKEN,))
_SERVICE_AND_SCHEDULE_KEYS = ExtractedKeys((*SET_BY_SERVICE, SCHEDULED_ENQUEUE_TIME))
_SESSION_ALIAS_KEY, _TTL_ALIAS_KEY, _SCHEDULE_ALIAS_KEY, _PATH_ALIAS_KEY = (
    encode(name) for name in ALIASES
)
_SCHEDULE_ANNOTATION_KEY = encode(Symbol(SCHEDULED_ENQUEUE_TIME))
_ALIAS_TYPES = dict(zip(ALIASES, (str, int, Timestamp, str), strict=True))
_TYPE_NAMES = {str: "string", int: "long", Timestamp: "timestamp", Int32: "int", bytes: "binary"}
# Constructors of the encodings that `to_backlog` writes; for strings, of up to 255 bytes.
_LONG, _TIMESTAMP, _STRING = 0x81, 0x83, 0xA1
_NULL = b"\x40"
# The first bytes of sections in their short encodings.
_SHORT_PROPERTIES, _SHORT_APPLICATION_PROPERTIES = b"\x00\x53\x73\xc0", b"\x00\x53\x74\xc1"
_SHORT_DATA, _LONG_DATA = b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0"
_MAX_TTL_MS = 0xFFFFFFFF
_MAX_CACHED_HEADER = 64
_shapes = MessageShapes()
_unpack_int64 = Struct(">xq").unpack
_unpack_size = Struct(">4xI").unpack_from


def reserved_name(names: Collection[str | bytes]) -> str | None:
    """Return the first of some names of application properties that is an alias, or None."""
    if RESERVED_NAMES.isdisjoint(names):
        return None
    reserved = next(name for name in names if name in RESERVED_NAMES)
    return reserved.decode() if isinstance(reserved, bytes) else reserved


def to_backlog(payload: bytes, path: str, *, scheduled_ms: int | None = None) -> bytes:
    """Return a message, encoded as the SDK would send it to `path`, in the format of the backlog.

    `scheduled_ms`, in milliseconds since 1970, replaces the scheduled enqueue time of the message.
    A scheduled enqueue time that is not a timestamp has no effect, and is kept. The expiry and
    creation times that the SDK derives from a time-to-live are removed together with it.

    `from_backlog` restores whatever this returns. Raises ReservedProperty if an application
    property has the name of an alias, and DecodeError for bytes that are not a message.
    """
    if not path:
        raise EncodeError("a message for the backlog needs the path of its destination")
    path_alias = _path_alias(path)
    if scheduled_ms is None and (changed := _append_path(payload, path_alias)) is not None:
        return changed
    message = Message.parse(payload)
    count, entries, reserved = _ALIAS_KEYS.extract(message.application_properties)
    for name in reserved:
        raise ReservedProperty(f"the application property {name!r} is reserved: rename it")
    aliases = [entries]
    (session,) = read_fields(message.properties, (GROUP_ID,))
    (ttl,) = read_fields(message.header, (TTL,))
    if session is not None:
        if type(session) is not str:
            raise DecodeError("the session id is not a string")
        aliases.append(_SESSION_ALIAS_KEY + encode(session))
    if ttl is not None:
        if type(ttl) is not UInt:
            raise DecodeError("the time-to-live is not a uint")
        message.header = replace_fields(message.header, HEADER, TTL, (_NULL,))
        aliases.append(_TTL_ALIAS_KEY + encode(int(ttl)))
    message.properties = _with_session(message.properties, None if session is None else _NULL, ttl)
    schedule = None if scheduled_ms is None else encode(Timestamp(scheduled_ms))
    if message.message_annotations:
        other_count, others, extracted = _SCHEDULE_KEYS.extract(message.message_annotations)
        if schedule is None and extracted and extracted[SCHEDULED_ENQUEUE_TIME][0] == _TIMESTAMP:
            schedule = extracted[SCHEDULED_ENQUEUE_TIME]
        if schedule is not None and extracted:
            message.message_annotations = _map_section(MESSAGE_ANNOTATIONS, other_count, others)
    if schedule is not None:
        aliases.append(_SCHEDULE_ALIAS_KEY + schedule)
    aliases.append(path_alias)
    message.application_properties = _map_section(
        APPLICATION_PROPERTIES, count + 2 * len(aliases) - 2, b"".join(aliases)
    )
    return message.encode()


@lru_cache(maxsize=1024)
def _path_alias(path: str) -> bytes:
    return _PATH_ALIAS_KEY + encode(path)


def _append_path(payload: bytes, path_alias: bytes) -> bytes | None:
    """Append the path to the application properties of a message that needs no other change.

    This is the most frequent case, and this takes half of the time: the message has properties
    without a session id, no header and no annotations, and one data section. Returns None for any
    other message, which `to_backlog` examines section by section.
    """
    try:
        if payload[:4] != _SHORT_PROPERTIES or payload[5] <= GROUP_ID:
            return None
        end = 5 + payload[4]
        pos = skip_values(payload, 6, GROUP_ID)
        if pos >= end or payload[pos] != _NULL[0]:
            return None
        body, count, entries = end, 0, b""
        if payload[end : end + 4] == _SHORT_APPLICATION_PROPERTIES:
            body += 5 + payload[end + 4]
            count, entries, reserved = _ALIAS_KEYS.extract(payload[end:body])
            if reserved:
                return None
        start = payload[body : body + 4]
        if start == _SHORT_DATA:
            size = 5 + payload[body + 4]
        elif start == _LONG_DATA:
            size = 8 + _unpack_size(payload, body)[0]
        else:
            return None
    except (IndexError, StructError, DecodeError):
        return None
    if body + size != len(payload):
        return None
    properties = encode_section(APPLICATION_PROPERTIES, 0xC1, count + 2, entries + path_alias)
    return b"".join((payload[:end], properties, payload[body:]))


class TransferredMessage(NamedTuple):
    """A message that was received from the backlog and restored, ready to be sent."""

    path: str
    """The destination in the primary."""
    payload: bytes
    """The encoded message."""
    session: str | None
    ttl_ms: int | None
    scheduled_ms: int | None
    enqueued_ms: int | None
    """The time when the backlog stored it; None if the message does not have it."""
    expired: bool
    """The time-to-live passed while the message was in the backlog: do not send it."""

    @property
    def message_id(self) -> Any:
        """The message id, of any AMQP type, or None."""
        return read_fields(Message.parse(self.payload).properties, (MESSAGE_ID,))[0]


def from_backlog(payload: bytes, *, now_ms: int | None = None) -> TransferredMessage:
    """Restore a message that was received from the backlog.

    The result is the message that the SDK would have sent to the primary. The values of the
    aliases are back in the properties that they stand for, and everything that the backlog wrote
    onto the message (annotations, delivery count, a time-to-live) is removed. All fields have the
    values and AMQP types that they had before `to_backlog`, and mostly the same bytes; the
    scheduled enqueue time becomes the first annotation, as in the SDK. Expiry and creation times
    are not restored: the SDK derives them from the time-to-live when it sends, by its clock.

    Without `now_ms` the full time-to-live is restored. With `now_ms` the time since the message
    was enqueued, or since its scheduled enqueue time if that is later, is deducted; nothing is
    deducted if the message has no enqueued time. A time-to-live of more than 49 days, the longest
    of AMQP, becomes the longest.

    An alias that is null counts as absent. Raises NotTransferable with the reason MISSING_PATH or
    WRONG_ALIAS, and DecodeError for bytes that are not a message.
    """
    shape = _shapes.find(payload)
    if shape is not None and (restored := _restore_by_shape(payload, shape)) is not None:
        return restored
    restored = _restore(payload, now_ms)
    if restored.ttl_ms is None and restored.scheduled_ms is None:
        _shapes.learn(payload, partial(_with_ttl, ttl=None))
    return restored


def _restore_by_shape(payload: bytes, shape: MessageShape) -> TransferredMessage | None:
    """Restore a message of a known shape. Return None if an alias is not valid UTF-8."""
    properties = payload[shape.properties]
    session = None
    try:
        path = payload[shape.path][2:].decode()
        if shape.session is not None:
            raw_session = payload[shape.session]
            session = raw_session[2:].decode()
            properties = _with_session(properties, raw_session, None)
    except UnicodeDecodeError:
        return None
    enqueued = None if shape.enqueued is None else _unpack_int64(payload[shape.enqueued])[0]
    return TransferredMessage(
        path, shape.restored(payload, properties), session, None, None, enqueued, False
    )


def _restore(payload: bytes, now_ms: int | None) -> TransferredMessage:
    """Restore any message."""
    message = Message.parse(payload)
    count, entries, aliases = _ALIAS_KEYS.extract(message.application_properties)
    message.application_properties = _map_section(APPLICATION_PROPERTIES, count, entries)
    raw_path = aliases.get(PATH_ALIAS, _NULL)
    raw_session = aliases.get(SESSION_ALIAS, _NULL)
    raw_ttl = aliases.get(TTL_ALIAS, _NULL)
    raw_schedule = aliases.get(SCHEDULE_ALIAS, _NULL)
    # The encodings that `to_backlog` writes are read directly, any other one by the decoder.
    try:
        path = raw_path[2:].decode() if raw_path[0] == _STRING else _decode(raw_path, PATH_ALIAS)
        session = (
            raw_session[2:].decode()
            if raw_session[0] == _STRING
            else _decode(raw_session, SESSION_ALIAS)
        )
    except UnicodeDecodeError as exc:
        raise DecodeError("an alias is not valid UTF-8") from exc
    ttl = _unpack_int64(raw_ttl)[0] if raw_ttl[0] == _LONG else _decode(raw_ttl, TTL_ALIAS)
    scheduled = (
        _unpack_int64(raw_schedule)[0]
        if raw_schedule[0] == _TIMESTAMP
        else _decode(raw_schedule, SCHEDULE_ALIAS)
    )
    if path is None:
        raise NotTransferable(
            f"no {PATH_ALIAS} property, so the destination is unknown", reason=MISSING_PATH
        )
    if not path:
        raise _wrong_alias(PATH_ALIAS, path, "must not be empty")
    if ttl is not None and ttl < 0:
        raise _wrong_alias(TTL_ALIAS, ttl, "must not be negative")
    enqueued = None
    if scheduled is not None or message.message_annotations:
        keys = _SERVICE_KEYS if scheduled is None else _SERVICE_AND_SCHEDULE_KEYS
        count, entries, extracted = keys.extract(message.message_annotations)
        raw_enqueued = extracted.get(ENQUEUED_TIME)
        if raw_enqueued is not None and raw_enqueued[0] == _TIMESTAMP:
            (enqueued,) = _unpack_int64(raw_enqueued)
        if scheduled is not None:
            count, entries = count + 2, _SCHEDULE_ANNOTATION_KEY + raw_schedule + entries
        message.message_annotations = _map_section(MESSAGE_ANNOTATIONS, count, entries)
    if message.delivery_annotations:
        count, entries, extracted = _LOCK_TOKEN_KEYS.extract(message.delivery_annotations)
        if extracted:
            message.delivery_annotations = _map_section(DELIVERY_ANNOTATIONS, count, entries)
    message.properties = _with_session(
        message.properties, None if session is None else raw_session, ttl
    )
    expired = False
    if ttl is not None:
        if now_ms is not None and enqueued is not None:
            start = enqueued if scheduled is None else max(enqueued, scheduled)
            ttl = max(ttl - max(now_ms - start, 0), 0)
            expired = ttl == 0
        ttl = min(ttl, _MAX_TTL_MS)
    if ttl is not None or message.header:
        header = message.header
        with_ttl = _with_ttl if len(header) <= _MAX_CACHED_HEADER else _with_ttl.__wrapped__
        message.header = with_ttl(header, ttl)
    return TransferredMessage(path, message.encode(), session, ttl, scheduled, enqueued, expired)


def _with_session(properties: bytes, session: bytes | None, ttl: int | None) -> bytes:
    """Return the properties with an encoded session id, if there is one, and without the times
    that the SDK derives from a time-to-live."""
    if ttl is not None and ttl > 0:  # the SDK derives no times from zero
        times = (_NULL, _NULL) if session is None else (_NULL, _NULL, session)
        return replace_fields(properties, PROPERTIES, ABSOLUTE_EXPIRY_TIME, times)
    if session is not None:
        return replace_fields(properties, PROPERTIES, GROUP_ID, (session,))
    return properties


# Most messages of a sender have the same header and time-to-live.
@lru_cache(maxsize=1024)
def _with_ttl(header: bytes, ttl: int | None) -> bytes:
    """Return the header with a time-to-live and without a delivery count, or no header at all if
    nothing is left in it."""
    field = _NULL if ttl is None else encode(UInt(ttl))
    header = replace_fields(header, HEADER, DELIVERY_COUNT, (_NULL,))
    header = replace_fields(header, HEADER, TTL, (field,))
    return header if map_entries(header)[1].strip(_NULL) else b""


def _map_section(code: int, count: int, entries: bytes) -> bytes:
    return encode_section(code, 0xC1, count, entries) if count else b""


def _decode(raw: bytes, alias: str) -> Any:
    """Decode an alias in any encoding of its type. Return None for null."""
    if raw == _NULL:
        return None
    value = decode_whole(raw)
    expected = _ALIAS_TYPES[alias]
    # Not isinstance: in Python, a symbol is a str and an AMQP int is an int.
    if type(value) is not expected:
        raise _wrong_alias(alias, value, f"must be a {_TYPE_NAMES[expected]}")
    return value


def _wrong_alias(alias: str, value: Any, rule: str) -> NotTransferable:
    type_name = _TYPE_NAMES.get(type(value), type(value).__name__)
    shown = repr(value)
    shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
    return NotTransferable(f"{alias} {rule}, but is {type_name} {shown}", reason=WRONG_ALIAS)
