"""The status that the reader of the backlog reports."""

from collections.abc import Callable
from dataclasses import dataclass, replace

REPORT_S = 1.0
"""The longest time between two reports of a reader that runs."""


@dataclass(frozen=True, slots=True)
class ReaderStatus:
    """The view that the reader has of the backlog queues. Times are in seconds since 1970."""

    reported_at: float = 0.0
    waiting_since: float | None = None
    """The time since when messages wait that are to be moved. None: there are none."""
    empty_since: float | None = None
    """The time since when no such messages wait. None: there are some, or it is not known."""
    failing_since: float | None = None
    """The time since when the queues cannot be read. None: they can."""
    error: str | None = None
    """The reason why the queues cannot be read."""
    paused_until: float = 0.0
    """The rate limit allows no message to be moved before this time."""
    remaining: str | None = None
    """A description of messages that a peek showed and that cannot be received."""
    drained: bool = False
    """In a run that ends by itself: a peek of every queue showed that nothing is left."""
    paused: bool = False
    """An operator has paused the syphon."""
    throttled: int = 0
    """Receives, polls and peeks that the secondary throttled."""

    def update(
        self,
        now: float,
        *,
        waiting: bool,
        error: str | None = None,
        pause_s: float = 0.0,
        remaining: str | None = None,
        drained: bool = False,
        paused: bool = False,
    ) -> "ReaderStatus":
        """Return the status after another check of the queues."""
        empty = not waiting and error is None
        return ReaderStatus(
            reported_at=now,
            waiting_since=_since(self.waiting_since, now) if waiting else None,
            empty_since=_since(self.empty_since, now) if empty else None,
            failing_since=_since(self.failing_since, now) if error is not None else None,
            error=error,
            paused_until=now + pause_s if pause_s > 0 or paused else self.paused_until,
            remaining=remaining,
            drained=drained,
            paused=paused,
            throttled=self.throttled,
        )


def _since(before: float | None, now: float) -> float:
    return now if before is None else before


class ReaderReporter:
    """Writes the status of the reader when it changes, and otherwise once a second."""

    def __init__(
        self,
        write: Callable[[ReaderStatus], None],
        now: Callable[[], float],
        throttled: Callable[[], int] = lambda: 0,
    ) -> None:
        """`throttled` returns the number of throttled receives so far."""
        self.status = ReaderStatus()
        """The status that was last written."""
        self._write = write
        self._now = now
        self._throttled = throttled

    def report(
        self,
        *,
        waiting: bool,
        error: str | None = None,
        pause_s: float = 0.0,
        remaining: str | None = None,
        drained: bool = False,
        paused: bool = False,
    ) -> None:
        """Report a check of the queues."""
        status = self.status.update(
            self._now(),
            waiting=waiting,
            error=error,
            pause_s=pause_s,
            remaining=remaining,
            drained=drained,
            paused=paused,
        )
        before = replace(
            self.status, reported_at=status.reported_at, paused_until=status.paused_until
        )
        changed = status != before
        pause_extended = status.paused_until - self.status.paused_until >= REPORT_S
        is_due = status.reported_at - self.status.reported_at >= REPORT_S
        if changed or pause_extended or is_due:
            self.status = replace(status, throttled=self._throttled())
            self._write(self.status)
