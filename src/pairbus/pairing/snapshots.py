"""The status of a pairing at one moment, as plain data (`PairedClient.status`)."""

from dataclasses import dataclass
from datetime import datetime

from pairbus.events import PathStatus, Pinged

__all__ = ["BacklogQueueSnapshot", "PairingStatus", "PathSnapshot", "SecondaryHostSnapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSnapshot:
    """The state of one path."""

    status: PathStatus
    since: datetime
    cause: BaseException | None
    """The error because of which the path is not healthy."""
    backlog_queues: tuple[str, ...]
    """The backlog queues that its senders use."""
    last_ping: Pinged | None


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
