"""The state of one path: its health, its senders, its counters. No I/O, no clock."""

from datetime import datetime
from typing import NamedTuple

from pairbus.events import Pinged
from pairbus.options import FailureKind
from pairbus.pairing.counters import PathCounters
from pairbus.pairing.health import PathHealth
from pairbus.pairing.snapshots import LastError, PathSnapshot


class Hold(NamedTuple):
    """A send waits for the end of a hold, at most so many seconds."""

    seconds: float
    version: int
    """The version of the shared state on which the decision is based."""


class PathState:
    """A queue or topic of the primary that has a sender. The lock of the pairing's state must be
    held to change it."""

    def __init__(self, name: str, health: PathHealth, since: datetime) -> None:
        self.name = name
        self.health = health
        self.since = since
        """The time of the last change of its status."""
        self.queue_of_sender: dict[object, str] = {}
        """The backlog queue that each sender stays with."""
        self.last_ping: Pinged | None = None
        self.last_error: LastError | None = None
        self.counters = PathCounters()
        self._sent_before_busy = 0
        """The messages that the primary had accepted when it last throttled a send."""
        self.recovering = False
        """A recovery operation carries out the steps of this path."""
        self.peek_failure_logged = False

    def record_error(self, error: BaseException, kind: FailureKind, when: datetime) -> None:
        """Record the error of a send."""
        self.last_error = LastError(error=error, kind=kind, when=when)

    def sent_since_busy(self) -> bool:
        """Record a throttled send. Return whether the primary accepted messages after the previous
        one. Healthy sends do not report their success; they only count their messages."""
        sent, before = self.counters.sent, self._sent_before_busy
        self._sent_before_busy = sent
        return sent != before

    def snapshot(self) -> PathSnapshot:
        """Return the state as data."""
        return PathSnapshot(
            status=self.health.status,
            since=self.since,
            cause=self.health.cause,
            backlog_queues=tuple(sorted(set(self.queue_of_sender.values()))),
            last_ping=self.last_ping,
            last_error=self.last_error,
            counters=self.counters.snapshot(),
        )
