"""Counts the throttled operations of senders and the syphon. No I/O."""

from dataclasses import dataclass


@dataclass(slots=True)
class IncreaseCounter:
    """Adds up the increases of a number that starts at 0 with each process."""

    total: int = 0
    _last: int | None = None

    def update(self, value: int | None) -> None:
        """Take the current number; None: it is not known. The first one is not an increase: it is
        not known when it happened."""
        if value is None:
            return
        if self._last is not None:
            self.total += value - self._last if value >= self._last else value
        self._last = value
