"""The outage that the cost belongs to, and the pace of inspections. No I/O."""

from dataclasses import dataclass
from typing import Final

IDLE_INTERVAL_S: Final = 300.0
"""Nothing waits, and all paths are healthy."""
WATCHED_INTERVAL_S: Final = 60.0
"""The same, while a page is open."""
OUTAGE_INTERVAL_S: Final = 15.0
SAMPLE_INTERVAL_S: Final = 60.0
"""The time between two samples of messages, which cost more than counts."""


@dataclass(slots=True)
class OutageClock:
    """Remembers when an outage began. It ends when all paths are healthy and the backlog is
    empty; its cost is shown until the next one begins."""

    started_at: float | None = None
    """Unix time. None: there was no outage yet."""
    active: bool = False

    def update(self, active: bool, since: float | None, now: float) -> bool:
        """Take the current state. `since` is the time of the first path that failed, if it is
        known. Return True if an outage began now."""
        began = active and not self.active
        if began:
            self.started_at = now if since is None else min(since, now)
        elif active and since is not None and self.started_at is not None:
            self.started_at = min(self.started_at, since)
        self.active = active
        return began


def inspection_interval_s(*, active: bool, watched: bool) -> float:
    """Return the time between two inspections of the namespaces. Each is billed."""
    if active:
        return OUTAGE_INTERVAL_S
    return WATCHED_INTERVAL_S if watched else IDLE_INTERVAL_S


@dataclass(slots=True)
class InspectionCounter:
    """Counts the billed operations of inspections."""

    operations: int = 0
    """All operations since the start."""
    counting: int = 0
    """Operations of the last inspection, without samples."""
    sampling: int = 0
    """Operations of the last samples."""

    def finish(self, counting: int, sampling: int | None) -> None:
        """Add an inspection. `sampling` is None if the samples of an earlier one were kept."""
        self.operations += counting + (sampling or 0)
        self.counting = counting
        if sampling is not None:
            self.sampling = sampling

    def per_hour(self, interval_s: float) -> int:
        """Return the operations in an hour at the current pace."""
        sampling_s = max(interval_s, SAMPLE_INTERVAL_S)
        return round(self.counting * 3600 / interval_s + self.sampling * 3600 / sampling_s)
