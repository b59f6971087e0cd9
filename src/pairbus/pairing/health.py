"""The health of one path: where its sends go, and what is to be done next. No I/O, no clock.

    HEALTHY ──failure──▶ SUSPECT ──interval over──▶ FAILOVER ──ping──▶ HEALTHY
       ▲                    │                          │
       └──success───────────┘                          └──ping, after-drain──▶ DRAINING ──▶ HEALTHY

With an interval of 0 a failure leads straight to FAILOVER. Every method takes the time, changes the
state, and returns nothing or what the caller must do; `changes` gathers the events.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from random import Random
from typing import NamedTuple

from pairbus.events import PathStatus
from pairbus.pairing.failures import FailureKind

HOLD_CHECKS = 10
"""How often the backlog is looked at within a hold."""
DRAIN_CHECK_S = 1.0
SMALL = 10
"""So many messages in each backlog queue are few enough to wait for."""
YOUNG = 0.5
"""And so are any number, where the oldest is younger than this part of the hold: the syphon keeps
up, and what is there will be gone within the hold once no more is sent."""
MOST_HOLDS = 12
"""After holds in vain, the next one comes later and later, up to so many times as long as one."""


class Route(Enum):
    """Where a send goes now."""

    PRIMARY = "primary"
    BACKLOG = "backlog"
    HOLD = "hold"
    """Nowhere yet: the last of the backlog is on its way."""


class FailureAction(Enum):
    """What a call does whose send to the primary failed."""

    RAISE = "raise"
    LOOK = "look"
    """Ping, and tell `looked` what came of it."""
    STORE = "store"
    """Go on into the backlog."""


class HealthTask(Enum):
    """What somebody must do for a path that is not healthy."""

    ENGAGE = "engage"
    LOOK = "look"
    PING = "ping"
    PEEK = "peek"


@dataclass(frozen=True, slots=True)
class Step:
    task: HealthTask
    at: float


class PeekResult(NamedTuple):
    """What a peek at one backlog queue showed."""

    messages: int
    first: int | None = None
    """The first sequence number; None: it is empty."""
    age_s: float = inf
    """How long ago the first message was stored, by the clocks of two machines."""


def is_small(looks: Iterable[PeekResult], hold_s: float) -> bool:
    """Whether a hold is worth trying: a guess, which costs callers a hold where it is wrong."""
    return all(look.messages <= SMALL or look.age_s < hold_s * YOUNG for look in looks)


@dataclass(frozen=True, slots=True)
class StatusChange:
    from_state: PathStatus
    to_state: PathStatus
    cause: BaseException | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    failover_interval_s: float
    ping_interval_s: float
    ping_jitter: float
    after_drain: bool
    hold_s: float
    drain_timeout_s: float


class PathHealth:
    """One path."""

    def __init__(self, settings: HealthSettings, random: Random, now: float) -> None:
        self._settings = settings
        self._random = random
        self.state = PathStatus.HEALTHY
        self.since = now
        self.cause: BaseException | None = None
        """Why the path is not healthy."""
        self.changes: list[StatusChange] = []
        """What changed since somebody last took them away."""
        self.stalled = False
        """The drain makes no progress, and nobody was told yet."""
        self._unsure = False
        """The cause hides what really happened."""
        self._next = 0.0
        self.in_flight = 0
        """Sends to the backlog that have not ended."""
        self.hold_until: float | None = None
        self._vain_holds = 0
        self._empty_looks = 0
        self._seen: tuple[int | None, ...] = ()
        self._progress_at = 0.0

    # Sends.

    def route(self, now: float) -> Route:
        if self.state in (PathStatus.HEALTHY, PathStatus.SUSPECT):
            return Route.PRIMARY
        if self.hold_until is not None and now < self.hold_until:
            return Route.HOLD
        return Route.BACKLOG

    def succeeded(self, now: float) -> None:
        """The primary took a message."""
        if self.state is PathStatus.SUSPECT:
            self._become(PathStatus.HEALTHY, now)

    def failed(self, kind: FailureKind, error: BaseException, now: float) -> FailureAction:
        """A send to the primary failed."""
        if kind in (FailureKind.BUSY, FailureKind.CALLER):
            return FailureAction.RAISE
        if self.state in (PathStatus.FAILOVER, PathStatus.DRAINING):
            return self._join()
        unsure = kind is FailureKind.UNKNOWN
        if self._settings.failover_interval_s == 0:
            if unsure:
                return FailureAction.LOOK
            self.engage(error, now)
            return FailureAction.STORE
        if self.state is PathStatus.HEALTHY:
            self._become(PathStatus.SUSPECT, now, error)
            self._unsure = unsure
            self._next = now + self._settings.failover_interval_s
        elif self._unsure and not unsure:
            self.cause, self._unsure = error, False
        return FailureAction.RAISE

    def looked(self, kind: FailureKind | None, error: BaseException, now: float) -> FailureAction:
        """A ping went out because a failure hid its reason. `kind` is what it met, None for
        success; `error` is the failure, or what the ping met."""
        if self.state in (PathStatus.FAILOVER, PathStatus.DRAINING):
            return self._join()
        if self._settings.failover_interval_s > 0 and (
            self.state is PathStatus.HEALTHY or now < self._next
        ):
            return FailureAction.RAISE  # a send got through while the ping was under way
        if kind in (FailureKind.UNAVAILABLE, FailureKind.UNKNOWN):
            self.engage(error, now)
            return FailureAction.STORE
        # The primary answers: it was the message, or the caller's rights.
        if self.state is PathStatus.SUSPECT:
            self._become(PathStatus.HEALTHY, now)
        return FailureAction.RAISE

    def _join(self) -> FailureAction:
        """Others have failed over while this call waited for the primary."""
        # It goes into the backlog, hold or not, and a look that is under way may miss it.
        self._empty_looks = -1
        return FailureAction.STORE

    # What must be done.

    def next_step(self) -> Step | None:
        """What is to be done next, and when. None: nothing."""
        if self.state is PathStatus.SUSPECT:
            return Step(HealthTask.LOOK if self._unsure else HealthTask.ENGAGE, self._next)
        if self.state is PathStatus.FAILOVER:
            return Step(HealthTask.PING, self._next)
        if self.state is PathStatus.DRAINING:
            return Step(HealthTask.PEEK, self._next)
        return None

    def engage(self, error: BaseException | None, now: float) -> None:
        """Fail over."""
        self._become(PathStatus.FAILOVER, now, self.cause if error is None else error)
        self._plan_ping(now)

    def _plan_ping(self, now: float) -> None:
        jitter = self._settings.ping_jitter * self._random.uniform(-1, 1)
        self._next = now + self._settings.ping_interval_s * (1 + jitter)

    def pinged(self, got_through: bool, now: float) -> None:
        if self.state is not PathStatus.FAILOVER:
            return
        if not got_through:
            self._plan_ping(now)
        elif self._settings.after_drain:
            self._become(PathStatus.DRAINING, now)
            self._next = self._progress_at = now
            self._seen, self.hold_until, self._empty_looks, self._vain_holds = (), None, 0, 0
        else:
            self._become(PathStatus.HEALTHY, now)

    def mark_healthy(self, now: float) -> None:
        """End failover by hand."""
        if self.state is not PathStatus.HEALTHY:
            self._become(PathStatus.HEALTHY, now)

    def peeked(self, first: Sequence[int | None], *, small: bool, quiet: bool, now: float) -> None:
        """The backlog was looked at. `first` is the first sequence number of each queue, `small`
        says that a hold is worth trying, `quiet` that nothing was in flight when the look began."""
        if self.state is not PathStatus.DRAINING:
            return
        self._note_progress(tuple(first), now)
        if self.hold_until is None:
            self._empty_looks = 0
            self._next = now if small else now + DRAIN_CHECK_S
            self.hold_until = now + self._settings.hold_s if small else None
            return
        if now >= self.hold_until:  # in vain: callers get on for a while
            self.hold_until = None
            wait = min(self._vain_holds, MOST_HOLDS) * self._settings.hold_s
            self._vain_holds += 1
            self._next = now + DRAIN_CHECK_S + wait
            return
        empty = all(number is None for number in first)
        self._empty_looks = self._empty_looks + 1 if empty and quiet else 0
        if self._empty_looks == 2:
            self._become(PathStatus.HEALTHY, now)
        else:
            self._next = now + self._settings.hold_s / HOLD_CHECKS

    def join_hold(self, until: float, now: float) -> None:
        """Another path of the pairing holds its sends. The backlog is one for all: what this path
        sent there meanwhile would keep it from being empty, so they are held at the same time."""
        if self.state is PathStatus.DRAINING and self.hold_until is None:
            self.hold_until, self._next = until, now
            self._empty_looks = -1  # a look that is under way began before

    def peek_failed(self, now: float) -> None:
        """The backlog could not be looked at."""
        if self.state is PathStatus.DRAINING:
            self._note_progress(self._seen, now)
            self.hold_until = None
            self._next = now + DRAIN_CHECK_S

    def _note_progress(self, seen: tuple[int | None, ...], now: float) -> None:
        if seen != self._seen:
            self._seen, self._progress_at = seen, now
        elif now >= self._progress_at + self._settings.drain_timeout_s:
            self.stalled, self._progress_at = True, now

    def _become(self, state: PathStatus, now: float, cause: BaseException | None = None) -> None:
        self.changes.append(StatusChange(self.state, state, cause))
        self.state, self.since = state, now
        self._unsure = False
        self.hold_until = None
        if state is PathStatus.HEALTHY:
            self.cause = None
        elif cause is not None:
            self.cause = cause
