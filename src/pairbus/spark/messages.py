"""Messages on their way through a Spark task: received from a queue, and ready to be forwarded."""

from typing import NamedTuple

from pairbus.amqp.sections import Message
from pairbus.errors import DecodeError
from pairbus.servicebus import annotations
from pairbus.servicebus.application_properties import PATH_ALIAS

_SEQUENCE_NUMBER = annotations.SEQUENCE_NUMBER.encode()
_LOCKED_UNTIL = annotations.LOCKED_UNTIL.encode()
_LONG, _SMALL_LONG, _TIMESTAMP = 0x81, 0x55, 0x83
"""AMQP type codes."""


class ReceivedMessage(NamedTuple):
    """An encoded message as a queue delivered it."""

    queue: str
    payload: bytes
    lock_token: bytes | None = None
    """The tag of the delivery. None for a message that was peeked."""
    locked_until: int = 0
    """The time when the lock expires at the earliest, in milliseconds since 1970."""
    lock_ms: int = 0
    """The duration of the lock, if a long poll received the message."""

    def restored(
        self,
        payload: bytes,
        destination: str | None,
        session_id: str | None,
        problem: str | None = None,
        description: str | None = None,
    ) -> "RestoredMessage":
        """Return the message that is to be sent, with the lock of this one."""
        return RestoredMessage(
            self.queue,
            self.lock_token,
            self.locked_until,
            session_id,
            destination,
            payload,
            problem,
            description,
        )


class RestoredMessage(NamedTuple):
    """A message to be sent to its destination, and the lock to be settled afterwards."""

    queue: str
    """The queue that holds the lock."""
    lock_token: bytes | None
    """None: there is nothing to settle."""
    locked_until: int
    """The time when the lock expires at the earliest, in milliseconds since 1970."""
    session_id: str | None
    destination: str | None
    payload: bytes
    problem: str | None = None
    """The reason for dead-lettering the message instead of sending it."""
    description: str | None = None
    """The description that the dead letter gets."""


def sequence_number_of(payload: bytes) -> int:
    """Return the sequence number of an encoded message, or 0 if it has none."""
    # Searching for the key is much cheaper than decoding all message annotations.
    start = payload.find(_SEQUENCE_NUMBER)
    if start < 0:
        return 0
    start += len(_SEQUENCE_NUMBER)
    if payload[start] == _LONG:
        return int.from_bytes(payload[start + 1 : start + 9], "big", signed=True)
    return payload[start + 1] if payload[start] == _SMALL_LONG else 0


def locked_until_of(payload: bytes) -> int:
    """Return when the lock of an encoded message expires, in milliseconds since 1970, by the clock
    of the service. 0 if the message does not say it."""
    start = payload.find(_LOCKED_UNTIL)
    if start < 0:
        return 0
    start += len(_LOCKED_UNTIL)
    if payload[start] != _TIMESTAMP:
        return 0
    return int.from_bytes(payload[start + 1 : start + 9], "big", signed=True)


def destination_of(payload: bytes) -> str | None:
    """Return the destination of an encoded backlog message, or None if it has none."""
    try:
        value = Message.parse(payload).read_application_properties().get(PATH_ALIAS)
    except DecodeError:
        return None
    return value if isinstance(value, str) else None
