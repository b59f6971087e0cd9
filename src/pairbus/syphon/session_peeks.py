"""Peeks that show the sessions of backlog messages."""

from collections.abc import Callable, Hashable

from pairbus.amqp.client import Client, ClientOptions, Management
from pairbus.errors import AmqpError, EntityNotFound
from pairbus.spark.emptiness import is_active
from pairbus.spark.messages import (
    ReceivedMessage,
    RestoredMessage,
    destination_of,
    sequence_number_of,
)
from pairbus.spark.usage import UsageRecorder
from pairbus.syphon.restore import restore
from pairbus.syphon.session_order import GapsUnknown, PeekedMessage
from pairbus.usage.operations import OperationKind


def session_of(message: RestoredMessage, only: tuple[str, ...]) -> Hashable | None:
    """Return the session of a message, which is one of its destination. None: it has none, or is
    not one of those that are moved."""
    if message.session_id is None or message.problem is not None:
        return None
    if only and message.destination not in only:
        return None
    return message.destination, message.session_id


def record_peek(usage: UsageRecorder, queue: str, messages: list[bytes] | None) -> None:
    """Record the operations of a peek. None instead of the messages: it failed."""
    for payload in messages or ():
        usage.add(OperationKind.PEEK, destination_of(payload), [len(payload)])
    if not messages:
        usage.add(OperationKind.PEEK, queue, answered=messages is not None)
    usage.flush()


class SessionPeeks:
    """Peeks at backlog queues, and records it."""

    def __init__(
        self,
        management: Callable[[str], Management],
        usage: UsageRecorder,
        only: tuple[str, ...] = (),
    ) -> None:
        """`management` returns the management link of a queue."""
        self._management = management
        self._usage = usage
        self._only = only

    def peek(self, queue: str, first: int, count: int) -> list[PeekedMessage]:
        """Return the messages from a sequence number on. Raises GapsUnknown."""
        try:
            payloads = self._management(queue).peek(first, count)
        except EntityNotFound:
            return []
        except AmqpError as exc:
            record_peek(self._usage, queue, None)
            raise GapsUnknown(str(exc)) from exc
        record_peek(self._usage, queue, payloads)
        return [self._parse(payload) for payload in payloads]

    def _parse(self, payload: bytes) -> PeekedMessage:
        session = None
        if is_active(payload):
            session = session_of(restore(ReceivedMessage("", payload), None), self._only)
        return PeekedMessage(sequence_number_of(payload), session)


class DriverPeeks(SessionPeeks):
    """Peeks over a connection of its own. Call `close` last."""

    def __init__(
        self, options: ClientOptions, usage: UsageRecorder, only: tuple[str, ...] = ()
    ) -> None:
        self._client = Client(options)
        self._managements: dict[str, Management] = {}
        super().__init__(self._open, usage, only)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _open(self, queue: str) -> Management:
        if queue not in self._managements:
            self._managements[queue] = Management(self._client, queue)
        return self._managements[queue]
