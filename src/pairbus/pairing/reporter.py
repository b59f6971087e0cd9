"""Reports the changes of a pairing: to the log, to the user's event handler, and to the ledger."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pairbus.events import (
    BacklogQueuePulled,
    BacklogQueueRestored,
    DrainStalled,
    Event,
    PathStatus,
    Pinged,
    SecondaryRestored,
    SecondaryUnavailable,
    StateChanged,
)
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

ChangeRecorder = Callable[[str, str, str, str | None], None]
"""Called with the path, the old and the new status, and the cause of each change."""


class PairingReporter:
    """Reports changes. Its methods are called without the lock of the state, in any thread."""

    def __init__(
        self,
        on_event: Callable[[Event], None] | None,
        record_change: ChangeRecorder | None,
    ) -> None:
        self._on_event = on_event
        self._record_change = record_change

    def emit(self, event: Event) -> None:
        """Call the user's event handler. Its exceptions are logged."""
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:  # an event handler must not fail a send
                logger.exception("on_event raised an exception")

    def status_changed(self, path: str, change: StatusChange) -> None:
        """Report a change of the status of a path."""
        cause = None if change.cause is None else str(change.cause)
        logger.log(
            _LEVELS[change.to_state],
            "%s: %s to %s; %s%s",
            path,
            change.from_state.value,
            change.to_state.value,
            _EXPLANATIONS[change.to_state],
            "" if cause is None else f" ({cause})",
        )
        if self._record_change is not None:
            self._record_change(path, change.from_state.value, change.to_state.value, cause)
        self.emit(
            StateChanged(
                when=utc_now(),
                path=path,
                from_state=change.from_state,
                to_state=change.to_state,
                cause=change.cause,
            )
        )

    def pinged(self, ping: Pinged) -> None:
        """Report the result of a ping."""
        if ping.refused:
            logger.error(
                "%s: the primary refused the ping; messages go to the backlog: %s",
                ping.path,
                ping.error,
            )
        self.emit(ping)

    def drain_stalled(
        self, path: str, drain_timeout: timedelta, error: BaseException | None
    ) -> None:
        """Report that the backlog does not shrink."""
        logger.error(
            "%s: the backlog did not shrink for %s. Check that a syphon is running",
            path,
            drain_timeout,
        )
        self.emit(DrainStalled(when=utc_now(), path=path, error=error))

    def queue_pulled(self, queue: str, cause: BaseException) -> None:
        """Report that a backlog queue was pulled from the rotation."""
        logger.warning("Backlog queue %s failed and is not used for a while: %s", queue, cause)
        self.emit(BacklogQueuePulled(when=utc_now(), queue=queue, cause=cause))

    def queue_restored(self, queue: str) -> None:
        """Report that a backlog queue is in the rotation again."""
        logger.info("Backlog queue %s is used again", queue)
        self.emit(BacklogQueueRestored(when=utc_now(), queue=queue))

    def secondary_unavailable(self, cause: BaseException) -> None:
        """Report that the host of the secondary cannot be reached."""
        logger.error("The secondary cannot be reached; no backlog queue is tried: %s", cause)
        self.emit(SecondaryUnavailable(when=utc_now(), cause=cause))

    def secondary_restored(self) -> None:
        """Report that the host of the secondary can be reached again."""
        logger.info("The secondary can be reached again")
        self.emit(SecondaryRestored(when=utc_now()))


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)
