"""The status that the writer reports: totals, and which destinations fail."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pairbus.spark.outcome import Outcome
from pairbus.syphon.pacing import next_halvings

BLOCK_S, MAX_BLOCK_S = 1.0, 10.0
"""The time for which a destination is blocked after it failed. It doubles with each failure, up
to the maximum. Meanwhile, messages of sessions keep their positions, and others in the queue wait
behind them."""


@dataclass(slots=True)
class WriterStatus:
    """Totals since the start, and the state of destinations that fail.

    Times are in seconds since 1970. The reader uses it to leave out destinations for a while.
    """

    batches: int = 0
    moved: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    dead_lettered: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    """Messages of the last micro-batch that stayed in the backlog."""
    errors: dict[str, str] = field(default_factory=dict)
    """The last error of each destination that fails."""
    failing_since: float | None = None
    """The time since when any destination fails."""
    failures: dict[str, int] = field(default_factory=dict)
    """The number of failures in a row, by destination."""
    blocked_until: dict[str, float] = field(default_factory=dict)
    halvings: dict[str, int] = field(default_factory=dict)
    """How often a micro-batch with messages for a destination is halved."""
    unsettled: int = 0
    """Messages that were delivered and could not be completed."""
    progress_at: float = 0.0
    """The time when a message was last removed from the backlog."""
    updated_at: float = 0.0
    rate: float = 0.0
    """Messages a second of the last micro-batch."""

    def __post_init__(self) -> None:
        # In a status that comes from a JSON file these are plain dictionaries.
        self.moved = Counter(self.moved)
        self.dead_lettered = Counter(self.dead_lettered)
        self.left = Counter(self.left)

    @property
    def removed(self) -> int:
        """Messages that were moved or dead-lettered."""
        return self.moved.total() + self.dead_lettered.total()

    def add(self, outcomes: Iterable[Outcome], now: float) -> None:
        """Add the outcomes of the tasks of a micro-batch."""
        moved: Counter[str] = Counter()
        errors: dict[str, str] = {}
        removed = 0
        self.left = Counter()
        for outcome in outcomes:
            moved.update(outcome.moved)
            self.bytes += outcome.bytes
            self.dead_lettered.update(outcome.dead_lettered)
            self.left.update(outcome.left)
            self.unsettled += outcome.unsettled
            removed += outcome.moved.total() - outcome.unsettled + outcome.dead_lettered.total()
            errors.update(outcome.errors)
        self.batches += 1
        self.moved.update(moved)
        if removed > 0:
            self.progress_at = now
        self._update_halvings(moved, errors, now)
        self._update_failures(moved, errors, now)
        elapsed = now - self.updated_at
        self.rate = moved.total() / elapsed if self.updated_at and elapsed > 0 else 0.0
        self.updated_at = now

    def _update_failures(self, moved: Counter[str], errors: dict[str, str], now: float) -> None:
        for path in moved:
            if path not in errors:
                self.failures.pop(path, None)
                self.blocked_until.pop(path, None)
        for path in errors:
            self.failures[path] = self.failures.get(path, 0) + 1
            block_s = min(BLOCK_S * 2 ** (self.failures[path] - 1), MAX_BLOCK_S)
            self.blocked_until[path] = now + block_s
        still_failing = {p: error for p, error in self.errors.items() if p in self.failures}
        self.errors = {**still_failing, **errors}
        if not self.errors:
            self.failing_since = None
        elif self.failing_since is None:
            self.failing_since = now

    def _update_halvings(self, moved: Counter[str], errors: dict[str, str], now: float) -> None:
        blocked = self.blocked(now)
        for path in {*self.halvings, *errors}:
            if path in blocked and path not in errors and not moved[path]:
                continue  # it was left out of the micro-batch
            # A destination that gets no more messages reaches 0 in the end, and is forgotten.
            before = self.halvings.pop(path, 0)
            after = next_halvings(before, moved=moved[path] > 0, failed=path in errors)
            if after > 0:
                self.halvings[path] = after

    def blocked(self, now: float) -> frozenset[str]:
        """Return the destinations that get no messages now."""
        return frozenset(path for path, until in self.blocked_until.items() if until > now)

    def batch_halvings(self, now: float) -> int:
        """Return how often to halve a micro-batch that starts now."""
        blocked = self.blocked(now)
        return max((n for path, n in self.halvings.items() if path not in blocked), default=0)
