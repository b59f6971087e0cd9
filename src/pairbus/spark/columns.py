"""Messages as rows of a DataFrame: which columns there are, and what is in them.

Only the columns that a schema asks for are made: the syphon asks for few, and is fast by it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from pairbus.amqp.section_edit import read_fields
from pairbus.amqp.sections import CONTENT_TYPE, GROUP_ID, MESSAGE_ID, SUBJECT, Message
from pairbus.amqp.types import Timestamp
from pairbus.errors import DecodeError, NotTransferable
from pairbus.servicebus import annotations
from pairbus.servicebus.application_properties import TTL_EXPIRED
from pairbus.transfer import PATH_ALIAS, from_backlog

SCHEMA = (
    "queue string, sequence_number long, enqueued_time timestamp, lock_token binary, "
    "locked_until timestamp, message_id string, session_id string, subject string, "
    "content_type string, delivery_count int, application_properties map<string,string>, "
    "destination string, payload binary"
)
"""What `spark.read` and `spark.readStream` give: the whole message in `payload`, as AMQP bytes, and
beside it what people look for."""

BACKLOG_SCHEMA = (
    "queue string, lock_token binary, locked_until long, session_id string, "
    "destination string, payload binary, problem string, description string"
)
"""What the syphon reads: `payload` is turned back already; `problem` is why it cannot be."""

NOT_A_MESSAGE = "NotAMessage"

_INSTANT = pa.timestamp("us", tz="UTC")
_TYPES: dict[str, pa.DataType] = {
    "queue": pa.string(),
    "sequence_number": pa.int64(),
    "enqueued_time": _INSTANT,
    "lock_token": pa.binary(),
    "locked_until": _INSTANT,
    "message_id": pa.string(),
    "session_id": pa.string(),
    "subject": pa.string(),
    "content_type": pa.string(),
    "delivery_count": pa.int32(),
    "application_properties": pa.map_(pa.string(), pa.string()),
    "destination": pa.string(),
    "payload": pa.binary(),
}
_BACKLOG_TYPES: dict[str, pa.DataType] = {
    **_TYPES,
    "locked_until": pa.int64(),
    "problem": pa.string(),
    "description": pa.string(),
}


class ReceivedMessage(NamedTuple):
    """A message as it came: its bytes, its lock token (the delivery's tag), its queue."""

    queue: str
    payload: bytes
    token: bytes | None


class _Look:
    """One message, taken apart as far as somebody asks."""

    __slots__ = ("_annotations", "message", "received")

    def __init__(self, received: ReceivedMessage) -> None:
        self.received = received
        self.message = Message.parse(received.payload)
        self._annotations: dict[Any, Any] | None = None

    def annotation(self, name: str) -> Any:
        if self._annotations is None:
            self._annotations = self.message.read_message_annotations()
        return self._annotations.get(name)

    def instant(self, name: str) -> int | None:
        value = self.annotation(name)
        return int(value) * 1000 if isinstance(value, Timestamp) else None

    def field(self, place: int) -> str | None:
        (value,) = read_fields(self.message.properties, (place,))
        return None if value is None else str(value)

    def properties(self) -> list[tuple[str, str | None]]:
        entries = self.message.read_application_properties().items()
        return [(str(key), None if value is None else _text(value)) for key, value in entries]

    def destination(self) -> str | None:
        value = self.message.read_application_properties().get(PATH_ALIAS)
        return value if isinstance(value, str) else None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


_GETTERS: dict[str, Callable[[_Look], Any]] = {
    "queue": lambda look: look.received.queue,
    "sequence_number": lambda look: look.annotation(annotations.SEQUENCE_NUMBER),
    "enqueued_time": lambda look: look.instant(annotations.ENQUEUED_TIME),
    "lock_token": lambda look: look.received.token,
    "locked_until": lambda look: look.instant(annotations.LOCKED_UNTIL),
    "message_id": lambda look: look.field(MESSAGE_ID),
    "session_id": lambda look: look.field(GROUP_ID),
    "subject": lambda look: look.field(SUBJECT),
    "content_type": lambda look: look.field(CONTENT_TYPE),
    "delivery_count": lambda look: look.message.read_header().delivery_count,
    "application_properties": lambda look: look.properties(),
    "destination": lambda look: look.destination(),
    "payload": lambda look: look.received.payload,
}


def as_rows(messages: Sequence[ReceivedMessage], columns: Sequence[str]) -> pa.RecordBatch:
    """Messages with the columns of `SCHEMA` that are asked for."""
    looks = [_Look(message) for message in messages]
    arrays = [
        pa.array([_GETTERS[name](look) for look in looks], type=_TYPES[name]) for name in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


class RestoredMessage(NamedTuple):
    """A message of the backlog, ready to be sent on, or why it is not. As `BACKLOG_SCHEMA`."""

    queue: str
    lock_token: bytes | None
    locked_until: int
    session_id: str | None
    destination: str | None
    payload: bytes
    problem: str | None = None
    description: str | None = None


_NAMES = RestoredMessage._fields


def turn_back(received: ReceivedMessage, locked_until: int, now_ms: int | None) -> RestoredMessage:
    """One message of the backlog. `now_ms`: deduct the time that it lay there."""
    problem = description = None
    payload, path, session = received.payload, None, None
    try:
        turned = from_backlog(received.payload, now_ms=now_ms)
        payload, path, session = turned.payload, turned.path, turned.session
        if turned.expired:
            problem, description = TTL_EXPIRED, "its time-to-live was used up in the backlog"
    except NotTransferable as exc:
        problem, description = exc.reason, str(exc)
    except DecodeError as exc:
        problem, description = NOT_A_MESSAGE, str(exc)
    return RestoredMessage(
        received.queue,
        received.token,
        locked_until,
        session,
        path,
        payload,
        problem,
        description,
    )


def sequence_of(payload: bytes) -> int:
    """The sequence number of a message; 0 where it has none."""
    # Found by its key: reading all annotations costs as much as turning the message back.
    at = payload.find(_SEQUENCE_KEY)
    if at < 0:
        return 0
    at += len(_SEQUENCE_KEY)
    if payload[at] == 0x81:
        return int.from_bytes(payload[at + 1 : at + 9], "big", signed=True)
    return payload[at + 1] if payload[at] == 0x55 else 0


def destination_of(payload: bytes) -> str | None:
    """Where a message of the backlog is going."""
    try:
        return _Look(ReceivedMessage("", payload, None)).destination()
    except DecodeError:
        return None


_SEQUENCE_KEY = annotations.SEQUENCE_NUMBER.encode()


def backlog_rows(messages: Sequence[RestoredMessage]) -> pa.RecordBatch:
    """Messages with the columns of `BACKLOG_SCHEMA`."""
    arrays = [
        pa.array(column, type=_BACKLOG_TYPES[name])
        for name, column in zip(_NAMES, zip(*messages, strict=True), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(_NAMES))
