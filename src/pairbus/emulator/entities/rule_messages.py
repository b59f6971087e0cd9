"""Messages as subscription rules read and change them."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any, TypeVar

from pairbus.amqp.sections import TTL, Message, Properties, ttl_field
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.emulator.entities.message_codec import IncomingMessage, parse_message
from pairbus.emulator.filters.actions import MessageChanges
from pairbus.emulator.filters.values import EvaluationError
from pairbus.errors import DecodeError
from pairbus.servicebus import annotations

T = TypeVar("T")

_FIELDS = {
    "MessageId": "message_id",
    "To": "to",
    "Label": "subject",
    "ReplyTo": "reply_to",
    "CorrelationId": "correlation_id",
    "ContentType": "content_type",
    "SessionId": "group_id",
    "ReplyToSessionId": "reply_to_group_id",
}
"""The fields of the properties section, by the name of the system property."""
_INDEXES = {field.name: index for index, field in enumerate(fields(Properties))}
_ANNOTATIONS = {
    "PartitionKey": annotations.PARTITION_KEY,
    "ViaPartitionKey": annotations.VIA_PARTITION_KEY,
    "ScheduledEnqueueTimeUtc": annotations.SCHEDULED_ENQUEUE_TIME,
    "DeadLetterSource": annotations.DEAD_LETTER_SOURCE,
}


class RuleMessage:
    """A sent message for the evaluation of rules. Its sections are decoded when they are needed."""

    __slots__ = ("_annotations", "_message", "_now_ms", "_properties", "_user")

    def __init__(self, message: IncomingMessage, now_ms: int) -> None:
        self._message = message
        self._now_ms = now_ms
        self._user: Mapping[str, Any] | None = None
        self._properties: Properties | None = None
        self._annotations: Mapping[Any, Any] | None = None

    @property
    def user(self) -> Mapping[str, Any]:
        if self._user is None:
            self._user = _decode(self._message.sections.read_application_properties)
        return self._user

    def system(self, name: str) -> Any:
        sections = self._message.sections
        if name in _FIELDS:
            if self._properties is None:
                self._properties = _decode(sections.read_properties)
            value = getattr(self._properties, _FIELDS[name])
            return None if value is None else str(value)
        if name in _ANNOTATIONS:
            if self._annotations is None:
                self._annotations = _decode(sections.read_message_annotations)
            return self._annotations.get(_ANNOTATIONS[name])
        if name == "TimeToLive":
            ttl_ms = self._message.ttl_ms
            return None if ttl_ms is None else timedelta(milliseconds=ttl_ms)
        if name == "EnqueuedTimeUtc":
            return Timestamp(self._now_ms)
        if name == "ExpiresAtUtc":
            ttl_ms = self._message.ttl_ms
            return None if ttl_ms is None else Timestamp(self._now_ms + ttl_ms)
        if name == "Size":
            return self._message.size
        if name == "DeliveryCount":
            return 0
        return None


def _decode(section: Callable[[], T]) -> T:
    """Decode a section. Senders can send invalid ones, so this is an error of evaluation only."""
    try:
        return section()
    except DecodeError as exc:
        raise EvaluationError(str(exc)) from exc


def apply_changes(message: IncomingMessage, changes: MessageChanges) -> IncomingMessage:
    """Return a copy of a message with the changes of an action, or the message if there are none.

    Raises Refused or DecodeError if the copy would not be accepted from a sender.
    """
    if not changes.user_set and not changes.user_removed and not changes.system_set:
        return message
    copy = Message.parse(message.sections.encode())
    copy.edit_application_properties(changes.user_set, changes.user_removed)
    properties: dict[int, Any] = {}
    for name, value in changes.system_set.items():
        if name in _FIELDS:
            as_symbol = name == "ContentType" and value is not None
            properties[_INDEXES[_FIELDS[name]]] = Symbol(value) if as_symbol else value
        elif name in _ANNOTATIONS:
            key = _ANNOTATIONS[name]
            if value is None:
                copy.edit_message_annotations({}, (key,))
            else:
                is_time = name == "ScheduledEnqueueTimeUtc"
                annotation = Timestamp.from_datetime(value) if is_time else value
                copy.edit_message_annotations({Symbol(key): annotation}, (key,))
        elif name == "TimeToLive":
            ttl_ms = None if value is None else int(value / timedelta(milliseconds=1))
            copy.edit_header({TTL: ttl_field(ttl_ms)})
    if properties:
        copy.edit_properties(properties)
    return parse_message(copy.encode())
