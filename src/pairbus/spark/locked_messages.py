"""A check, by peeking, for messages that other receivers have locked.

A stream with an AvailableNow trigger waits for them. It does not wait for messages that it has read
itself: its sink may not settle messages, and then they stay in their queue.
"""

from collections.abc import Mapping, Sequence, Set

from pairbus.amqp.client import Client, ClientOptions, Management
from pairbus.errors import EntityNotFound
from pairbus.spark.emptiness import is_active
from pairbus.spark.messages import sequence_number_of

MAX_INACTIVE = 100
"""The deferred and scheduled messages of a queue that are passed, because each peek is billed."""


class LockedMessages:
    """Peeks at queues over one connection. Call `close` last."""

    def __init__(self, options: ClientOptions, queues: Sequence[str]) -> None:
        self._client = Client(options)
        self._managements = {queue: Management(self._client, queue) for queue in queues}

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def exist(self, read: Mapping[str, Set[int]]) -> bool:
        """Return True if the oldest message of any queue is not one of those that were read, which
        are given by their sequence numbers. Raises AmqpError if a queue cannot be read."""
        for queue in self._managements:
            number = self._oldest(queue)
            if number is not None and number not in read.get(queue, ()):
                return True
        return False

    def _oldest(self, queue: str) -> int | None:
        """Return the number of the oldest message that is neither deferred nor scheduled."""
        start = 1
        for _ in range(MAX_INACTIVE):
            try:
                payloads = self._managements[queue].peek(start, 1)
            except EntityNotFound:
                return None
            if not payloads:
                return None
            number = sequence_number_of(payloads[0])
            if is_active(payloads[0]):
                return number
            start = number + 1
        return None
