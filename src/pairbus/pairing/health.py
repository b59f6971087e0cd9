"""The health of one path: the state machine that decides where its sends go. No I/O, no clock.

    HEALTHY ──failure──▶ SUSPECT ──interval over──▶ FAILOVER ──ping──▶ HEALTHY
       ▲                    │                          │
       └──success───────────┘                          └──ping, after-drain──▶ DRAINING ──▶ HEALTHY

With an interval of 0, a failure leads directly to FAILOVER. With `failover_on_busy`, sustained
throttling leads from HEALTHY or SUSPECT to FAILOVER. Every method takes the time and changes the
state; some return what the caller must do. `changes` collects the status changes until the owner
takes them.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from threading import RLock
from typing import Self

from pairbus.events import PathStatus
from pairbus.options import FailureKind

PEEKS_PER_HOLD = 10
"""The number of peeks at the backlog within one hold."""
CHECKS_PER_INTERVAL = 30
"""The shortest time between two peeks, while sends are not held, is this part of the longest."""
MAX_BACKOFF_HOLDS = 12
"""After holds that did not empty the backlog, the pause before the next one grows up to the length
of this many holds."""


class Route(Enum):
    """The target of a send."""

    PRIMARY = "primary"
    BACKLOG = "backlog"
    HOLD = "hold"
    """The send waits: the rest of the backlog is about to be drained."""


class FailureAction(Enum):
    """The next action of a call whose send to the primary failed."""

    RAISE = "raise"
    """Raise the error to the caller."""
    PROBE = "probe"
    """Ping the primary, and report the result to `probed`."""
    STORE = "store"
    """Send to the backlog."""


class HealthTask(Enum):
    """A task that is due for a path that is not healthy."""

    FAIL_OVER = "fail over"
    PROBE = "probe"
    PING = "ping"
    PEEK = "peek"


@dataclass(frozen=True, slots=True)
class Step:
    """The next task of a path, and the time at which it is due."""

    task: HealthTask
    at: float


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A change of the status of a path."""

    from_state: PathStatus
    to_state: PathStatus
    cause: BaseException | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """The options of a pairing that concern the health of a path, in seconds."""

    failover_interval_s: float
    ping_interval_s: float
    ping_jitter: float
    after_drain: bool
    hold_s: float
    drain_timeout_s: float
    check_interval_s: float = 30.0
    """The longest time between two peeks while sends are not held."""
    failover_on_busy_s: float | None = None
    """None: throttling never leads to failover."""

    @property
    def shortest_check_s(self) -> float:
        return self.check_interval_s / CHECKS_PER_INTERVAL


