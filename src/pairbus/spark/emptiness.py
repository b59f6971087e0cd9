"""A check, by peeking, that queues are empty.

A receiver does not see messages that another receiver has locked, so an empty receive does not mean
an empty queue. A peek shows every message of a queue: available, locked, deferred or scheduled. It
needs the Listen right only, and each message that it shows is billed as one operation.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

from pairbus.amqp.client import Client, ClientOptions, Management
from pairbus.amqp.sections import Message
from pairbus.errors import AmqpError, DecodeError, EntityNotFound
from pairbus.servicebus import annotations
from pairbus.servicebus.message_states import DEFERRED, SCHEDULED
from pairbus.spark.messages import sequence_number_of

PAGE_SIZE = 100
"""Messages of one peek, if more than the first one matters."""
MAX_COUNTED = 100
"""The highest number of messages that are counted in each queue, because each is billed."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """The messages that are left in the queues, by state."""

    active: int = 0
    """Neither deferred nor scheduled. If they cannot be received, they are locked."""
    deferred: int = 0
    scheduled: int = 0
    more: bool = False
    """There are more messages than were counted."""

    def __str__(self) -> str:
        total = self.active + self.deferred + self.scheduled
        states = (
            (self.active, "locked by another receiver"),
            (self.deferred, "deferred"),
            (self.scheduled, "scheduled"),
        )
        details = ", ".join(f"{count:,} {state}" for count, state in states if count)
        prefix = "at least " if self.more else ""
        subject = "message is" if total == 1 else "messages are"
        return f"{prefix}{total:,} {subject} left in the backlog" + (
            f": {details}" if details else ""
        )


def _all_messages(queue: str, messages: list[bytes]) -> list[bool]:
    return [True] * len(messages)


class EmptinessCheck:
    """Peeks at queues over one connection. A queue that does not exist counts as empty.

    With `select`, only messages for which it returns True count. Each message that does not count
    is peeked once: the next peek of its queue starts behind it, since newer messages have higher
    sequence numbers.
    """

    def __init__(
        self,
        options: ClientOptions,
        queues: Sequence[str],
        *,
        select: Callable[[str, list[bytes]], list[bool]] = _all_messages,
        on_peek: Callable[[str, list[bytes] | None], None],
    ) -> None:
        """`on_peek` is called with the queue and the messages of each peek, or with None instead of
        the messages if the peek failed."""
        self._client = Client(options)
        self._managements = {queue: Management(self._client, queue) for queue in queues}
        self._start = dict.fromkeys(queues, 1)
        self._order = list(queues)
        self._select = select
        self._on_peek = on_peek

    def reset(self) -> None:
        """Peek at all messages again: `select` has changed."""
        self._start = dict.fromkeys(self._start, 1)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def are_empty(self) -> bool:
        """Return True if no message counts. Raises AmqpError if a queue cannot be read."""
        for queue in self._order:
            if self._holds_a_message(queue):
                # The next check starts with this queue, and usually needs one peek only.
                self._order.remove(queue)
                self._order.insert(0, queue)
                return False
        return True

    def remaining(self) -> Remaining:
        """Return the number of messages by state, at most `MAX_COUNTED` of each queue. Raises
        AmqpError if a queue cannot be read."""
        counts = {0: 0, DEFERRED: 0, SCHEDULED: 0}
        more = False
        for queue in self._order:
            peeked = 0
            for messages in self._pages(queue, PAGE_SIZE):
                for message in compress(messages, self._select(queue, messages)):
                    counts[_state_of(message)] += 1
                peeked += len(messages)
                if peeked >= MAX_COUNTED:
                    more = True
                    break
        return Remaining(counts[0], counts[DEFERRED], counts[SCHEDULED], more)

    def _holds_a_message(self, queue: str) -> bool:
        for messages in self._pages(queue, 1):
            selected = self._select(queue, messages)
            for message, is_selected in zip(messages, selected, strict=True):
                if is_selected:
                    return True
                # Sequence numbers have gaps and never repeat, so the start always moves forward.
                self._start[queue] = max(self._start[queue], sequence_number_of(message)) + 1
        return False

    def _pages(self, queue: str, size: int) -> Iterator[list[bytes]]:
        """Peek all messages of a queue: first `size`, then `PAGE_SIZE` at a time."""
        start = self._start[queue]
        while messages := self._peek(queue, start, size):
            yield messages
            start = max(start + len(messages) - 1, sequence_number_of(messages[-1])) + 1
            size = PAGE_SIZE

    def _peek(self, queue: str, start: int, size: int) -> list[bytes]:
        try:
            messages = self._managements[queue].peek(start, size)
        except EntityNotFound:
            return []
        except AmqpError:
            self._on_peek(queue, None)
            raise
        self._on_peek(queue, messages)
        return messages


def is_active(payload: bytes) -> bool:
    """Return True if a peeked message is neither deferred nor scheduled."""
    return _state_of(payload) == 0


def _state_of(payload: bytes) -> int:
    try:
        state = Message.parse(payload).read_message_annotations().get(annotations.MESSAGE_STATE)
    except DecodeError:
        return 0
    return int(state) if state in (DEFERRED, SCHEDULED) else 0
