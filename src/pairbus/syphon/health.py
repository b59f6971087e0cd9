"""Whether a syphon gets on. Health means progress: a backlog of which nothing is confirmed for a
while is unhealthy, whatever the reason, and if nobody knows one.

Two processes know parts of it. The writer has what was confirmed (`record`). The reader has what it
sees of the queues, and notes it in a file of its own: each file has one writer.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pairbus.syphon.progress import WriterStatus, write_whole

BEAT_S = 1.0
"""How often the reader says that it is there."""
SILENT_S = 30.0
"""How much longer than others may a reader that sees nothing be silent: Spark starts slowly."""
LOCKED_S = 330.0
"""No lock holds longer than five minutes: what failed and is still there has come again by then."""


@dataclass(frozen=True, slots=True)
class ReaderStatus:
    """What the reader sees of the queues. Times are in seconds since 1970."""

    looked_at: float = 0.0
    """When it last looked."""
    seen_since: float | None = None
    """Since when messages wait that are to be moved; None: there are none."""
    empty_since: float | None = None
    """Since when there are none; None: there are some, or nothing is known."""
    failing_since: float | None = None
    """Since when the queues cannot be read."""
    error: str | None = None
    """Why."""
    paused_until: float = 0.0
    """Until then nothing is moved, because of the cap on the rate."""
    remaining: str | None = None
    """Messages that a peek showed and that cannot be received."""
    drained: bool = False
    """In a run that ends by itself: a peek of every queue showed that nothing is left."""

    def after(
        self,
        now: float,
        *,
        seen: bool,
        error: str | None = None,
        pause_s: float = 0.0,
        remaining: str | None = None,
        drained: bool = False,
    ) -> "ReaderStatus":
        """What it is after another look."""
        nothing = not seen and error is None
        return ReaderStatus(
            looked_at=now,
            seen_since=_since(self.seen_since, now) if seen else None,
            empty_since=_since(self.empty_since, now) if nothing else None,
            failing_since=_since(self.failing_since, now) if error is not None else None,
            error=error,
            paused_until=now + pause_s if pause_s > 0 else self.paused_until,
            remaining=remaining,
            drained=drained,
        )


def _since(before: float | None, now: float) -> float:
    return now if before is None else before


def problem_of(
    record: WriterStatus,
    sight: ReaderStatus,
    *,
    started_at: float,
    now: float,
    stuck_after_s: float,
) -> str | None:
    """Why a syphon that runs is unhealthy; None: it is not."""
    if sight.drained:
        return None
    if sight.failing_since is not None and now - sight.failing_since > stuck_after_s:
        return f"the backlog cannot be read: {sight.error}"
    since = max(started_at, record.progress_at, sight.paused_until)
    waiting = [] if sight.seen_since is None else [sight.seen_since]
    gone = sight.empty_since is not None and now - sight.empty_since > LOCKED_S
    if record.trouble_since is not None and not gone:
        waiting.append(record.trouble_since)
    if waiting:
        quiet_s = now - max(since, min(waiting))
        if quiet_s <= stuck_after_s:
            return None
        reasons = "; ".join(f"{path}: {why}" for path, why in sorted(record.errors.items()))
        reasons = reasons or sight.remaining or "no reason is known"
        return f"nothing was confirmed for {quiet_s:.0f} s: {reasons}"
    if now - max(since, sight.looked_at) > stuck_after_s + SILENT_S:
        return "nobody looks at the backlog"
    return None


class ReaderStatusFile:
    """A sight on disk. One process writes, others read."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self._now = now
        self._sight = ReaderStatus()

    def read(self) -> ReaderStatus:
        try:
            return ReaderStatus(**json.loads(self.path.read_text()))
        except FileNotFoundError:
            return ReaderStatus()

    def note(
        self,
        *,
        seen: bool,
        error: str | None = None,
        pause_s: float = 0.0,
        remaining: str | None = None,
        drained: bool = False,
    ) -> None:
        """Add a look. It is written when it says something new, and else now and then."""
        before = self._sight
        sight = before.after(
            self._now(),
            seen=seen,
            error=error,
            pause_s=pause_s,
            remaining=remaining,
            drained=drained,
        )
        if replace(sight, looked_at=0.0) != replace(before, looked_at=0.0) or (
            sight.looked_at - before.looked_at >= BEAT_S
        ):
            self._sight = sight
            write_whole(self.path, {name: getattr(sight, name) for name in ReaderStatus.__slots__})


def sight_beside(record: Path) -> Path:
    """Where the reader's file is, by the writer's."""
    return record.with_name("sight.json")
