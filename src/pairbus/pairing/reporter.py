"""Reports the changes of a pairing: to the log, to the user's event handler, and to the ledger."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Lock

from pairbus.events import (
    BacklogQueueMismatch,
    BacklogQueuePulled,
    BacklogQueueRestored,
    DrainStalled,
    Event,
    PathStatus,
    Pinged,
    Probed,
    SecondaryRestored,
    SecondaryUnavailable,
    StateChanged,
    SyphonStarted,
    SyphonStopped,
    Throttled,
)
from pairbus.pairing.backlog_settings import SettingMismatch, group_mismatches
from pairbus.pairing.health import StatusChange

logger = logging.getLogger("pairbus.pairing")

_LEVELS = {
    PathStatus.HEALTHY: logging.INFO,
    PathStatus.SUSPECT: logging.WARNING,
    PathStatus.FAILOVER: logging.ERROR,
    PathStatus.DRAINING: logging.WARNING,
}
_EXPLANATIONS = {
    PathStatus.HEALTHY: "messages go to the primary",
    PathStatus.SUSPECT: "sending fails, and the failover timer runs",
    PathStatus.FAILOVER: "messages go to the backlog",
    PathStatus.DRAINING: "the primary is back; messages go to the backlog until it is empty",
}

ChangeRecorder = Callable[[str, str, str, str | None, datetime], None]
"""Called with the path, the old and the new status, the cause and the time of each change."""


class PairingReporter:
    """Reports changes one at a time, in the order in which they happened.

    The methods for the different changes are called while the lock of the state is held. They only
    append to a queue. `deliver` is called without the lock, in any thread. `call_handler` calls the
    function that is passed to it, in the thread in which event handlers run; None: at once.
    `observe` is called with each event under the lock, even while a handler blocks; it must return
    at once, and not raise. `on_telemetry` gets each event before `on_event` does.
    """

    def __init__(
        self,
        on_event: Callable[[Event], None] | None,
        record_change: ChangeRecorder | None,
        call_handler: Callable[[Callable[[], None]], None] | None = None,
        on_telemetry: Callable[[Event], None] | None = None,
        *,
        observe: Callable[[Event], None] | None = None,
    ) -> None:
        self._handlers = tuple(each for each in (on_telemetry, on_event) if each is not None)
        self._observe = observe
        self._record_change = record_change
        self._call_handler = call_handler
        self._reports: deque[Callable[[], None]] = deque()
        self._delivering = Lock()

    def deliver(self) -> None:
        """Deliver everything that was reported. If another thread is delivering, or a handler that
        is running caused this report, that delivery continues with it."""
        if not self._reports:
            return
        if self._call_handler is None:
            self._deliver()
        else:
            self._call_handler(self._deliver)

    def _deliver(self) -> None:
        # A report that is added between the last look at the queue and the release of the lock is
        # found by the outer loop.
        while self._reports and self._delivering.acquire(blocking=False):
            try:
                while self._reports:
                    self._call(self._reports.popleft())
            finally:
                self._delivering.release()

    def _call(self, report: Callable[[], None]) -> None:
        try:
            report()
        except Exception:  # a report must not fail a send, which may even be that of another path
            logger.exception("on_event, telemetry, the ledger or a log handler raised an exception")

    def _add_event(self, event: Event) -> None:
        if self._observe is not None:
            self._observe(event)
        for handler in self._handlers:
            self._reports.append(partial(handler, event))

    def _add_log(self, level: int, text: str, *args: object) -> None:
        self._reports.append(partial(logger.log, level, text, *args))

    def status_changed(self, path: str, change: StatusChange, when: datetime) -> None:
        """Report a change of the status of a path."""
        from_state, to_state = change.from_state, change.to_state
        self._reports.append(partial(self._record, path, change, when))
        self._add_event(
            StateChanged(
                when=when, path=path, from_state=from_state, to_state=to_state, cause=change.cause
            )
        )

    def _record(self, path: str, change: StatusChange, when: datetime) -> None:
        """Write a change to the log and to the ledger."""
        from_state, to_state = change.from_state, change.to_state
        cause = None if change.cause is None else str(change.cause)
        logger.log(
            _LEVELS[to_state],
            "%s: %s to %s; %s%s",
            path,
            from_state.value,
            to_state.value,
            _EXPLANATIONS[to_state],
            "" if cause is None else f" ({cause})",
        )
        if self._record_change is not None:
            self._record_change(path, from_state.value, to_state.value, cause, when)

    def pinged(self, ping: Pinged) -> None:
        """Report the result of a ping."""
        if ping.refused:
            self._add_log(
                logging.ERROR,
                "%s: the primary refused the ping; messages go to the backlog: %s",
                ping.path,
                ping.error,
            )
        self._add_event(ping)

    def probed(self, probe: Probed) -> None:
        """Report the result of a probe."""
        self._add_event(probe)

    def throttled(self, event: Throttled) -> None:
        """Report a call that a namespace throttled."""
        self._add_event(event)

    def peek_failed(self, path: str, error: BaseException) -> None:
        """Report that a peek at the backlog failed."""
        self._add_log(logging.WARNING, "%s: the peek at the backlog failed: %s", path, error)

    def drain_stalled(
        self, path: str, drain_timeout: timedelta, error: BaseException | None, when: datetime
    ) -> None:
        """Report that the backlog does not shrink."""
        self._add_log(
            logging.ERROR,
            "%s: the backlog did not shrink for %s. Check that a syphon is running",
            path,
            drain_timeout,
        )
        self._add_event(DrainStalled(when=when, path=path, error=error))

    def queue_pulled(self, queue: str, cause: BaseException, when: datetime) -> None:
        """Report that a backlog queue was pulled from the rotation."""
        self._add_log(
            logging.WARNING,
            "Backlog queue %s failed and is not used for a while: %s",
            queue,
            cause,
        )
        self._add_event(BacklogQueuePulled(when=when, queue=queue, cause=cause))

    def queue_restored(self, queue: str, when: datetime) -> None:
        """Report that a backlog queue is in the rotation again."""
        self._add_log(logging.INFO, "Backlog queue %s is used again", queue)
        self._add_event(BacklogQueueRestored(when=when, queue=queue))

    def settings_differ(self, mismatches: Sequence[SettingMismatch], when: datetime) -> None:
        """Report settings of backlog queues: a warning for each value, an event for each queue."""
        for group in group_mismatches(mismatches):
            self._add_log(
                logging.WARNING,
                "%s of %s is %s instead of %s: %s. The queues are used as they are; change the "
                "setting, or delete the queues while they are empty and pair again",
                group.first.setting,
                ", ".join(group.queues),
                group.first.value,
                group.first.expected or "empty",
                group.first.consequence,
            )
        for item in mismatches:
            self._add_event(BacklogQueueMismatch(when=when, **asdict(item)))

    def secondary_unavailable(self, cause: BaseException, when: datetime) -> None:
        """Report that the host of the secondary cannot be reached."""
        self._add_log(
            logging.ERROR, "The secondary cannot be reached; no backlog queue is tried: %s", cause
        )
        self._add_event(SecondaryUnavailable(when=when, cause=cause))

    def secondary_restored(self, when: datetime) -> None:
        """Report that the host of the secondary can be reached again."""
        self._add_log(logging.INFO, "The secondary can be reached again")
        self._add_event(SecondaryRestored(when=when))

    def syphon_started(self, when: datetime) -> None:
        """Report that the embedded syphon started."""
        self._add_event(SyphonStarted(when=when))

    def syphon_stopped(self, error: BaseException | None, when: datetime) -> None:
        """Report that the embedded syphon stopped, because of an error if there is one."""
        if error is not None:
            self._add_log(logging.ERROR, "The embedded syphon stopped and is restarted: %s", error)
        self._add_event(SyphonStopped(when=when, error=error))


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)
