"""The contents of the backlog queues, as data."""

from dataclasses import dataclass
from typing import Any

from pairbus.backlog.discovery import queue_mismatch
from pairbus.backlog.json_values import oldest_to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueContents:
    """The contents of one backlog queue."""

    path: str
    index: int
    exists: bool = True
    messages: int | None = None
    """The number of active messages, locked ones included, or None if it is unknown."""
    dead_lettered: int | None = None
    more_messages: bool = False
    """True if there may be more messages, because they were peeked and not counted."""
    more_dead_lettered: bool = False
    size: int | None = None
    """The size in bytes, dead letters included."""
    oldest_ms: int | None = None
    """The enqueued time of the oldest active message."""
    problem: str | None = None

    def to_json(self, now_ms: int) -> dict[str, Any]:
        return {
            "queue": self.path,
            "index": self.index,
            "exists": self.exists,
            "messages": self.messages,
            "dead_lettered": self.dead_lettered,
            "more_messages": self.more_messages,
            "more_dead_lettered": self.more_dead_lettered,
            "size_in_bytes": self.size,
            **oldest_to_json(self.oldest_ms, now_ms),
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogContents:
    """The contents of all backlog queues: the expected ones, and others that exist."""

    queues: tuple[QueueContents, ...]
    """Sorted by index."""
    expected: int
    """The number of backlog queues that the pairing is configured with."""
    counting_error: str | None = None
    """The reason why the namespace returned no counts. Messages were peeked instead."""
    listing_error: str | None = None
    """The reason why the namespace returned no list of queues. Indexes were probed instead."""
    searched_to: int | None = None
    """The highest index that was probed, or None if all queues that exist are known."""

    @property
    def complete(self) -> bool:
        """True if all queues that exist are known, so that none can hold messages unseen."""
        return self.searched_to is None

    @property
    def found(self) -> tuple[int, ...]:
        """The indexes of the queues that exist."""
        return tuple(queue.index for queue in self.queues if queue.exists)

    @property
    def missing(self) -> tuple[int, ...]:
        """The indexes of expected queues that do not exist."""
        return tuple(
            queue.index for queue in self.queues if not queue.exists and queue.index < self.expected
        )

    @property
    def unexpected(self) -> tuple[int, ...]:
        """The indexes of queues that exist beyond the expected count."""
        return tuple(index for index in self.found if index >= self.expected)

    @property
    def queue_mismatch(self) -> str | None:
        """A sentence about expected queues that are missing and queues that are unexpected."""
        return queue_mismatch(self.expected, self.found)

    @property
    def messages(self) -> int | None:
        """The number of active messages, or None if it is unknown for every queue."""
        return self._sum([queue.messages for queue in self.queues])

    @property
    def dead_lettered(self) -> int | None:
        return self._sum([queue.dead_lettered for queue in self.queues])

    @property
    def more_messages(self) -> bool:
        """True if there may be more messages than `messages`."""
        return self._uncertain or any(queue.more_messages for queue in self.queues)

    @property
    def more_dead_lettered(self) -> bool:
        return self._uncertain or any(queue.more_dead_lettered for queue in self.queues)

    @property
    def _uncertain(self) -> bool:
        return self.problem is not None or not self.complete

    def _sum(self, numbers: list[int | None]) -> int | None:
        known = [number for number in numbers if number is not None]
        return sum(known) if known or self.problem is None else None

    @property
    def oldest_ms(self) -> int | None:
        times = [queue.oldest_ms for queue in self.queues if queue.oldest_ms is not None]
        return min(times, default=None)

    @property
    def problem(self) -> str | None:
        """The first problem of a queue."""
        return next((queue.problem for queue in self.queues if queue.problem is not None), None)

    def to_json(self, now_ms: int) -> dict[str, Any]:
        return {
            "expected": self.expected,
            "found": len(self.found),
            "missing": list(self.missing),
            "unexpected": list(self.unexpected),
            "queue_mismatch": self.queue_mismatch,
            "listing_error": self.listing_error,
            "searched_to": self.searched_to,
            "messages": self.messages,
            "dead_lettered": self.dead_lettered,
            "more_messages": self.more_messages,
            "more_dead_lettered": self.more_dead_lettered,
            **oldest_to_json(self.oldest_ms, now_ms),
            "counting_error": self.counting_error,
            "problem": self.problem,
            "queues": [queue.to_json(now_ms) for queue in self.queues],
        }
