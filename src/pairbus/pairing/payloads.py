"""What a caller wants sent, as the primary gets it and as the backlog does."""

import calendar
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus.amqp.batch import size_in_batch
from pairbus.amqp.section_edit import read_fields
from pairbus.amqp.sections import GROUP_ID, Message
from pairbus.errors import MessageTooLargeForBacklog, ReservedProperty
from pairbus.pairing.sdk import PairedBatch, annotated, encode, members, with_id
from pairbus.servicebus.limits import MAX_HEADER_SIZE
from pairbus.transfer import reserved_name, to_backlog


def checked(message: Any) -> Any:
    """A single message with an id, fit for the backlog. What is no message at all is left to the
    SDK to complain about. Raises ReservedProperty."""
    if not isinstance(message, ServiceBusMessage | AmqpAnnotatedMessage):
        if not isinstance(message, Mapping):
            return message
        try:
            # Made once, so that it has one id wherever it goes.
            message = ServiceBusMessage(**message)
        except TypeError:
            return message
    _refuse_reserved(annotated(message).application_properties)
    return with_id(message)


def _refuse_reserved(properties: Mapping[Any, Any] | None) -> None:
    name = reserved_name(properties) if properties else None
    if name is not None:
        raise ReservedProperty(
            f"the application property {name!r} is one that pairbus needs for messages in the "
            "backlog; give it another name"
        )


def no_message(given: Any) -> TypeError:
    """What the SDK raises for something that it cannot send, in its words."""
    return TypeError(
        "Only AmqpAnnotatedMessage, ServiceBusMessage instances or Mappings representing messages "
        f"are supported. Received instead: {type(given).__name__}"
    )


class OutgoingMessages:
    """One call's messages. `primary` is what the SDK's own call takes."""

    def __init__(self, messages: Any) -> None:
        self.primary: Any = messages
        self._encoded: list[bytes] | None = None
        if type(messages) is ServiceBusMessage:  # mostly
            self.primary = checked(messages)
        elif isinstance(messages, ServiceBusMessageBatch):
            if not isinstance(messages, PairedBatch):  # which has looked at each message
                for one in members(messages):
                    _refuse_reserved(Message.parse(one).read_application_properties())
        elif isinstance(messages, Iterable) and not isinstance(messages, Mapping):
            # A generator can be read once, and there may be two places to send to.
            self.primary = [checked(message) for message in messages]
        else:
            self.primary = checked(messages)

    def encoded(self) -> list[bytes]:
        """The messages as the plain SDK would send them."""
        if self._encoded is None:
            self._encoded = self._encode()
        return self._encoded

    def _encode(self) -> list[bytes]:
        if isinstance(self.primary, ServiceBusMessageBatch):
            return members(self.primary)
        singles = self.primary if isinstance(self.primary, list) else [self.primary]
        for message in singles:
            if not isinstance(message, ServiceBusMessage | AmqpAnnotatedMessage):
                raise no_message(message)
        return [encode(message) for message in singles]

    def for_backlog(self, path: str, at: datetime | None = None) -> list[bytes]:
        """The messages as they are in the backlog; `at` is when they are to be enqueued."""
        scheduled_ms = None if at is None else _milliseconds(at)
        return [to_backlog(one, path, scheduled_ms=scheduled_ms) for one in self.encoded()]

    def sessions(self) -> list[str | None]:
        """The session of each message."""
        return [
            read_fields(Message.parse(one).properties, (GROUP_ID,))[0] for one in self.encoded()
        ]


def _milliseconds(at: datetime) -> int:
    # As the SDK does: a time without a zone is UTC. `timestamp()` loses a millisecond now and then.
    return int(calendar.timegm(at.utctimetuple()) * 1000 + at.microsecond / 1000)


def check_size(payload: bytes, limit: int) -> None:
    """Raises MessageTooLargeForBacklog for a message that a backlog queue does not take."""
    size = size_in_batch(len(payload))
    if size > limit:
        raise MessageTooLargeForBacklog(
            f"a message takes {size} bytes in the backlog, of {limit}; it was not sent"
        )
    if len(payload) > MAX_HEADER_SIZE:
        headers = len(payload) - len(Message.parse(payload).body)
        if headers > MAX_HEADER_SIZE:
            raise MessageTooLargeForBacklog(
                f"all but the body of a message takes {headers} bytes in the backlog, "
                f"of {MAX_HEADER_SIZE}; it was not sent"
            )


def fill(payloads: list[bytes], places: list[int], limit: int) -> list[int]:
    """As many of the messages at these places as one batch takes, in order; at least one."""
    size = 0
    taken: list[int] = []
    for place in places:
        size += size_in_batch(len(payloads[place]))
        if taken and size > limit:
            break
        taken.append(place)
    return taken
