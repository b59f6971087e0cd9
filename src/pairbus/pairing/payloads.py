"""The messages of a call: prepared for the primary, and encoded for the backlog."""

import calendar
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus.amqp.batch import size_in_batch
from pairbus.amqp.section_edit import read_fields
from pairbus.amqp.sections import GROUP_ID, MESSAGE_ID
from pairbus.amqp.sections import Message as AmqpMessage
from pairbus.errors import MessageTooLargeForBacklog, ReservedProperty
from pairbus.pairing.sdk import (
    CONTEXT_TEXTS,
    LinkLimits,
    batch_settings,
    encode,
    encode_traced,
    is_tracing_enabled,
    keep_context,
    members,
    with_new_id,
)
from pairbus.pairing.sdk_payloads import BatchEncoder
from pairbus.servicebus.limits import MAX_HEADER_SIZE, MAX_MESSAGE_SIZE_STANDARD
from pairbus.transfer import RESERVED_NAMES, reserved_name, to_backlog

MessageTypes: TypeAlias = (
    ServiceBusMessage
    | AmqpAnnotatedMessage
    | Mapping[str, object]
    | Iterable[ServiceBusMessage]
    | Iterable[AmqpAnnotatedMessage]
    | Iterable[Mapping[str, object]]
)
"""One or several messages, as the senders of the SDK accept them."""
_EXAMINED_NAMES = RESERVED_NAMES | CONTEXT_TEXTS
"""The names of application properties that must not be sent as they are."""


def prepare(messages: Any) -> Any:
    """Return messages as a sender of the SDK accepts them, each with a message id. A value that is
    not a message is returned unchanged, and the SDK raises its error. Raises ReservedProperty."""
    if type(messages) is ServiceBusMessage:  # the most frequent case
        return prepare_message(messages)
    if isinstance(messages, ServiceBusMessageBatch):
        if not isinstance(messages, PairedBatch):  # which checked each message when it was added
            for member in members(messages):
                _check_reserved(AmqpMessage.parse(member).read_application_properties())
        return messages
    if isinstance(messages, Iterable) and not isinstance(messages, Mapping):
        # A generator can be read only once, and the messages may be sent twice.
        return [prepare_message(message) for message in messages]
    return prepare_message(messages)


def prepare_message(message: Any) -> Any:
    """Return a single message with a message id. Raises ReservedProperty."""
    if isinstance(message, ServiceBusMessage):
        raw = message.raw_amqp_message
    elif isinstance(message, AmqpAnnotatedMessage):
        raw = message
    elif isinstance(message, Mapping):
        try:
            # Converted once, so that the primary and the backlog get the same message id.
            converted = ServiceBusMessage(**message)
        except TypeError:
            return message
        return prepare_message(converted)
    else:
        return message
    properties = raw.application_properties
    if properties and not _EXAMINED_NAMES.isdisjoint(properties):
        _check_reserved(properties)
        message = keep_context(message)
    if raw.properties is None or raw.properties.message_id is None:
        return with_new_id(message)
    return message


def _check_reserved(properties: Mapping[Any, Any]) -> None:
    name = reserved_name(properties)
    if name is not None:
        raise ReservedProperty(
            f"The application property {name!r} is reserved for messages in the backlog. Use "
            "another name."
        )


def message_count(messages: Any) -> int:
    """Return the number of messages in a result of `prepare`."""
    return len(messages) if isinstance(messages, list | ServiceBusMessageBatch) else 1


def not_a_message(value: object) -> TypeError:
    """Return the error that the SDK raises for a value that is not a message."""
    return TypeError(
        "Only AmqpAnnotatedMessage, ServiceBusMessage instances or Mappings representing messages "
        f"are supported. Received instead: {type(value).__name__}"
    )


class PairedBatch(ServiceBusMessageBatch):
    """A batch of the SDK that adds missing message ids, and refuses reserved property names."""

    def __init__(self, max_size_in_bytes: int | None = None, **settings: Any) -> None:
        super().__init__(max_size_in_bytes, **settings)
        self._encoder = BatchEncoder()

    @classmethod
    def like(cls, batch: ServiceBusMessageBatch) -> "PairedBatch":
        """Return an empty batch with the limits of another batch."""
        return cls(**batch_settings(batch))

    def add_message(self, message: Any) -> None:
        """Add a message, as `ServiceBusMessageBatch.add_message` does. Raises ReservedProperty."""
        self._encoder.add(self, prepare_message(message))


