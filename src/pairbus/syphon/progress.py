"""Progress of a drain and its time to go. No I/O, no clock."""

from collections import deque
from dataclasses import dataclass, field

WINDOW_S = 30.0
"""The time over which the rate is measured. It includes the pauses of a namespace that throttles,
so that the time to go does not jump at each of them."""
COUNT_WINDOW_S = 60.0
"""The time over which the messages that still arrive are measured."""
MIN_COUNT_INTERVAL_S = 4.0
QUIET_S = 5.0
"""The time without progress after which a shorter time to go is no longer believed. Micro-batches
and throttled namespaces pause for less."""


def seconds_to_go(remaining: int | None, rate: float, arrivals: float = 0.0) -> float | None:
    """Return the time until the backlog is empty, or None if it is unknown. `rate` is the number of
    messages a second that leave the backlog, `arrivals` the number that still arrive."""
    if remaining == 0:
        return 0.0
    if remaining is None or rate <= arrivals:
        return None
    return remaining / (rate - arrivals)


@dataclass(slots=True)
class DrainProgress:
    """Measures a drain from totals of removed messages and counts of the backlog.

    Counts are billed and thus rare. Between two of them, the messages that were removed since are
    subtracted from the last one. It is not known which messages of a micro-batch in progress were
    counted: the remaining messages must not be too few, nor the total too high.
    """

    total: int = 0
    """The messages of this backlog, removed and remaining. It never shrinks, until the backlog is
    empty: messages that arrive later are another backlog."""
    _removed: int = 0
    _removed_before: int = 0
    """Messages of earlier backlogs."""
    _moved_at: float = 0.0
    _samples: deque[tuple[float, int]] = field(default_factory=deque)
    _counts: deque[tuple[float, int, int]] = field(default_factory=deque)
    _removed_at_count: int = 0
    """The messages that were removed when the last count had ended."""

    def add(self, now: float, removed: int) -> None:
        """Add the number of messages that were removed from the backlog so far."""
        if removed > self._removed:
            self._removed, self._moved_at = removed, now
        # Spark starts slowly: the time before the first message is not part of the rate.
        if self._samples and self._samples[-1][1] == self._samples[0][1] == self._removed:
            self._samples.clear()
        self._samples.append((now, self._removed))
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW_S:
            self._samples.popleft()
        self._update_total()

    def add_count(self, now: float, removed: int, count: int) -> None:
        """Add a count of the backlog, which contains none of the first `removed` messages that were
        removed."""
        self._counts.append((now, removed, count))
        self._removed_at_count = max(removed, self._removed)
        while len(self._counts) > 2 and self._counts[1][0] <= now - COUNT_WINDOW_S:
            self._counts.popleft()
        if count == 0:
            self._removed_before, self.total = max(removed, self._removed), 0
        self._update_total()

    @property
    def done(self) -> int:
        """The messages of this backlog that were removed."""
        return self._removed - self._removed_before

    @property
    def remaining(self) -> int | None:
        """The messages that are left now. None: they were never counted."""
        return self._remaining_since(self._removed_at_count) if self._counts else None

    @property
    def rate(self) -> float:
        """The messages a second that were removed recently."""
        return _slope(self._samples)

    @property
    def arrivals(self) -> float:
        """The messages a second that were stored recently."""
        if len(self._counts) < 2:
            return 0.0
        (start, removed, count), (end, removed_later, count_later) = (
            self._counts[0],
            self._counts[-1],
        )
        if end - start < MIN_COUNT_INTERVAL_S:
            return 0.0
        return max(0.0, (count_later - count + removed_later - removed) / (end - start))

    @property
    def seconds_to_go(self) -> float | None:
        """The time until the backlog is empty, or None if it is unknown. It is unknown too while
        nothing is moved for longer than the rest would take: locks may have to expire first."""
        seconds = seconds_to_go(self.remaining, self.rate, self.arrivals)
        if self.remaining and seconds is not None and self._quiet_s > max(QUIET_S, seconds):
            return None
        return seconds

    @property
    def _quiet_s(self) -> float:
        """The time since the last message was removed."""
        return self._samples[-1][0] - self._moved_at if self._samples else 0.0

    def _remaining_since(self, removed: int) -> int:
        """Return the last count without the messages that were removed after the first `removed`
        ones."""
        return max(0, self._counts[-1][2] - max(0, self._removed - removed))

    def _update_total(self) -> None:
        if self._counts:
            removed = self._counts[-1][1]
            self.total = max(self.total, self.done + self._remaining_since(removed))


def _slope(samples: deque[tuple[float, int]]) -> float:
    if len(samples) < 2:
        return 0.0
    (start, first), (end, last) = samples[0], samples[-1]
    return (last - first) / (end - start) if end > start else 0.0
