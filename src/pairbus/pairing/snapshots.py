"""The status of a pairing at one moment, as plain data (`PairedClient.status`)."""

from dataclasses import dataclass
from datetime import datetime

from pairbus.events import PathStatus, Pinged
from pairbus.options import FailureKind

__all__ = [
    "BacklogQueueSnapshot",
    "LastError",
    "PairingStatus",
    "PathSnapshot",
    "SecondaryHostSnapshot",
    "SendCounters",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCounters:
    """The messages that were sent and scheduled since the pairing began. A batch of 100 messages
    counts as 100.

    Each message of a call that has ended is counted once: as sent, as stored or as failed. Calls
    that were cancelled are not counted, nor those that were refused before they reached a
    namespace, such as ReservedProperty.
    """

    sent: int
    """The messages that the primary accepted."""
    stored: int
    """The messages that the backlog accepted."""
    failed: dict[FailureKind, int]
    """The messages whose call raised an error, by the kind of that error. SendUnavailable is
    `UNAVAILABLE`. If an answer was lost, such a message may have been accepted."""
    throttled: int
    """The messages that a namespace did not accept because it throttles, after the retries of the
    SDK. They are also counted as failed or, if they went to the backlog, as stored."""
    pings: int
    """The pings and probes of the primary."""
    pings_failed: int
    """The pings and probes that failed, for any reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastError:
    """The last error of a send: of the primary, even if the backlog accepted the message
    afterwards, or the error that the caller got. Errors of pings are in `last_ping`."""

    error: BaseException
    kind: FailureKind
    when: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSnapshot:
    """The state of one path."""

    status: PathStatus
    since: datetime
    """The time of the last change of the status."""
    cause: BaseException | None
    """The error because of which the path is not healthy."""
    backlog_queues: tuple[str, ...]
    """The backlog queues that its senders use."""
    last_ping: Pinged | None
    last_error: LastError | None
    counters: SendCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQueueSnapshot:
    """The state of one backlog queue."""

    in_rotation: bool
    cause: BaseException | None = None
    """The error because of which the queue is not in the rotation."""
    since: datetime | None = None
    """The time at which the queue was pulled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondaryHostSnapshot:
    """The state of the host of the secondary. While it cannot be reached, no backlog queue is
    tried."""

    reachable: bool
    """After an outage in which no send was answered, this is True as soon as a probe has opened a
    link, and one call at a time uses the backlog until a send is answered."""
    cause: BaseException | None = None
    """The last error of a connection."""
    since: datetime | None = None
    """The time since which the host cannot be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingStatus:
    """The state of a pairing, of its paths and of its backlog queues."""

    primary: str
    secondary: str
    secondary_host: SecondaryHostSnapshot
    paths: dict[str, PathSnapshot]
    backlog: dict[str, BacklogQueueSnapshot]
    fault: BaseException | None
    closed: bool
    last_error: LastError | None
    """The last error of all paths."""
    counters: SendCounters
    """The sums of the counters of all paths."""
