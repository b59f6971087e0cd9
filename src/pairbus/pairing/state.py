"""The state that all senders of a pairing share: health of paths, rotation, events. No I/O.

Operations ask it what to do and report the results. Its methods can be called from any thread.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from random import Random
from threading import RLock
from time import monotonic

from pairbus.errors import SendUnavailable
from pairbus.events import Event, PathStatus, Pinged, Probed, Throttled
from pairbus.options import FailureKind, SendAvailabilityOptions
from pairbus.pairing.backlog_peeks import PeekResult, PeekStart
from pairbus.pairing.backlog_state import BacklogState
from pairbus.pairing.client_state import ClientState
from pairbus.pairing.failures import classify_failure
from pairbus.pairing.forks import notify_after_fork
from pairbus.pairing.health import (
    FailureAction,
    HealthSettings,
    HealthTask,
    InFlightSend,
    PathHealth,
    Route,
    Step,
)
from pairbus.pairing.path_state import Hold, PathState
from pairbus.pairing.recorder import SendRecorder
from pairbus.pairing.reporter import ChangeRecorder, PairingReporter, utc_now
from pairbus.pairing.rotation import Rotation
from pairbus.pairing.secondary_host import SecondaryHost
from pairbus.pairing.snapshots import PairingStatus
from pairbus.pairing.status import make_status

__all__ = ["Hold", "PairingState", "PathState"]


class PairingState:
    """The state of a pairing of two namespaces.

    After each change, `version` grows and `on_change` is called, without the lock.
    `start_recovery` is called when a path begins to need a recovery operation, `start_probes` when
    the host of the secondary needs probes, `record_change` for each change of a path's status.
    `call_handler`, `observe` and `on_telemetry` are those of `PairingReporter`.
    """

    def __init__(
        self,
        options: SendAvailabilityOptions,
        *,
        primary: str,
        secondary: str,
        queues: tuple[str, ...],
        on_change: Callable[[], None],
        start_recovery: Callable[[PathState], None],
        start_probes: Callable[[], None] | None = None,
        record_change: ChangeRecorder | None = None,
        call_handler: Callable[[Callable[[], None]], None] | None = None,
        observe: Callable[[Event], None] | None = None,
        on_telemetry: Callable[[Event], None] | None = None,
        now: Callable[[], float] = monotonic,
        wall_clock: Callable[[], datetime] = utc_now,
        random: Random | None = None,
    ) -> None:
        self.options = options
        self.now = now
        self.primary = ClientState(primary)
        self.secondary = ClientState(secondary)
        self.classify: Callable[[BaseException], FailureKind] = options.classify or classify_failure
        self.lock = RLock()
        self.version = 0
        """Grows with each change, so that a waiter can tell whether it missed one."""
        self._on_change = on_change
        self._start_recovery = start_recovery
        self.reporter = PairingReporter(
            options.on_event, record_change, call_handler, on_telemetry, observe=observe
        )
        self.wall_clock = wall_clock
        self.recorder = SendRecorder(self.lock, self.classify, wall_clock)
        self._random = Random() if random is None else random
        self._paths: dict[str, PathState] = {}
        self.rotation = Rotation(
            queues, cool_down_s=options.backlog_cool_down.total_seconds(), random=self._random
        )
        self.backlog = BacklogState(self, wall_clock)
        self.secondary_host = SecondaryHost(self, start_probes, wall_clock)
        on_busy = options.failover_on_busy
        self._settings = HealthSettings(
            failover_interval_s=options.failover_interval.total_seconds(),
            ping_interval_s=options.ping_primary_interval.total_seconds(),
            ping_jitter=options.ping_jitter,
            after_drain=options.failback == "after-drain",
            hold_s=options.failback_hold.total_seconds(),
            drain_timeout_s=options.drain_timeout.total_seconds(),
            check_interval_s=options.drain_check_interval.total_seconds(),
            failover_on_busy_s=on_busy.total_seconds() if on_busy is not None else None,
        )
        self.after_drain = self._settings.after_drain
        self.hold_s = self._settings.hold_s
        self.operation_timeout_s = options.operation_timeout.total_seconds()
        self.primary_share = 0.5 if self._settings.failover_interval_s == 0 else 1.0
        """The fraction of a call's time that may be spent on the primary. A call that may continue
        with the backlog keeps half of its time for that."""
        notify_after_fork(self)

    def after_fork_in_child(self) -> None:
        """Let every call fail, and do not wait for the threads of the parent."""
        self.primary.set_forked()
        self.secondary.set_forked()
        self.lock = RLock()
        self._on_change = lambda: None
        self._start_recovery = lambda path: None

    def path(self, name: str) -> PathState:
        """Return the state of a path. Case does not distinguish paths."""
        with self.lock:
            key = name.casefold()
            if key not in self._paths:
                self._paths[key] = PathState(
                    name,
                    PathHealth(self._settings, self._random, self.now()),
                    self.wall_clock(),
                )
            return self._paths[key]

    def find_path(self, name: str) -> PathState | None:
        """Return the state of a path that has or had a sender."""
        with self.lock:
            return self._paths.get(name.casefold())

    def notify(self) -> None:
        """Wake everything that waits for a change."""
        with self.lock:
            self.version += 1
        self._on_change()

    def changed_since(self, version: int) -> Callable[[], bool]:
        """Return a function that tells whether the state has changed since a version."""
        return lambda: self.version != version

    # Clients.

    def check_open(self) -> None:
        """Raise a StateError if the client of the primary is not open."""
        if self.primary.down:
            self.primary.check_open()

    def mark_closed(self, client: ClientState) -> bool:
        """Mark a client as closed. Return False if it was closed before."""
        with self.lock:
            if not client.set_closed():
                return False
        self.notify()
        return True

    # The embedded syphon.

    def syphon_started(self) -> None:
        """Report that the embedded syphon started."""
        with self.lock:
            self.reporter.syphon_started(self.wall_clock())
        self.reporter.deliver()

    def syphon_stopped(self, error: BaseException | None) -> None:
        """Report that the embedded syphon stopped, because of an error if there is one."""
        with self.lock:
            self.reporter.syphon_stopped(error, self.wall_clock())
        self.reporter.deliver()

    # Sends.

    def route(self, path: PathState) -> InFlightSend | Hold | None:
        """Decide where a send goes: None means to the primary."""
        self.check_open()
        health = path.health
        if health.status is PathStatus.HEALTHY:
            return None
        with self.lock:
            now = self.now()
            route = health.route(now)
            if route is Route.PRIMARY:
                return None
            if route is Route.BACKLOG:
                return InFlightSend(path.health, self.lock)
            assert health.hold_until is not None
            return Hold(health.hold_until - now, self.version)

    def send_succeeded(self, path: PathState) -> None:
        """Record that the primary accepted messages."""
        if path.health.status is PathStatus.SUSPECT:
            with self._changing(path) as now:
                path.health.succeeded(now)

    def send_failed(
        self, path: PathState, error: BaseException, messages: int = 0
    ) -> FailureAction | InFlightSend:
        """Record that a send of so many messages to the primary failed. Return what the call does:
        raise the error, probe the primary, or send to the backlog."""
        kind = self.classify(error)
        with self._changing(path) as now:
            path.record_error(error, kind, self.wall_clock())
            if kind is FailureKind.BUSY:
                path.counters.throttled += messages
                self._report_throttled(path, self.primary, messages, error)
                if self._settings.failover_on_busy_s is not None and path.sent_since_busy():
                    path.health.accepted_since_busy()
            action = path.health.failed(kind, error, now)
            return InFlightSend(path.health, self.lock) if action is FailureAction.STORE else action

    def throttled_by_backlog(self, path: PathState, error: BaseException, messages: int) -> None:
        """Record that the secondary throttled a send of so many messages."""
        with self.lock:
            path.counters.throttled += messages
            self._report_throttled(path, self.secondary, messages, error)
        self.reporter.deliver()

    def _report_throttled(
        self, path: PathState, client: ClientState, messages: int, error: BaseException
    ) -> None:
        when, name = self.wall_clock(), client.name
        self.reporter.throttled(
            Throttled(when=when, path=path.name, namespace=name, messages=messages, error=error)
        )

    def probed(
        self, path: PathState, error: BaseException, probe_error: BaseException | None
    ) -> InFlightSend | None:
        """Record the result of a probe that a failed call made. Return None if the call raises its
        `error`."""
        with self._changing(path) as now:
            self._record_probe(path, probe_error)
            action = path.health.probed(self._kind_of(probe_error), error, now)
            return InFlightSend(path.health, self.lock) if action is FailureAction.STORE else None

    def _record_probe(self, path: PathState, error: BaseException | None) -> None:
        path.counters.add_ping(error)
        self.reporter.probed(Probed(when=self.wall_clock(), path=path.name, error=error))

    def _kind_of(self, error: BaseException | None) -> FailureKind | None:
        return None if error is None else self.classify(error)

    def send_unavailable(self, path: PathState, error: BaseException | None) -> SendUnavailable:
        """Return the error for a call that no backlog queue acknowledged. Its text is the reason;
        the outcomes of the messages are added to it (see `pairing.outcomes`)."""
        host, rotation = self.secondary_host, self.rotation
        return SendUnavailable(
            "the primary is down, and no acknowledgement came from any of the "
            f"{len(rotation.queues)} backlog queues",
            primary_error=path.health.cause,
            backlog_error=self.secondary.error() or error or host.cause or rotation.last_cause,
        )

    # Recovery.

    def next_step(self, path: PathState) -> Step | None:
        """Return the next step of a path for its recovery operation. None ends the operation;
        `start_recovery` is called when another one is needed."""
        with self.lock:
            step = None if self.primary.down else path.health.next_step()
            path.recovering = step is not None
            return step

    def failover_timer_fired(self, path: PathState) -> None:
        """Fail over, unless a send succeeded in the meantime."""
        with self._changing(path) as now:
            step = path.health.next_step()
            if step is not None and step.task is HealthTask.FAIL_OVER and step.at <= now:
                path.health.fail_over(None, now)

    def probed_in_background(self, path: PathState, probe_error: BaseException | None) -> None:
        """Record the result of a probe that the recovery operation made."""
        with self._changing(path) as now:
            self._record_probe(path, probe_error)
            error = path.health.cause or TimeoutError()
            path.health.probed(self._kind_of(probe_error), error, now)

    def pinged(self, path: PathState, error: BaseException | None, step: Step | None) -> None:
        """Record the result of the ping that was due with a step."""
        refused = self._kind_of(error) is FailureKind.CALLER
        with self._changing(path) as now:
            ping = Pinged(when=self.wall_clock(), path=path.name, error=error, refused=refused)
            path.last_ping = ping
            path.counters.add_ping(error)
            self.reporter.pinged(ping)  # before the change that it causes
            # Otherwise the path was marked healthy during the ping, and has failed over again.
            if path.health.next_step() == step:
                path.health.pinged(error is None, now)

    def mark_healthy(self, path: PathState) -> None:
        """End the failover of a path on request of the user."""
        with self._changing(path) as now:
            path.health.mark_healthy(now)

    def peek_begins(self, path: PathState) -> PeekStart:
        """Return what a round of peeks must know of the sends of its path."""
        with self.lock:
            health = path.health
            return PeekStart(
                held=health.hold_until is not None,
                marked=health.hold_has_marks,
                idle=health.in_flight == 0,
                sends=health.sends_begun,
            )

    def peeked(
        self,
        path: PathState,
        peeks: Sequence[PeekResult],
        *,
        idle: bool,
        queues: Sequence[str] | None = None,
    ) -> None:
        """Record a round of peeks at these backlog queues. `idle` is that of `peek_begins`."""
        small = all(peek.is_small(self.hold_s) for peek in peeks)
        age_s = max((peek.age_s for peek in peeks if peek.first is not None), default=0.0)
        path.peek_failure_logged = False
        with self._changing(path) as now:
            was_held = path.health.hold_until is not None
            path.health.peeked(
                [peek.first for peek in peeks],
                small=small,
                idle=idle,
                now=now,
                age_s=age_s,
                queues=queues,
            )
            until = path.health.hold_until
            if until is not None and not was_held:
                for other in self._paths.values():
                    other.health.join_hold(until, now)

    def peek_failed(self, path: PathState, error: BaseException) -> None:
        """Record that a peek at the backlog failed."""
        with self._changing(path, error) as now:
            if not path.peek_failure_logged:  # peeks are tried again and again
                self.reporter.peek_failed(path.name, error)
            path.peek_failure_logged = True
            path.health.peek_failed(now)

    @contextmanager
    def _changing(self, path: PathState, error: BaseException | None = None) -> Iterator[float]:
        """Change the health of a path under the lock. The changes are reported without it, in the
        order in which they happened."""
        health = path.health
        with self.lock:
            yield self.now()
            changes, health.changes = health.changes, []
            stalled, health.stalled = health.stalled, False
            start = not path.recovering and health.next_step() is not None and not self.primary.down
            path.recovering = path.recovering or start
            if changes or stalled:
                when = self.wall_clock()
            for change in changes:
                path.since = when
                self.reporter.status_changed(path.name, change, when)
            if stalled:
                self.reporter.drain_stalled(path.name, self.options.drain_timeout, error, when)
        if start:
            self._start_recovery(path)
        self.notify()
        self.reporter.deliver()  # last: a handler that blocks delays nothing else

    # Status.

    def status(self) -> PairingStatus:
        """Return the current status of the pairing."""
        with self.lock:
            return make_status(
                self.primary,
                self.secondary,
                self.secondary_host.snapshot(),
                self._paths.values(),
                self.rotation,
                self.backlog.pulled_at,
            )
