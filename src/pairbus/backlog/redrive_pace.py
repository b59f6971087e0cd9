"""The rate of a redrive, and the pauses after failures. The caller passes the time."""

from typing import Final

MIN_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 15.0


class RedriveRate:
    """Limits messages a second. None: there is no limit."""

    def __init__(self, max_rate: float | None) -> None:
        self._max_rate = max_rate
        self._next_at: float | None = None

    def chunk(self, size: int) -> int:
        """Return the number of messages to receive at once: at most those of one second."""
        return size if self._max_rate is None else min(size, max(1, int(self._max_rate)))

    def pause_s(self, handled: int, now: float) -> float:
        """Return the time to wait after some messages were handled. The time that they took is
        deducted, except for the first ones. A delay is not made up for."""
        if self._max_rate is None:
            return 0.0
        duration_s = handled / self._max_rate
        started = now if self._next_at is None else max(self._next_at, now - duration_s)
        self._next_at = started + duration_s
        return self._next_at - now


class Backoff:
    """Pauses that double with each failure."""

    def __init__(self) -> None:
        self._delay_s = MIN_BACKOFF_S
        self._due_at = 0.0

    def next_s(self) -> float:
        """Return the next pause."""
        delay_s = self._delay_s
        self._delay_s = min(2 * delay_s, MAX_BACKOFF_S)
        return delay_s

    def fail(self, now: float) -> None:
        """Set the time of the next attempt."""
        self._due_at = now + self.next_s()

    def is_due(self, now: float) -> bool:
        """Return True if the time of the next attempt has come."""
        return now >= self._due_at

    def reset(self) -> None:
        """Start again with the shortest pause."""
        self._delay_s = MIN_BACKOFF_S
