"""The clock of a namespace: the time of this machine, plus the time that was skipped."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pairbus.errors import ConfigurationError

LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""A clock cannot be advanced beyond this time: locks and expiries must be valid timestamps."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def machine_ms() -> int:
    """Return the time of this machine."""
    return time.time_ns() // 1_000_000


class NamespaceClock:
    """A clock in milliseconds since 1970 that can be moved forward, but not back."""

    def __init__(self, machine_ms: Callable[[], int], offset_ms: int = 0) -> None:
        """`machine_ms` returns the time of this machine."""
        self.machine_ms = machine_ms
        """The time by which clients go: tokens expire by it, and clients wait by it."""
        self.offset_ms = offset_ms
        """The time that was skipped so far."""

    def now_ms(self) -> int:
        return self.machine_ms() + self.offset_ms

    def now(self) -> datetime:
        return _EPOCH + timedelta(milliseconds=self.now_ms())

    def advance(self, span: timedelta) -> int:
        """Skip a span of time, and return its milliseconds.

        Raises ConfigurationError for a negative span, and for one that ends after the year 8999.
        """
        if span < timedelta(0):
            raise ConfigurationError(f"The clock of a namespace cannot go back (by {-span}).")
        if span > LATEST - self.now():
            raise ConfigurationError(
                f"The clock of a namespace cannot be advanced by {span}, beyond the year 8999."
            )
        span_ms = span // timedelta(milliseconds=1)
        self.offset_ms += span_ms
        return span_ms
