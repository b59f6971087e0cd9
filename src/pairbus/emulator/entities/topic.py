"""Topics: what each subscription gets of a message."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from pairbus.amqp.sections import (
    CONTENT_TYPE,
    CORRELATION_ID,
    GROUP_ID,
    MESSAGE_ID,
    REPLY_TO,
    REPLY_TO_GROUP_ID,
    SUBJECT,
    TO,
    TTL,
    Message,
    Properties,
)
from pairbus.amqp.types import Symbol, Timestamp, UInt
from pairbus.emulator.entities.envelope import Incoming, read
from pairbus.emulator.filters.sql_action import Changes
from pairbus.emulator.filters.sql_values import EvaluationError
from pairbus.errors import DecodeError
from pairbus.servicebus import annotations

T = TypeVar("T")

_FIELDS = {
    "MessageId": MESSAGE_ID,
    "To": TO,
    "Label": SUBJECT,
    "ReplyTo": REPLY_TO,
    "CorrelationId": CORRELATION_ID,
    "ContentType": CONTENT_TYPE,
    "SessionId": GROUP_ID,
    "ReplyToSessionId": REPLY_TO_GROUP_ID,
}
_ATTRIBUTES = {
    "MessageId": "message_id",
    "To": "to",
    "Label": "subject",
    "ReplyTo": "reply_to",
    "CorrelationId": "correlation_id",
    "ContentType": "content_type",
    "SessionId": "group_id",
    "ReplyToSessionId": "reply_to_group_id",
}
_ANNOTATIONS = {
    "PartitionKey": annotations.PARTITION_KEY,
    "ViaPartitionKey": annotations.VIA_PARTITION_KEY,
    "ScheduledEnqueueTimeUtc": annotations.SCHEDULED_ENQUEUE_TIME,
    "DeadLetterSource": annotations.DEAD_LETTER_SOURCE,
}


class View:
    """A message as rules see it. What is not asked for is not decoded."""

    __slots__ = ("_annotations", "_incoming", "_now_ms", "_properties", "_user")

    def __init__(self, incoming: Incoming, now_ms: int) -> None:
        self._incoming = incoming
        self._now_ms = now_ms
        self._user: Mapping[str, Any] | None = None
        self._properties: Properties | None = None
        self._annotations: Mapping[Any, Any] | None = None

    @property
    def user(self) -> Mapping[str, Any]:
        if self._user is None:
            self._user = _readable(self._incoming.message.read_application_properties)
        return self._user

    def system(self, name: str) -> Any:
        message = self._incoming.message
        if name in _ATTRIBUTES:
            if self._properties is None:
                self._properties = _readable(message.read_properties)
            value = getattr(self._properties, _ATTRIBUTES[name])
            return None if value is None else str(value)
        if name in _ANNOTATIONS:
            if self._annotations is None:
                self._annotations = _readable(message.read_message_annotations)
            return self._annotations.get(_ANNOTATIONS[name])
        if name == "TimeToLive":
            ttl = self._incoming.ttl_ms
            return None if ttl is None else timedelta(milliseconds=ttl)
        if name == "EnqueuedTimeUtc":
            return Timestamp(self._now_ms)
        if name == "ExpiresAtUtc":
            ttl = self._incoming.ttl_ms
            return None if ttl is None else Timestamp(self._now_ms + ttl)
        if name == "Size":
            return self._incoming.size
        if name == "DeliveryCount":
            return 0
        return None


def _readable(section: Callable[[], T]) -> T:
    """A section, where it is what it should be: no sender is kept from sending it otherwise."""
    try:
        return section()
    except DecodeError as exc:
        raise EvaluationError(str(exc)) from exc


def changed(incoming: Incoming, changes: Changes) -> Incoming:
    """The copy of a message that an action makes. Without changes it is the message itself. Raises
    Refused or DecodeError for a copy that cannot be sent."""
    if not changes.user_set and not changes.user_removed and not changes.system_set:
        return incoming
    message = Message.parse(incoming.message.encode())
    message.edit_application_properties(changes.user_set, changes.user_removed)
    fields: dict[int, Any] = {}
    for name, value in changes.system_set.items():
        if name in _FIELDS:
            as_symbol = name == "ContentType" and value is not None
            fields[_FIELDS[name]] = Symbol(value) if as_symbol else value
        elif name in _ANNOTATIONS:
            key = _ANNOTATIONS[name]
            if value is None:
                message.edit_message_annotations({}, (key,))
            else:
                scheduled = name == "ScheduledEnqueueTimeUtc"
                kept = Timestamp.from_datetime(value) if scheduled else value
                message.edit_message_annotations({Symbol(key): kept}, (key,))
        elif name == "TimeToLive":
            ttl = None if value is None else int(value / timedelta(milliseconds=1))
            message.edit_header({TTL: None if ttl is None else UInt(min(ttl, 0xFFFFFFFF))})
    if fields:
        message.edit_properties(fields)
    return read(message.encode())
