"""Locks of received messages: when they expire, and when there is too little time left.

The service says in each delivery until when its lock lasts, by its own clock. The clock of this
machine may differ, so the time that a new lock has left is limited to what the service allows.
"""

import time
from collections.abc import Callable

from pairbus.servicebus.limits import MAX_LOCK_S, MIN_LOCK_S
from pairbus.spark.messages import locked_until_of

MAX_MARGIN_MS = 5_000
MIN_MARGIN_MS = 1_000


def wall_clock_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class LockExpiry:
    """Calculates when the locks of the deliveries of one link expire, by the clock of this machine.

    The first delivery shows by how much the clocks differ at least: its lock is new, so it lasts
    from 5 seconds to 5 minutes.
    """

    def __init__(self, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._now_ms = now_ms
        self._correction: int | None = None

    def of(self, payload: bytes) -> int:
        """Return when the lock of a delivery expires, in milliseconds since 1970."""
        return self.corrected(locked_until_of(payload))

    def corrected(self, locked_until: int) -> int:
        """Return a time that the service has given, by the clock of this machine."""
        if self._correction is None:
            remaining = locked_until - self._now_ms()
            new = min(max(remaining, int(MIN_LOCK_S * 1000)), int(MAX_LOCK_S * 1000))
            self._correction = new - remaining
        return locked_until + self._correction


class LockMargin:
    """The time that a lock must have left for its message to be sent: a quarter of the lock, from 1
    to 5 seconds. The longest lock that a task has seen shows how long locks are."""

    def __init__(self) -> None:
        self._longest = 0

    def update(self, longest_remaining: int) -> int:
        """Return the margin in milliseconds, after messages with such locks were seen."""
        self._longest = max(self._longest, longest_remaining)
        return min(max(self._longest // 4, MIN_MARGIN_MS), MAX_MARGIN_MS)


def is_short(locked_until: int, lock_ms: int, now_ms: int) -> bool:
    """Return True if less than a third of a lock is left, or if it has expired."""
    return 3 * (locked_until - now_ms) < lock_ms