class PathHealth:
    """The health of one path."""

    def __init__(self, settings: HealthSettings, random: Random, now: float) -> None:
        self._settings = settings
        self._random = random
        self.status = PathStatus.HEALTHY
        self.since = now
        self.cause: BaseException | None = None
        """The error because of which the path is not healthy."""
        self.changes: list[StatusChange] = []
        """The changes that the owner has not taken yet."""
        self.stalled = False
        """The drain makes no progress, and the owner has not reported it yet."""
        self.in_flight = 0
        """The number of sends to the backlog that have not ended."""
        self.sends_begun = 0
        """The number of sends to the backlog so far."""
        self._sends_at_hold = 0
        """The same, when the current hold began."""
        self.hold_until: float | None = None
        """The end of the current hold; None if sends are not held."""
        self._cause_unclear = False
        """The SDK hides the reason of the failure, so a probe decides about failover."""
        self._busy_since: float | None = None
        """The time of the first throttled send since the last one that succeeded."""
        self._next_at = 0.0
        self._failed_holds = 0
        self._check_pause_s = 0.0
        self._last_age: tuple[float, float] | None = None
        """The age of the oldest message at the last peek, and the time of that peek."""
        self._empty_peeks = 0
        self._first_numbers: dict[Hashable, int | None] = {}
        """The first sequence number of each queue, when it was peeked last."""
        self._progress_at = 0.0

    # Sends.

    def route(self, now: float) -> Route:
        """Return the target of a send."""
        if self.status in (PathStatus.HEALTHY, PathStatus.SUSPECT):
            return Route.PRIMARY
        if self.hold_until is not None and now < self.hold_until:
            return Route.HOLD
        return Route.BACKLOG

    def succeeded(self, now: float) -> None:
        """Record that the primary accepted a message."""
        self._busy_since = None
        if self.status is PathStatus.SUSPECT:
            self._become(PathStatus.HEALTHY, now)

    def accepted_since_busy(self) -> None:
        """Record that the primary accepted a message after the last throttled send. It may have
        done so before a failure that made the path suspect."""
        self._busy_since = None

    def failed(self, kind: FailureKind, error: BaseException, now: float) -> FailureAction:
        """Record that a send to the primary failed."""
        if kind is FailureKind.CALLER:
            return FailureAction.RAISE
        if kind is FailureKind.BUSY:
            return self._throttled(error, now)
        if self.status in (PathStatus.FAILOVER, PathStatus.DRAINING):
            return self._join_failover()
        unclear = kind is FailureKind.UNKNOWN
        if self._settings.failover_interval_s == 0:
            if unclear:
                return FailureAction.PROBE
            self.fail_over(error, now)
            return FailureAction.STORE
        if self.status is PathStatus.HEALTHY:
            self._become(PathStatus.SUSPECT, now, error)
            self._cause_unclear = unclear
            self._next_at = now + self._settings.failover_interval_s
        elif self._cause_unclear and not unclear:
            self.cause, self._cause_unclear = error, False
        return FailureAction.RAISE

    def _throttled(self, error: BaseException, now: float) -> FailureAction:
        # There is no timer as for failures: without further sends, throttling is not sustained.
        limit_s = self._settings.failover_on_busy_s
        if limit_s is None:
            return FailureAction.RAISE
        if self.status in (PathStatus.FAILOVER, PathStatus.DRAINING):
            return self._join_failover()
        if self._busy_since is None:
            self._busy_since = now
        if now < self._busy_since + limit_s:
            return FailureAction.RAISE
        self.fail_over(error, now)
        return FailureAction.STORE

    def probed(self, kind: FailureKind | None, error: BaseException, now: float) -> FailureAction:
        """Record the result of a probe after a failure whose reason is unclear. `kind` is the kind
        of the probe's failure, None for success; `error` becomes the cause of a failover."""
        if self.status in (PathStatus.FAILOVER, PathStatus.DRAINING):
            return self._join_failover()
        if self._settings.failover_interval_s > 0 and (
            self.status is PathStatus.HEALTHY or now < self._next_at
        ):
            return FailureAction.RAISE  # a send succeeded while the probe was in progress
        if kind in (FailureKind.UNAVAILABLE, FailureKind.UNKNOWN):
            self.fail_over(error, now)
            return FailureAction.STORE
        # The primary answers, so the message or the caller's rights are at fault.
        if self.status is PathStatus.SUSPECT:
            self._become(PathStatus.HEALTHY, now)
        return FailureAction.RAISE

    def _join_failover(self) -> FailureAction:
        """Send to the backlog, because the path failed over while this call waited."""
        # The message is stored even during a hold, and a peek in progress may miss it.
        self._empty_peeks = -1
        return FailureAction.STORE

    # Tasks.

    def next_step(self) -> Step | None:
        """Return the next task and its time; None if the path is healthy."""
        if self.status is PathStatus.SUSPECT:
            task = HealthTask.PROBE if self._cause_unclear else HealthTask.FAIL_OVER
            return Step(task, self._next_at)
        if self.status is PathStatus.FAILOVER:
            return Step(HealthTask.PING, self._next_at)
        if self.status is PathStatus.DRAINING:
            return Step(HealthTask.PEEK, self._next_at)
        return None

    def fail_over(self, error: BaseException | None, now: float) -> None:
        """Start the failover."""
        self._become(PathStatus.FAILOVER, now, self.cause if error is None else error)
        self._schedule_ping(now)

    def _schedule_ping(self, now: float) -> None:
        self._next_at = now + self._with_jitter(self._settings.ping_interval_s)

    def _with_jitter(self, seconds: float) -> float:
        return seconds * (1 + self._settings.ping_jitter * self._random.uniform(-1, 1))

    def pinged(self, succeeded: bool, now: float) -> None:
        """Record the result of a ping."""
        if self.status is not PathStatus.FAILOVER:
            return
        if not succeeded:
            self._schedule_ping(now)
        elif self._settings.after_drain:
            self._become(PathStatus.DRAINING, now)
            self._next_at = self._progress_at = now
            self._first_numbers.clear()
            self._empty_peeks = self._failed_holds = 0
            self._check_pause_s, self._last_age = 0.0, None
        else:
            self._become(PathStatus.HEALTHY, now)

    def mark_healthy(self, now: float) -> None:
        """End the failover on request of the user."""
        if self.status is not PathStatus.HEALTHY:
            self._become(PathStatus.HEALTHY, now)

    def peeked(
        self,
        first: Sequence[int | None],
        *,
        small: bool,
        idle: bool,
        now: float,
        age_s: float = 0.0,
        queues: Sequence[Hashable] | None = None,
    ) -> None:
        """Record a round of peeks. `first` has the first sequence number of each queue, up to the
        one that ended the round. `small` tells whether to try a hold, `idle` whether no send to the
        backlog was in flight when the round began, `age_s` the age of the oldest message. `queues`
        are those that were peeked; None: they are always the same."""
        if self.status is not PathStatus.DRAINING:
            return
        self._record_progress(zip(queues or range(len(first)), first, strict=True), now)
        if self.hold_until is None:
            self._empty_peeks = 0
            if small:
                self._begin_hold(now + self._settings.hold_s)
                self._next_at = now
            else:
                self._schedule_check(now, self._time_to_go(age_s, now) / 2)
            return
        empty = all(number is None for number in first)
        # A hold that delays no send may last longer: peeks at many queues of a distant namespace
        # take longer than a short hold.
        is_unused = empty and self.sends_begun == self._sends_at_hold
        if now >= self.hold_until and not is_unused:  # let sends pass for a while
            self.hold_until = None
            pause_s = min(self._failed_holds, MAX_BACKOFF_HOLDS) * self._settings.hold_s
            self._failed_holds += 1
            self._next_at = now + self._settings.shortest_check_s + pause_s
            return
        self._empty_peeks = self._empty_peeks + 1 if empty and idle else 0
        if self._empty_peeks == 2:
            self._become(PathStatus.HEALTHY, now)
        else:
            self._next_at = now + self._settings.hold_s / PEEKS_PER_HOLD

    def join_hold(self, until: float, now: float) -> None:
        """Hold sends together with another path of the pairing. All paths share the backlog, so
        sends of this path would keep it from becoming empty."""
        if self.status is PathStatus.DRAINING and self.hold_until is None:
            self._begin_hold(until)
            self._next_at = now
            self._empty_peeks = -1  # a peek in progress began before the hold

    @property
    def hold_has_marks(self) -> bool:
        """True for every second hold: messages that were stored after it began do not count (see
        `pairing.backlog_peeks`)."""
        return self._failed_holds % 2 == 1

    def _begin_hold(self, until: float) -> None:
        self.hold_until, self._sends_at_hold = until, self.sends_begun

    def peek_failed(self, now: float) -> None:
        """Record that a peek at the backlog failed."""
        if self.status is PathStatus.DRAINING:
            self._record_progress((), now)
            self.hold_until = None
            # The namespace may throttle.
            self._schedule_check(now, 2 * self._check_pause_s)

    def _time_to_go(self, age_s: float, now: float) -> float:
        """Return the time until the backlog is empty, as the age of its oldest message tells. If
        the age does not fall, return a time that doubles with each peek: peeks by many processes
        take credits from the drain."""
        last, self._last_age = self._last_age, (age_s, now)
        if last is None:
            return 0.0
        last_age_s, last_at = last
        if age_s >= last_age_s:
            return 4 * self._check_pause_s
        return age_s * (now - last_at) / (last_age_s - age_s)

    def _schedule_check(self, now: float, pause_s: float) -> None:
        longest_s = self._settings.check_interval_s
        self._check_pause_s = min(max(self._settings.shortest_check_s, pause_s), longest_s)
        self._next_at = now + self._with_jitter(self._check_pause_s)

    def _record_progress(
        self, first_numbers: Iterable[tuple[Hashable, int | None]], now: float
    ) -> None:
        before = self._first_numbers.copy()
        self._first_numbers.update(first_numbers)
        if before != self._first_numbers:
            self._progress_at = now
        elif now >= self._progress_at + self._settings.drain_timeout_s:
            self.stalled, self._progress_at = True, now

    def _become(self, status: PathStatus, now: float, cause: BaseException | None = None) -> None:
        self.changes.append(StatusChange(self.status, status, cause))
        self.status, self.since = status, now
        self._cause_unclear = False
        self.hold_until = None
        if status is not PathStatus.SUSPECT:
            self._busy_since = None
        if status is PathStatus.HEALTHY:
            self.cause = None
        elif cause is not None:
            self.cause = cause


class InFlightSend:
    """A send to the backlog that is in progress. A path does not leave DRAINING before every send
    in flight has left its `with` block. Created while the lock of the state is held."""

    def __init__(self, health: PathHealth, lock: RLock) -> None:
        health.in_flight += 1
        health.sends_begun += 1
        self._health = health
        self._lock = lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._health.in_flight -= 1
