"""What all senders of a pairing share: the health of paths, the rotation, events. No I/O.

The sync and the async shell ask it what to do and tell it what came of it. It can be used from any
thread.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from threading import RLock
from time import monotonic
from typing import Any
from zlib import crc32

from pairbus.errors import SendUnavailable
from pairbus.events import (
    BacklogQueuePulled,
    BacklogQueueRestored,
    DrainStalled,
    Event,
    PathStatus,
    Pinged,
    StateChanged,
)
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.failures import FailureKind, classify_failure
from pairbus.pairing.health import (
    FailureAction,
    HealthSettings,
    HealthTask,
    PathHealth,
    PeekResult,
    Route,
    StatusChange,
    Step,
    is_small,
)
from pairbus.pairing.rotation import Rotation
from pairbus.pairing.sides import Side

logger = logging.getLogger("pairbus.pairing")

_LEVELS = {
    PathStatus.HEALTHY: logging.INFO,
    PathStatus.SUSPECT: logging.WARNING,
    PathStatus.FAILOVER: logging.ERROR,
    PathStatus.DRAINING: logging.WARNING,
}
_SAID = {
    PathStatus.HEALTHY: "sends go to the primary",
    PathStatus.SUSPECT: "sending fails: the failover timer runs",
    PathStatus.FAILOVER: "sends go to the backlog",
    PathStatus.DRAINING: "the primary is back: sends go to the backlog until it is empty",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSnapshot:
    """One path now."""

    state: PathStatus
    since: datetime
    cause: BaseException | None
    backlog_queues: tuple[str, ...]
    """The backlog queues that its senders use."""
    last_ping: Pinged | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQueueSnapshot:
    """One backlog queue now."""

    in_rotation: bool
    cause: BaseException | None = None
    """Why it is not."""
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingStatus:
    """A pairing now."""

    primary: str
    secondary: str
    paths: dict[str, PathSnapshot]
    backlog: dict[str, BacklogQueueSnapshot]
    fault: BaseException | None
    closed: bool


class PathState:
    """A queue or topic of the primary that somebody sends to."""

    def __init__(self, name: str, health: PathHealth) -> None:
        self.name = name
        self.health = health
        self.chosen: dict[object, str] = {}
        """The backlog queues that senders stay with."""
        self.last_ping: Pinged | None = None
        self.attended = False
        """Somebody does what `next_step` says."""
        self.unseen = False
        """The backlog could not be looked at, which was said."""


class PairingState:
    """Two namespaces. `on_change` is called, without the lock, after each change that somebody may
    wait for; `attend` when a path begins to need somebody who does its steps."""

    def __init__(
        self,
        options: SendAvailabilityOptions,
        *,
        primary: str,
        secondary: str,
        queues: tuple[str, ...],
        now: Callable[[], float] = monotonic,
        random: Random | None = None,
    ) -> None:
        self.options = options
        self.now = now
        self.primary = Side(primary)
        self.secondary = Side(secondary)
        self.on_change: Callable[[], None] = _nothing
        self.attend: Callable[[PathState], None] = _nothing_for
        self.note_change: Callable[[str, str, str, str | None], None] = _nothing_for
        self.classify: Callable[[BaseException], FailureKind] = options.classify or classify_failure
        self.lock = RLock()
        self._random = Random() if random is None else random
        self._paths: dict[str, PathState] = {}
        self.rotation = Rotation(
            queues, cool_down_s=options.backlog_cool_down.total_seconds(), random=self._random
        )
        self._settings = HealthSettings(
            failover_interval_s=options.failover_interval.total_seconds(),
            ping_interval_s=options.ping_primary_interval.total_seconds(),
            ping_jitter=options.ping_jitter,
            after_drain=options.failback == "after-drain",
            hold_s=options.failback_hold.total_seconds(),
            drain_timeout_s=options.drain_timeout.total_seconds(),
        )
        self.after_drain = self._settings.after_drain
        self.immediate = self._settings.failover_interval_s == 0
        self.operation_timeout_s = options.operation_timeout.total_seconds()
        self.primary_budget_s = self.operation_timeout_s / (2 if self.immediate else 1)
        """A call that may go on into the backlog keeps half of its time for that."""

    def path(self, name: str) -> PathState:
        """A path; names differ by more than case."""
        with self.lock:
            key = name.casefold()
            if key not in self._paths:
                self._paths[key] = PathState(
                    name, PathHealth(self._settings, self._random, self.now())
                )
            return self._paths[key]

    def check_open(self) -> None:
        """Raises PairingFaulted or StateError where nothing more can be done."""
        self.primary.check_open()

    # Sends.

    def route(self, path: PathState) -> tuple[Route, float]:
        """Where a send goes, and how long it must wait for that at most. BACKLOG: `stored` must
        follow."""
        self.check_open()
        health = path.health
        if health.state is PathStatus.HEALTHY:
            return Route.PRIMARY, 0.0
        with self.lock:
            now = self.now()
            route = health.route(now)
            if route is Route.BACKLOG:
                health.in_flight += 1
            return route, 0.0 if health.hold_until is None else health.hold_until - now

    def succeeded(self, path: PathState) -> None:
        """The primary took a message."""
        if path.health.state is PathStatus.SUSPECT:
            with self._changing(path) as now:
                path.health.succeeded(now)

    def failed(self, path: PathState, error: BaseException) -> FailureAction:
        """A send to the primary failed. STORE: `stored` must follow."""
        kind = self.classify(error)
        with self._changing(path) as now:
            verdict = path.health.failed(kind, error, now)
            path.health.in_flight += verdict is FailureAction.STORE
        return verdict

    def looked(
        self,
        path: PathState,
        error: BaseException,
        met: BaseException | None,
        *,
        waits: bool = True,
    ) -> FailureAction:
        """A ping was sent to find out what `error` hides; it met another, or None. `waits` says
        that a call waits for this, which then must tell `stored`."""
        kind = None if met is None else self.classify(met)
        with self._changing(path) as now:
            verdict = path.health.looked(kind, error, now)
            path.health.in_flight += waits and verdict is FailureAction.STORE
        return verdict

    def stored(self, path: PathState) -> None:
        """A send to the backlog has ended, well or not."""
        with self.lock:
            path.health.in_flight -= 1

    # Backlog queues.

    def queue_of_session(self, path: PathState, session: str) -> str:
        """Where the messages of a session go, always."""
        queues = self.rotation.queues
        key = f"{path.name.casefold()}\n{session}".encode()
        return queues[crc32(key) % len(queues)]

    def claim(self, path: PathState, who: object, tried: tuple[str, ...]) -> str | None:
        """A backlog queue for a sender: the one that it has, or another. None: there is none."""
        if self.secondary.down:
            return None
        with self.lock:
            now = self.now()
            queue = path.chosen.get(who)
            if queue is None or queue in tried or not self.rotation.claim(queue, now):
                queue = self.rotation.pick(now, tried)
                if queue is not None:
                    path.chosen[who] = queue
            return queue

    def claim_this(self, queue: str) -> bool:
        with self.lock:
            return not self.secondary.down and self.rotation.claim(queue, self.now())

    def queue_failed(self, queue: str, error: BaseException) -> None:
        with self.lock:
            pulled = self.rotation.failed(queue, error, self.now())
        if pulled:
            logger.warning("backlog queue %s is left alone for a while: %s", queue, error)
            self.emit(BacklogQueuePulled(when=_wall(), queue=queue, cause=error))

    def queue_succeeded(self, queue: str) -> None:
        with self.lock:
            restored = self.rotation.succeeded(queue)
        if restored:
            logger.info("backlog queue %s takes messages again", queue)
            self.emit(BacklogQueueRestored(when=_wall(), queue=queue))

    def let_go(self, queue: str) -> None:
        with self.lock:
            self.rotation.let_go(queue)

    def forget(self, path: PathState, who: object) -> None:
        """A sender is closed."""
        with self.lock:
            path.chosen.pop(who, None)

    def unavailable(self, path: PathState, error: BaseException | None) -> SendUnavailable:
        """Neither the primary nor the backlog took a message."""
        why = self.secondary.error() or error or self.rotation.last_cause
        return SendUnavailable(
            f"{path.name!r} could not be sent to: the primary is down, and no backlog queue takes "
            f"the message (of {len(self.rotation.queues)}); nothing was sent",
            primary_error=path.health.cause,
            backlog_error=why,
        )

    # Steps.

    def next_step(self, path: PathState) -> Step | None:
        """What is to be done for a path, by the one who attends to it. None: no more; another is
        asked to attend when there is."""
        with self.lock:
            step = None if self.primary.down else path.health.next_step()
            path.attended = step is not None
            return step

    def engage(self, path: PathState) -> None:
        """The timer has fired, unless a message got through in the meantime."""
        with self._changing(path) as now:
            step = path.health.next_step()
            if step is not None and step.task is HealthTask.ENGAGE and step.at <= now:
                path.health.engage(None, now)

    def pinged(self, path: PathState, error: BaseException | None) -> None:
        """A ping got through, or met an error."""
        refused = error is not None and self.classify(error) is FailureKind.CALLER
        ping = Pinged(when=_wall(), path=path.name, error=error, callers_fault=refused)
        path.last_ping = ping
        if refused:
            logger.error(
                "%s: the primary answers, and refuses: %s; messages go to the backlog",
                path.name,
                error,
            )
        self.emit(ping)
        with self._changing(path) as now:
            path.health.pinged(error is None, now)

    def mark_healthy(self, path: PathState) -> None:
        with self._changing(path) as now:
            path.health.mark_healthy(now)

    def quiet(self, path: PathState) -> bool:
        """Whether nothing is on its way to the backlog."""
        with self.lock:
            return path.health.in_flight == 0

    def peeked(self, path: PathState, looks: list[PeekResult], *, quiet: bool) -> None:
        """The backlog was looked at, each queue by itself."""
        small = is_small(looks, self.options.failback_hold.total_seconds())
        path.unseen = False
        with self._changing(path) as now:
            held = path.health.hold_until
            path.health.peeked([look.first for look in looks], small=small, quiet=quiet, now=now)
            until = path.health.hold_until
            if held is None and until is not None:
                for other in self._paths.values():
                    other.health.join_hold(until, now)

    def peek_failed(self, path: PathState, error: BaseException) -> None:
        if not path.unseen:  # it is tried every second
            logger.warning("%s: the backlog could not be looked at: %s", path.name, error)
        path.unseen = True
        with self._changing(path, error) as now:
            path.health.peek_failed(now)

    # Events.

    @contextmanager
    def _changing(self, path: PathState, error: BaseException | None = None) -> Iterator[float]:
        """Change a path's health, and tell about it when that is done."""
        health = path.health
        with self.lock:
            yield self.now()
            changes, health.changes = health.changes, []
            stalled, health.stalled = health.stalled, False
            wanted = not path.attended and health.next_step() is not None and not self.primary.down
            path.attended = path.attended or wanted
        for change in changes:
            self._tell(path, change)
        if stalled:
            logger.error(
                "%s: the backlog has not become less for %s: does a syphon run?",
                path.name,
                self.options.drain_timeout,
            )
            self.emit(DrainStalled(when=_wall(), path=path.name, error=error))
        if wanted:
            self.attend(path)
        self.on_change()

    def _tell(self, path: PathState, change: StatusChange) -> None:
        because = "" if change.cause is None else f" ({change.cause})"
        logger.log(
            _LEVELS[change.to_state],
            "%s: %s to %s; %s%s",
            path.name,
            change.from_state.value,
            change.to_state.value,
            _SAID[change.to_state],
            because,
        )
        cause = None if change.cause is None else str(change.cause)
        self.note_change(path.name, change.from_state.value, change.to_state.value, cause)
        self.emit(
            StateChanged(
                when=_wall(),
                path=path.name,
                from_state=change.from_state,
                to_state=change.to_state,
                cause=change.cause,
            )
        )

    def emit(self, event: Event) -> None:
        """Tell the hook. What it does wrong is its own."""
        if self.options.on_event is not None:
            try:
                self.options.on_event(event)
            except Exception:  # a hook must not fail a send
                logger.exception("the hook for events failed")

    def status(self) -> PairingStatus:
        """How everything is now."""
        with self.lock:
            out = self.rotation.out()
            return PairingStatus(
                primary=self.primary.name,
                secondary=self.secondary.name,
                paths={path.name: self._path_status(path) for path in self._paths.values()},
                backlog={
                    queue: BacklogQueueSnapshot(
                        in_rotation=queue not in out,
                        cause=out[queue][0] if queue in out else None,
                        since=self._date(out[queue][1]) if queue in out else None,
                    )
                    for queue in self.rotation.queues
                },
                fault=self.primary.fault,
                closed=self.primary.closed,
            )

    def _path_status(self, path: PathState) -> PathSnapshot:
        return PathSnapshot(
            state=path.health.state,
            since=self._date(path.health.since),
            cause=path.health.cause,
            backlog_queues=tuple(sorted(set(path.chosen.values()))),
            last_ping=path.last_ping,
        )

    def _date(self, at: float) -> datetime:
        return datetime.fromtimestamp(_wall().timestamp() - (self.now() - at), UTC)


def _wall() -> datetime:
    return datetime.now(UTC)


def _nothing() -> None:
    pass


def _nothing_for(*any_of_it: Any) -> None:
    pass
