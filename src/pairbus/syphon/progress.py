"""What a syphon has done so far, in a small file that its parts share.

Reader, writer and the program that started them are three processes on the driver's machine. The
writer notes after each micro-batch what came of it; the reader learns from it which destinations to
leave alone for a while, and the program what to show.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairbus.spark.forwarder import Outcome
from pairbus.syphon.pacing import restraint

PAUSE_S = 1.0
MAX_PAUSE_S = 10.0
"""How long a destination that failed is left alone at most. Messages of sessions keep their places
in their queues meanwhile, and others wait behind them."""


@dataclass(slots=True)
class WriterStatus:
    """Totals since the start, and how the destinations are."""

    batches: int = 0
    moved: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    dead_lettered: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    """Of the last micro-batch: messages that stayed where they are."""
    errors: dict[str, str] = field(default_factory=dict)
    """Destinations that did not take messages the last time, and why."""
    trouble_since: float | None = None
    """Since when there are any."""
    failures: dict[str, int] = field(default_factory=dict)
    """How often in a row."""
    blocked_until: dict[str, float] = field(default_factory=dict)
    restraint: dict[str, int] = field(default_factory=dict)
    """How often a micro-batch is halved that tries them."""
    unsettled: int = 0
    progress_at: float = 0.0
    """When something last left the backlog for good, in seconds since 1970."""
    updated_at: float = 0.0
    rate: float = 0.0
    """Messages a second, of the last micro-batch."""

    def note(self, outcomes: Iterable[Outcome], now: float) -> None:
        """Add what came of a micro-batch."""
        moved: Counter[str] = Counter()
        errors: dict[str, str] = {}
        settled = 0
        self.left = Counter()
        for outcome in outcomes:
            moved.update(outcome.moved)
            self.bytes += outcome.bytes
            self.dead_lettered.update(outcome.dead_lettered)
            self.left.update(outcome.left)
            self.unsettled += outcome.unsettled
            settled += outcome.moved.total() - outcome.unsettled + outcome.dead_lettered.total()
            errors.update(outcome.errors)
        self.batches += 1
        self.moved.update(moved)
        if settled > 0:
            self.progress_at = now
        self._restrain(moved, errors, now)
        for path in moved:
            if path not in errors:
                self.failures.pop(path, None)
                self.blocked_until.pop(path, None)
        for path in errors:
            self.failures[path] = self.failures.get(path, 0) + 1
            pause_s = min(PAUSE_S * 2 ** (self.failures[path] - 1), MAX_PAUSE_S)
            self.blocked_until[path] = now + pause_s
        self.errors = {**{p: e for p, e in self.errors.items() if p in self.failures}, **errors}
        if not self.errors:
            self.trouble_since = None
        elif self.trouble_since is None:
            self.trouble_since = now
        took = now - self.updated_at
        self.rate = sum(moved.values()) / took if self.updated_at and took > 0 else 0.0
        self.updated_at = now

    def _restrain(self, moved: Counter[str], errors: Iterable[str], now: float) -> None:
        waiting = self.blocked(now)
        for path in {*self.restraint, *errors}:
            if path in waiting and path not in errors and not moved[path]:
                continue  # it was not tried
            # One that nothing came for any more is not remembered for ever.
            before = self.restraint.pop(path, 0)
            after = restraint(before, moved=moved[path] > 0, failed=path in errors)
            if after > 0:
                self.restraint[path] = after

    def blocked(self, now: float) -> frozenset[str]:
        """Destinations to leave alone now."""
        return frozenset(path for path, until in self.blocked_until.items() if until > now)

    def halvings(self, now: float) -> int:
        """How often to halve a micro-batch now, for the destinations that are not left alone."""
        blocked = self.blocked(now)
        return max((n for path, n in self.restraint.items() if path not in blocked), default=0)


class WriterStatusFile:
    """A record on disk. One process writes, others read; a reader never sees half of it."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self._now = now

    def read(self) -> WriterStatus:
        try:
            values = json.loads(self.path.read_text())
        except FileNotFoundError:
            return WriterStatus()
        for name in ("moved", "dead_lettered", "left"):
            values[name] = Counter(values[name])
        return WriterStatus(**values)

    def note(self, outcomes: Iterable[Outcome]) -> None:
        record = self.read()
        record.note(outcomes, self._now())
        write_whole(self.path, {name: getattr(record, name) for name in WriterStatus.__slots__})


def write_whole(path: Path, values: dict[str, Any]) -> None:
    """Write a file of JSON. Whoever reads it has all of it, or what was there before."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(json.dumps(values))
    draft.replace(path)
