"""A message of the backlog, for display.

Reading never fails: a field that cannot be decoded is None, and `problem` is the reason why a
syphon would dead-letter the message.
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
from pairbus.backlog.json_values import amqp_to_json, iso_time, key_text
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
"""The reason with which a syphon dead-letters a message that it cannot decode."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogMessage:
    """The fields of a message. None means that a field is missing or has the wrong type. Times are
    Unix times in milliseconds."""

    queue: str
    payload: bytes = field(repr=False)
    """The encoded message, as it was peeked."""
    sequence_number: int | None = None
    enqueued_ms: int | None = None
    destination: str | None = None
    message_id: Any = None
    session_id: str | None = None
    """The session at the destination. Messages in the backlog have no session."""
    time_to_live_ms: int | None = None
    scheduled_ms: int | None = None
    problem: str | None = None
    """The reason with which a syphon would dead-letter the message, or None if it would deliver it
    to a destination that exists."""
    problem_description: str | None = None
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None
    application_properties: dict[Any, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The size of the encoded message in bytes."""
        return len(self.payload)

    def to_json(self, now_ms: int) -> dict[str, Any]:
        """Return all fields, the body included, for `json.dumps`."""
        enqueued, scheduled = self.enqueued_ms, self.scheduled_ms
        return {
            "queue": self.queue,
            "sequence_number": self.sequence_number,
            "enqueued_time": None if enqueued is None else iso_time(enqueued),
            "age_seconds": None if enqueued is None else max(now_ms - enqueued, 0) / 1000,
            "destination": self.destination,
            "message_id": amqp_to_json(self.message_id),
            "session_id": self.session_id,
            "time_to_live_ms": self.time_to_live_ms,
            "scheduled_time": None if scheduled is None else iso_time(scheduled),
            "size_in_bytes": self.size,
            "problem": self.problem,
            "problem_description": self.problem_description,
            "dead_letter_reason": self.dead_letter_reason,
            "dead_letter_description": self.dead_letter_description,
            "application_properties": amqp_to_json(self.application_properties),
            **_body_and_other_fields(self.payload),
        }


def read_message(queue: str, payload: bytes) -> BacklogMessage:
    """Read a message that was peeked. Never raises."""
    problem = problem_description = None
    try:
        from_backlog(payload)
    except NotTransferable as exc:
        problem, problem_description = exc.reason, str(exc)
    except DecodeError as exc:
        problem, problem_description = NOT_A_MESSAGE, exc.description
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
        problem_description=problem_description,
        dead_letter_reason=_text(properties.get(DEAD_LETTER_REASON)),
        dead_letter_description=_text(properties.get(DEAD_LETTER_DESCRIPTION)),
        application_properties=properties,
    )


def _try(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except DecodeError:
        return None


def _exactly(value: Any, kind: type[T]) -> T | None:
    # The syphon is as strict: a symbol is not a string, an AMQP int is not a long.
    return value if type(value) is kind else None


def _text(value: Any) -> str | None:
    return None if value is None else key_text(value)


def _annotation(payload: bytes, message: Message, name: str, kind: type[int]) -> int | None:
    """Return an annotation that the namespace wrote. If the message cannot be decoded, search the
    payload for its name: peeking needs the sequence number to get past such a message."""
    value = (_try(message.read_message_annotations) or {}).get(Symbol(name))
    position = payload.find(name.encode()) if value is None else -1
    if position >= 0:
        value = (_try(lambda: decode(payload, position + len(name))) or (None,))[0]
    return int(value) if isinstance(value, kind) and not isinstance(value, bool) else None


def _body_and_other_fields(payload: bytes) -> dict[str, Any]:
    """Return the fields that only the JSON contains. The body is text where it is valid UTF-8."""
    message = _try(lambda: Message.parse(payload))
    if message is None:
        return {**_binary_body("undecodable", payload), "delivery_count": None}
    positions = (SUBJECT, CORRELATION_ID, CONTENT_TYPE)
    values = _try(lambda: read_fields(message.properties, positions)) or [None] * len(positions)
    names = ("subject", "correlation_id", "content_type")
    header = _try(message.read_header)
    return {
        **_body(message),
        **{name: amqp_to_json(value) for name, value in zip(names, values, strict=True)},
        "delivery_count": None if header is None else int(header.delivery_count),
        "annotations": amqp_to_json(_try(message.read_message_annotations) or {}),
    }


def _body(message: Message) -> dict[str, Any]:
    body = _try(message.read_body)
    if body is None:
        return _binary_body("undecodable", message.body)
    section, values = body
    if section != DATA:
        body_type = "sequence" if section == SEQUENCE else "value"
        value = values[0] if len(values) == 1 else values or None
        return {"body_type": body_type, "body": amqp_to_json(value), "body_encoding": "json"}
    data = b"".join(values)
    try:
        return {"body_type": "data", "body": data.decode(), "body_encoding": "text"}
    except UnicodeDecodeError:
        return _binary_body("data", data)


def _binary_body(body_type: str, data: bytes) -> dict[str, Any]:
    text = base64.b64encode(data).decode()
    return {"body_type": body_type, "body": text, "body_encoding": "base64"}