def paired_batch(batch: ServiceBusMessageBatch | None, size: int | None) -> PairedBatch:
    """Return a paired batch with the limits of a batch of the SDK. None means that no namespace
    answered; then the limit is one that every namespace accepts."""
    if batch is None:
        return PairedBatch(max_size_in_bytes=MAX_MESSAGE_SIZE_STANDARD if size is None else size)
    return PairedBatch.like(batch)


class Payloads:
    """The encoded messages of one call. `messages` is a result of `prepare`."""

    def __init__(self, messages: Any) -> None:
        self._messages = messages
        self._encoded: list[bytes] | None = None
        self._traced_for: tuple[str, str] | None = None
        self.traced = False
        """The tracing of the SDK is enabled, and `add_trace_context` was called."""

    def add_trace_context(self, host: str, path: str) -> None:
        """Let the SDK trace each message that is not in a batch, as if it sent the message to this
        path: it makes a span, and adds its context to the message. Does nothing if the SDK's
        tracing is not enabled. The SDK traced the messages of a batch when they were added."""
        if self._traced_for is None and is_tracing_enabled():
            self._traced_for = host, path
            self._encoded = None
            self.traced = True

    def encoded(self) -> list[bytes]:
        """Return the messages as the SDK would send them to the primary."""
        if self._encoded is None:
            self._encoded = self._encode()
        return self._encoded

    def _encode(self) -> list[bytes]:
        if isinstance(self._messages, ServiceBusMessageBatch):
            return members(self._messages)
        messages = self._messages if isinstance(self._messages, list) else [self._messages]
        for message in messages:
            if not isinstance(message, ServiceBusMessage | AmqpAnnotatedMessage):
                raise not_a_message(message)
        if self._traced_for is not None:
            return [encode_traced(message, *self._traced_for) for message in messages]
        return [encode(message) for message in messages]

    def for_backlog(self, path: str, enqueue_at: datetime | None = None) -> list[bytes]:
        """Return the messages as they are stored in the backlog for a path."""
        scheduled_ms = None if enqueue_at is None else _milliseconds(enqueue_at)
        return [to_backlog(payload, path, scheduled_ms=scheduled_ms) for payload in self.encoded()]

    def sessions(self) -> list[str | None]:
        """Return the session id of each message."""
        return self._fields(GROUP_ID)

    def ids(self) -> list[Any]:
        """Return the message id of each message."""
        return self._fields(MESSAGE_ID)

    def _fields(self, index: int) -> list[Any]:
        return [
            read_fields(AmqpMessage.parse(payload).properties, (index,))[0]
            for payload in self.encoded()
        ]


def _milliseconds(time: datetime) -> int:
    # As in the SDK: a time without a zone is UTC. `timestamp()` loses milliseconds by rounding.
    return int(calendar.timegm(time.utctimetuple()) * 1000 + time.microsecond / 1000)


def check_size(payload: bytes, limit: int) -> None:
    """Raise MessageTooLargeForBacklog if a message exceeds the limits of a backlog queue. `limit`
    is that for single messages."""
    size = len(payload)
    if size > limit:
        raise MessageTooLargeForBacklog(
            f"A message of {size} bytes does not fit into the backlog, which allows {limit} bytes. "
            "Send a smaller message."
        )
    if len(payload) > MAX_HEADER_SIZE:
        headers = len(payload) - len(AmqpMessage.parse(payload).body)
        if headers > MAX_HEADER_SIZE:
            raise MessageTooLargeForBacklog(
                f"The headers and properties of a message take {headers} bytes in the backlog, "
                f"which allows {MAX_HEADER_SIZE} bytes. Send a smaller message."
            )


def check_backlog_size(
    messages: Any, path: str, limit: int, enqueue_at: datetime | None = None
) -> None:
    """Raise MessageTooLargeForBacklog for prepared messages that would not fit into the backlog."""
    for payload in Payloads(messages).for_backlog(path, enqueue_at):
        check_size(payload, limit)


def fits_directly(payloads: list[bytes], limits: LinkLimits) -> bool:
    """Return whether messages surely fit into one delivery, by their sizes alone."""
    if len(payloads) == 1:
        return len(payloads[0]) <= min(MAX_HEADER_SIZE, limits.max_message_size)
    sizes = list(map(len, payloads))
    return (
        0 < max(sizes, default=0) <= MAX_HEADER_SIZE
        and sum(map(size_in_batch, sizes)) <= limits.max_batch_size
    )


def fill_batch(payloads: list[bytes], positions: list[int], limit: int) -> list[int]:
    """Return the first positions whose messages fit into one batch, at least one."""
    size = 0
    filled: list[int] = []
    for position in positions:
        size += size_in_batch(len(payloads[position]))
        if filled and size > limit:
            break
        filled.append(position)
    return filled
