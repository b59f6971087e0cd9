"""A message of the backlog as somebody sees it who looks at it.

Whatever the bytes are, there is an answer: what cannot be read is left out, and `problem` says why
a syphon would dead-letter it.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pairbus.amqp.decode import decode
from pairbus.amqp.section_edit import DATA, SEQUENCE, read_fields
from pairbus.amqp.sections import (
    CONTENT_TYPE,
    CORRELATION_ID,
    MESSAGE_ID,
    SUBJECT,
    Message,
)
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.backlog.json_values import iso_time, key_text, to_json
from pairbus.errors import DecodeError, NotTransferable
from pairbus.servicebus import annotations
from pairbus.servicebus.application_properties import (
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
    PATH_ALIAS,
    SCHEDULE_ALIAS,
    SESSION_ALIAS,
    TTL_ALIAS,
)
from pairbus.transfer import from_backlog

NOT_A_MESSAGE: Final = "NotAMessage"
"""The reason for which a syphon dead-letters what it cannot read."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogMessage:
    """What a message says. None: it does not say, or not rightly. Times are in milliseconds since
    1970."""

    queue: str
    payload: bytes = field(repr=False)
    """All of it, as it was peeked."""
    sequence_number: int | None = None
    enqueued_ms: int | None = None
    destination: str | None = None
    message_id: Any = None
    session_id: str | None = None
    """Where it was going. In the backlog no message has a session."""
    time_to_live_ms: int | None = None
    scheduled_ms: int | None = None
    problem: str | None = None
    """A short word: why it would be dead-lettered. None: it would not, if its destination is
    there."""
    problem_description: str | None = None
    reason: str | None = None
    """Of a dead letter."""
    description: str | None = None
    application_properties: dict[Any, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.payload)

    def as_json(self, now_ms: int) -> dict[str, Any]:
        """Everything, for `json.dumps`."""
        enqueued, scheduled = self.enqueued_ms, self.scheduled_ms
        return {
            "queue": self.queue,
            "sequence_number": self.sequence_number,
            "enqueued_time": None if enqueued is None else iso_time(enqueued),
            "age_seconds": None if enqueued is None else max(now_ms - enqueued, 0) / 1000,
            "destination": self.destination,
            "message_id": to_json(self.message_id),
            "session_id": self.session_id,
            "time_to_live_ms": self.time_to_live_ms,
            "scheduled_time": None if scheduled is None else iso_time(scheduled),
            "size": self.size,
            "problem": self.problem,
            "problem_description": self.problem_description,
            "dead_letter_reason": self.reason,
            "dead_letter_description": self.description,
            "application_properties": to_json(self.application_properties),
            **_rest(self.payload),
        }


def read_message(queue: str, payload: bytes) -> BacklogMessage:
    """A message that was peeked. Never raises."""
    problem = description = None
    try:
        from_backlog(payload)
    except NotTransferable as exc:
        problem, description = exc.reason, str(exc)
    except DecodeError as exc:
        problem, description = NOT_A_MESSAGE, exc.description
    message = _try(lambda: Message.parse(payload)) or Message()
    properties = _try(message.read_application_properties) or {}
    fields = _try(lambda: read_fields(message.properties, (MESSAGE_ID,)))
    return BacklogMessage(
        queue=queue,
        payload=payload,
        sequence_number=_annotation(payload, message, annotations.SEQUENCE_NUMBER, int),
        enqueued_ms=_annotation(payload, message, annotations.ENQUEUED_TIME, Timestamp),
        destination=_exactly(properties.get(PATH_ALIAS), str),
        message_id=fields[0] if fields else None,
        session_id=_exactly(properties.get(SESSION_ALIAS), str),
        time_to_live_ms=_exactly(properties.get(TTL_ALIAS), int),
        scheduled_ms=_exactly(properties.get(SCHEDULE_ALIAS), Timestamp),
        problem=problem,
        problem_description=description,
        reason=_word(properties.get(DEAD_LETTER_REASON)),
        description=_word(properties.get(DEAD_LETTER_DESCRIPTION)),
        application_properties=properties,
    )


def _try(reading: Callable[[], T]) -> T | None:
    try:
        return reading()
    except DecodeError:
        return None


def _exactly(value: Any, kind: type[T]) -> T | None:
    # As the syphon has it: a symbol is not a string, an AMQP int not a long.
    return value if type(value) is kind else None


def _word(value: Any) -> str | None:
    return None if value is None else key_text(value)


def _annotation(payload: bytes, message: Message, name: str, kind: type[int]) -> int | None:
    """One of those that the namespace writes. Where the message cannot be taken apart it is found
    by its name, so that there is a way on from there."""
    found = (_try(message.read_message_annotations) or {}).get(Symbol(name))
    at = payload.find(name.encode()) if found is None else -1
    if at >= 0:
        found = (_try(lambda: decode(payload, at + len(name))) or (None,))[0]
    return int(found) if isinstance(found, kind) and not isinstance(found, bool) else None


def _rest(payload: bytes) -> dict[str, Any]:
    """What is only in the JSON: the body as text where it is text, and fields of lesser use."""
    message = _try(lambda: Message.parse(payload))
    if message is None:
        return {**_body("unreadable", payload), "delivery_count": None}
    places = (SUBJECT, CORRELATION_ID, CONTENT_TYPE)
    found = _try(lambda: read_fields(message.properties, places)) or [None] * len(places)
    names = ("subject", "correlation_id", "content_type")
    header = _try(message.read_header)
    return {
        **_read_body(message),
        **{name: to_json(value) for name, value in zip(names, found, strict=True)},
        "delivery_count": None if header is None else int(header.delivery_count),
        "annotations": to_json(_try(message.read_message_annotations) or {}),
    }


def _read_body(message: Message) -> dict[str, Any]:
    found = _try(message.read_body)
    if found is None:
        return _body("unreadable", message.body)
    kind, values = found
    if kind == DATA:
        return _body("data", b"".join(values))
    what = "sequence" if kind == SEQUENCE else "value"
    value = values[0] if len(values) == 1 else values or None
    return {"body_kind": what, "body": to_json(value), "body_encoding": "json"}


def _body(kind: str, data: bytes) -> dict[str, Any]:
    if kind != "unreadable":
        try:
            return {"body_kind": kind, "body": data.decode(), "body_encoding": "text"}
        except UnicodeDecodeError:
            pass
    text = base64.b64encode(data).decode()
    return {"body_kind": kind, "body": text, "body_encoding": "base64"}
