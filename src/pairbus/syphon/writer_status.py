"""The status that the writer reports: totals, and which destinations fail."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from pairbus.spark.outcome import Outcome
from pairbus.syphon.missing_destinations import next_attempt
from pairbus.syphon.pacing import next_halvings

BLOCK_S, MAX_BLOCK_S = 1.0, 10.0
"""The time for which a destination is blocked after it failed. It doubles with each failure, up
to the maximum. Meanwhile, messages of sessions keep their positions, and others in the queue wait
behind them."""
MAX_MISSING_BLOCK_S = 60.0
"""The maximum for a destination that does not exist. Each attempt receives some messages, which is
billed."""

KNOWN_BATCHES = 3
"""The reports of older micro-batches have been removed."""


@dataclass(slots=True)
class WriterStatus:
    """Totals since the start, and the state of destinations that fail.

    Times are in seconds since 1970. The reader uses it to leave out destinations for a while.
    """

    batches: int = 0
    moved: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    dead_lettered: Counter[str] = field(default_factory=Counter)
    dead_letter_reasons: dict[str, Counter[str]] = field(default_factory=dict)
    """The number of dead letters by destination and reason."""
    left: Counter[str] = field(default_factory=Counter)
    """Messages of the last micro-batch that stayed in the backlog."""
    errors: dict[str, str] = field(default_factory=dict)
    """The last error of each destination that fails."""
    failing_since: float | None = None
    """The time since when any destination fails."""
    failures: dict[str, int] = field(default_factory=dict)
    """The number of failures in a row, by destination."""
    blocked_until: dict[str, float] = field(default_factory=dict)
    missing_since: dict[str, float] = field(default_factory=dict)
    """The time since when a destination is known not to exist."""
    halvings: dict[str, int] = field(default_factory=dict)
    """The number of times that a micro-batch with messages for a destination is halved."""
    unsettled: int = 0
    """Messages that were delivered and could not be completed."""
    throttled: int = 0
    """Deliveries that the primary throttled."""
    progress_at: float = 0.0
    """The time when a message was last removed from the backlog."""
    updated_at: float = 0.0
    rate: float = 0.0
    """Messages a second of the last micro-batch."""
    ended_batches: list[str] = field(default_factory=list)
    """The ids of the last micro-batches, for `TaskProgress`."""

    def __post_init__(self) -> None:
        # In a status that comes from a JSON file these are plain dictionaries.
        self.moved = Counter(self.moved)
        self.dead_lettered = Counter(self.dead_lettered)
        self.left = Counter(self.left)
        self.dead_letter_reasons = {
            path: Counter(reasons) for path, reasons in self.dead_letter_reasons.items()
        }

    @property
    def removed(self) -> int:
        """Messages that were moved or dead-lettered."""
        return self.moved.total() + self.dead_lettered.total()

    def add(
        self,
        outcomes: Iterable[Outcome],
        now: float,
        *,
        started_at: float | None = None,
        grace: timedelta | None = None,
    ) -> None:
        """Add the outcomes of the tasks of a micro-batch, which started at `started_at`. `grace`
        is the time that messages wait for a missing destination."""
        moved: Counter[str] = Counter()
        dead_lettered: Counter[str] = Counter()
        missing: set[str] = set()
        errors: dict[str, str] = {}
        removed = 0
        self.left = Counter()
        for outcome in outcomes:
            moved.update(outcome.moved)
            self.bytes += outcome.bytes
            dead_lettered.update(outcome.dead_lettered)
            for path, reasons in outcome.dead_letter_reasons.items():
                self.dead_letter_reasons.setdefault(path, Counter()).update(reasons)
            missing |= outcome.missing
            self.left.update(outcome.left)
            self.unsettled += outcome.unsettled
            self.throttled += outcome.throttled
            removed += outcome.moved.total() - outcome.unsettled + outcome.dead_lettered.total()
            errors.update(outcome.errors)
        self.batches += 1
        self.moved.update(moved)
        self.dead_lettered.update(dead_lettered)
        if removed > 0:
            self.progress_at = now
        # Other dead letters say nothing about their destination: it may not have been asked.
        answered = moved + Counter({path: dead_lettered[path] for path in missing})
        self._update_missing(moved, errors, missing, now)
        self._update_halvings(answered, errors, now if started_at is None else started_at)
        self._update_failures(answered, errors, now, grace)
        elapsed = now - self.updated_at
        self.rate = moved.total() / elapsed if self.updated_at and elapsed > 0 else 0.0
        self.updated_at = now

    def add_report(self, outcome: Outcome) -> None:
        """Add what an attempt of a task did that has not ended, or was killed."""
        self.moved.update(outcome.moved)
        for path, reasons in outcome.dead_letter_reasons.items():
            self.dead_lettered[path] += sum(reasons.values())
            self.dead_letter_reasons.setdefault(path, Counter()).update(reasons)

    def _update_missing(
        self, moved: Counter[str], errors: dict[str, str], missing: set[str], now: float
    ) -> None:
        for path in missing:
            self.missing_since.setdefault(path, now)
        for path in {*moved, *errors}:
            if path not in missing or moved[path]:
                self.missing_since.pop(path, None)

    def end_batch(self, batch: str) -> None:
        """Take note that the totals include a micro-batch."""
        self.ended_batches = [*self.ended_batches[-KNOWN_BATCHES:], batch]

    def _update_failures(
        self,
        answered: Counter[str],
        errors: dict[str, str],
        now: float,
        grace: timedelta | None,
    ) -> None:
        for path in answered:
            if path not in errors:
                self.failures.pop(path, None)
                self.blocked_until.pop(path, None)
        for path in errors:
            self.failures[path] = self.failures.get(path, 0) + 1
            since = self.missing_since.get(path)
            max_block_s = MAX_BLOCK_S if since is None else MAX_MISSING_BLOCK_S
            block_s = min(BLOCK_S * 2 ** (self.failures[path] - 1), max_block_s)
            self.blocked_until[path] = (
                now + block_s if since is None else next_attempt(now, block_s, since, grace)
            )
        still_failing = {p: error for p, error in self.errors.items() if p in self.failures}
        self.errors = {**still_failing, **errors}
        if not self.errors:
            self.failing_since = None
        elif self.failing_since is None:
            self.failing_since = now

    def _update_halvings(
        self, answered: Counter[str], errors: dict[str, str], started_at: float
    ) -> None:
        # Not those that are blocked now: a block may end while the micro-batch runs.
        blocked = self.blocked(started_at)
        for path in {*self.halvings, *errors}:
            if path in blocked and path not in errors and not answered[path]:
                continue  # it was left out of the micro-batch
            # A destination that gets no more messages reaches 0 in the end, and is forgotten.
            before = self.halvings.pop(path, 0)
            after = next_halvings(before, moved=answered[path] > 0, failed=path in errors)
            if after > 0:
                self.halvings[path] = after

    def blocked(self, now: float) -> frozenset[str]:
        """Return the destinations that get no messages now."""
        return frozenset(path for path, until in self.blocked_until.items() if until > now)

    def batch_halvings(self, now: float) -> int:
        """Return how often to halve a micro-batch that starts now."""
        blocked = self.blocked(now)
        return max((n for path, n in self.halvings.items() if path not in blocked), default=0)
