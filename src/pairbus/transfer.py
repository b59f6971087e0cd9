"""A message on its way through the backlog: what it looks like there, and turned back.

The backlog must store a message, and not act on it: there it has no session, does not expire and is
not scheduled. What would make it so is kept in application properties, the aliases, together with
where it was going:

| of the message | AMQP | alias | its type |
| --- | --- | --- | --- |
| SessionId | group-id | `x-ms-sessionid` | string |
| TimeToLive | ttl | `x-ms-timetolive` | long, milliseconds |
| ScheduledEnqueueTimeUtc | an annotation | `x-ms-scheduledenqueuetimeutc` | timestamp |
| destination | none | `x-ms-path` | string |

Everything works on encoded messages. What is not named here stays byte for byte as it was, whatever
its AMQP type; the section of delivery annotations, which the SDK writes last, moves to its place.
"""

from collections.abc import Collection
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple

from pairbus.amqp.decode import decode_whole
from pairbus.amqp.encode import encode
from pairbus.amqp.section_edit import (
    APPLICATION_PROPERTIES,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    EncodedKeys,
    encode_section,
    extract_entries,
    map_entries,
    read_fields,
    replace_fields,
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
from pairbus.errors import DecodeError, EncodeError, NotTransferable, ReservedProperty

SESSION_ALIAS: Final = "x-ms-sessionid"
TTL_ALIAS: Final = "x-ms-timetolive"
SCHEDULE_ALIAS: Final = "x-ms-scheduledenqueuetimeutc"
PATH_ALIAS: Final = "x-ms-path"
ALIASES: Final = (SESSION_ALIAS, TTL_ALIAS, SCHEDULE_ALIAS, PATH_ALIAS)

MISSING_PATH: Final = "MissingPath"
"""A reason for a dead letter: the message does not say where it is to go."""
WRONG_ALIAS: Final = "WrongAlias"
"""A reason for a dead letter: an alias has another AMQP type than it should, or a value that no
message can have. The description says which."""

_SCHEDULE = "x-opt-scheduled-enqueue-time"
_ENQUEUED = "x-opt-enqueued-time"
_OF_THE_BROKER = (
    _ENQUEUED,
    "x-opt-sequence-number",
    "x-opt-enqueue-sequence-number",
    "x-opt-locked-until",
    "x-opt-lock-token",
    "x-opt-message-state",
    "x-opt-partition-id",
)
_RESERVED = frozenset((*ALIASES, *(name.encode() for name in ALIASES)))
_ALIAS_KEYS = EncodedKeys(ALIASES)
_SCHEDULE_KEYS = EncodedKeys((_SCHEDULE,))
_BROKER_KEYS = EncodedKeys(_OF_THE_BROKER)
_BROKER_AND_SCHEDULE_KEYS = EncodedKeys((*_OF_THE_BROKER, _SCHEDULE))
_SESSION_KEY, _TTL_KEY, _SCHEDULED_KEY, _PATH_KEY = (encode(name) for name in ALIASES)
_SCHEDULE_KEY = encode(Symbol(_SCHEDULE))
_TYPES = dict(zip(ALIASES, (str, int, Timestamp, str), strict=True))
_NAMES = {str: "string", int: "long", Timestamp: "timestamp", Int32: "int", bytes: "binary"}
_LONG, _TIMESTAMP, _STRING = 0x81, 0x83, 0xA1  # constructors; of strings, that of the short ones
_NULL = b"\x40"
_MAX_TTL = 0xFFFFFFFF
_number = Struct(">xq").unpack


def reserved_name(names: Collection[str | bytes]) -> str | None:
    """The first of these names of application properties that the backlog needs for itself (S7)."""
    if _RESERVED.isdisjoint(names):
        return None
    found = next(name for name in names if name in _RESERVED)
    return found.decode() if isinstance(found, bytes) else found


def to_backlog(payload: bytes, path: str, *, scheduled_ms: int | None = None) -> bytes:
    """A message, encoded as the SDK would send it to `path`, as it is stored in the backlog (S6).

    `scheduled_ms`, in milliseconds since 1970, is the schedule, whatever the message says. With a
    time-to-live go the expiry and creation times that the SDK derives from it. A schedule that is
    not a timestamp is none, and stays.

    `from_backlog` turns back whatever this returns. Raises ReservedProperty where an application
    property has the name of an alias, and DecodeError for bytes that are not a message.
    """
    if not path:
        raise EncodeError("a message for the backlog needs the path that it was going to")
    message = Message.parse(payload)
    count, entries, reserved = extract_entries(message.application_properties, _ALIAS_KEYS)
    for name in reserved:
        raise ReservedProperty(f"the application property {name!r} is reserved: rename it")
    aliases = [entries]
    (session,) = read_fields(message.properties, (GROUP_ID,))
    (ttl,) = read_fields(message.header, (TTL,))
    if session is not None:
        if type(session) is not str:
            raise DecodeError("the session id is not a string")
        aliases.append(_SESSION_KEY + encode(session))
    if ttl is not None:
        if type(ttl) is not UInt:
            raise DecodeError("the time-to-live is not a uint")
        message.header = replace_fields(message.header, HEADER, TTL, (_NULL,))
        aliases.append(_TTL_KEY + encode(int(ttl)))
    message.properties = _properties(message.properties, None if session is None else _NULL, ttl)
    scheduled = None if scheduled_ms is None else encode(Timestamp(scheduled_ms))
    if message.message_annotations:
        left, others, taken = extract_entries(message.message_annotations, _SCHEDULE_KEYS)
        if scheduled is None and taken and taken[_SCHEDULE][0] == _TIMESTAMP:
            scheduled = taken[_SCHEDULE]
        if scheduled is not None and taken:
            message.message_annotations = _map(MESSAGE_ANNOTATIONS, left, others)
    if scheduled is not None:
        aliases.append(_SCHEDULED_KEY + scheduled)
    aliases.append(_PATH_KEY + encode(path))
    message.application_properties = _map(
        APPLICATION_PROPERTIES, count + 2 * len(aliases) - 2, b"".join(aliases)
    )
    return message.encode()


class TransferredMessage(NamedTuple):
    """A message out of the backlog, ready for the primary.

    `payload` is what to send to `path`. `session`, `ttl_ms` and `scheduled_ms` are what it carries.
    `enqueued_ms` is when the backlog took it, None where the backlog did not say. `expired`: its
    time-to-live was used up in the backlog, and it is not to be sent.
    """

    path: str
    payload: bytes
    session: str | None
    ttl_ms: int | None
    scheduled_ms: int | None
    enqueued_ms: int | None
    expired: bool

    @property
    def message_id(self) -> Any:
        """The message id, of whatever type it has; None where there is none."""
        return read_fields(Message.parse(self.payload).properties, (MESSAGE_ID,))[0]


def from_backlog(payload: bytes, *, now_ms: int | None = None) -> TransferredMessage:
    """Turn back a message that was received from the backlog (Y3).

    The outcome is what the SDK would have sent to the primary: the aliases are back in their
    places, and what the backlog wrote onto the message (annotations, the delivery count, a
    time-to-live of its own) is gone. The same fields have the same values and AMQP types as before
    `to_backlog`, and mostly the same bytes; the schedule is the first of the annotations, as in
    the SDK. Expiry and creation times that went with a time-to-live are not made up again: the
    plain SDK would derive them when it sends, and there is no clock here.

    Without `now_ms` the time-to-live is restored in full. With it, the time that passed since the
    message was enqueued, or since its schedule where that is later, is deducted; nothing is where
    the backlog did not say when. AMQP holds 49 days: a longer one becomes the longest.

    Raises NotTransferable with the reason MISSING_PATH or WRONG_ALIAS, and DecodeError for bytes
    that are not a message. An alias that is null is not set.
    """
    message = Message.parse(payload)
    count, entries, aliases = extract_entries(message.application_properties, _ALIAS_KEYS)
    message.application_properties = _map(APPLICATION_PROPERTIES, count, entries)
    raw_path = aliases.get(PATH_ALIAS, _NULL)
    raw_session = aliases.get(SESSION_ALIAS, _NULL)
    raw_ttl = aliases.get(TTL_ALIAS, _NULL)
    raw_schedule = aliases.get(SCHEDULE_ALIAS, _NULL)
    try:  # each as `to_backlog` mostly writes it, or else by its type
        path = raw_path[2:].decode() if raw_path[0] == _STRING else _read(raw_path, PATH_ALIAS)
        session = (
            raw_session[2:].decode()
            if raw_session[0] == _STRING
            else _read(raw_session, SESSION_ALIAS)
        )
    except UnicodeDecodeError as exc:
        raise DecodeError("an alias is not valid text") from exc
    ttl = _number(raw_ttl)[0] if raw_ttl[0] == _LONG else _read(raw_ttl, TTL_ALIAS)
    scheduled = (
        _number(raw_schedule)[0]
        if raw_schedule[0] == _TIMESTAMP
        else _read(raw_schedule, SCHEDULE_ALIAS)
    )
    if path is None:
        raise NotTransferable(
            f"no {PATH_ALIAS}: where was this message going?", reason=MISSING_PATH
        )
    if not path:
        raise _wrong(PATH_ALIAS, path, "not empty")
    if ttl is not None and ttl < 0:
        raise _wrong(TTL_ALIAS, ttl, "not negative")
    enqueued = None
    if scheduled is not None or message.message_annotations:
        keys = _BROKER_KEYS if scheduled is None else _BROKER_AND_SCHEDULE_KEYS
        count, entries, taken = extract_entries(message.message_annotations, keys)
        when = taken.get(_ENQUEUED)
        if when is not None and when[0] == _TIMESTAMP:
            (enqueued,) = _number(when)
        if scheduled is not None:
            count, entries = count + 2, _SCHEDULE_KEY + raw_schedule + entries
        message.message_annotations = _map(MESSAGE_ANNOTATIONS, count, entries)
    raw = None if session is None else raw_session
    message.properties = _properties(message.properties, raw, ttl)
    expired = False
    if ttl is not None:
        if now_ms is not None and enqueued is not None:
            begin = enqueued if scheduled is None else max(enqueued, scheduled)
            ttl = max(ttl - max(now_ms - begin, 0), 0)
            expired = ttl == 0
        ttl = min(ttl, _MAX_TTL)
    if ttl is not None or message.header:
        header = message.header
        message.header = (_header if len(header) <= 64 else _header.__wrapped__)(header, ttl)
    return TransferredMessage(path, message.encode(), session, ttl, scheduled, enqueued, expired)


def _properties(properties: bytes, session: bytes | None, ttl: int | None) -> bytes:
    """Properties with this session, if any, and without the times that come of a time-to-live."""
    if ttl is not None and ttl > 0:  # the SDK derives no times from zero
        times = (_NULL, _NULL) if session is None else (_NULL, _NULL, session)
        return replace_fields(properties, PROPERTIES, ABSOLUTE_EXPIRY_TIME, times)
    if session is not None:
        return replace_fields(properties, PROPERTIES, GROUP_ID, (session,))
    return properties


# Headers are few and repeat, and so do the times-to-live of one sender.
@lru_cache(maxsize=1024)
def _header(header: bytes, ttl: int | None) -> bytes:
    """A header with this time-to-live and without a delivery count; none where nothing is left."""
    field = _NULL if ttl is None else encode(UInt(ttl))
    header = replace_fields(header, HEADER, DELIVERY_COUNT, (_NULL,))
    header = replace_fields(header, HEADER, TTL, (field,))
    return header if map_entries(header)[1].strip(_NULL) else b""


def _map(code: int, count: int, entries: bytes) -> bytes:
    return encode_section(code, 0xC1, count, entries) if count else b""


def _read(raw: bytes, alias: str) -> Any:
    """An alias in any encoding of its type; None where it is null."""
    if raw == _NULL:
        return None
    value = decode_whole(raw)
    wanted = _TYPES[alias]
    if type(value) is not wanted:  # exactly: a symbol is a str to Python, and an AMQP int an int
        raise _wrong(alias, value, f"a {_NAMES[wanted]}")
    return value


def _wrong(alias: str, value: Any, wanted: str) -> NotTransferable:
    kind = _NAMES.get(type(value), type(value).__name__)
    shown = repr(value)
    shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
    return NotTransferable(f"{alias} should be {wanted}: it is {shown}, {kind}", reason=WRONG_ALIAS)
