"""The decision when to read messages again that were passed over: a filter dropped them, or an
operator paused their destination. The caller passes the time."""

FIRST_WAIT_S, MAX_WAIT_S = 15.0, 60.0
"""The time until the queues are peeked for other messages, one operation for each queue. It doubles
up to the maximum."""


class FilteredReads:
    """Holds reads back after a micro-batch from which no message was removed.

    Dropped messages stay in the backlog, and a receiver gets them again when their locks have
    expired. Each receive is billed, so they are read again only if there is a reason to.
    """

    def __init__(self) -> None:
        self._removed: int | None = None
        """The number of removed messages when the last micro-batch was planned."""
        self._wait_s = FIRST_WAIT_S
        self._until = 0.0

    def planned(self, now: float, removed: int) -> None:
        """Take note of a micro-batch. `removed` is the total of all messages so far that were moved
        or dead-lettered."""
        self._wait_s = self._next_wait_s() if removed == self._removed else FIRST_WAIT_S
        self._removed, self._until = removed, now + self._wait_s

    def found_none(self, now: float) -> None:
        """Take note of a check that found no message to move."""
        self._wait_s = self._next_wait_s()
        self._until = now + self._wait_s

    def were_dropped(self, removed: int) -> bool:
        """Return True if no message was removed since the last micro-batch was planned."""
        return removed == self._removed

    def wait_s(self, now: float) -> float:
        """Return the time until the next check or micro-batch."""
        return max(0.0, self._until - now)

    def _next_wait_s(self) -> float:
        return min(2 * self._wait_s, MAX_WAIT_S)
