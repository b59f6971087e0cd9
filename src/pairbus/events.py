"""What happens in a pairing, as plain data for a hook (`SendAvailabilityOptions.on_event`)."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum


class PathStatus(Enum):
    """Where sends of a path go, and why."""

    HEALTHY = "healthy"
    """To the primary."""
    SUSPECT = "suspect"
    """To the primary, which failed and has not yet succeeded since: the failover timer runs."""
    FAILOVER = "failover"
    """To the backlog; the primary is pinged."""
    DRAINING = "draining"
    """Still to the backlog: the primary is back, and the backlog must be empty first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened, and when."""

    when: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged(Event):
    """A path is in another state. `cause` is the error that led there, if one did."""

    path: str
    from_state: PathStatus
    to_state: PathStatus
    cause: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinged(Event):
    """The primary was tried. `error` is None if it is back."""

    path: str
    error: BaseException | None = None
    callers_fault: bool = False
    """The primary answers, and refuses: the entity is gone, or a right is missing. Waiting will not
    help; messages go on to the backlog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQueuePulled(Event):
    """A backlog queue failed: no sender uses it for a while."""

    queue: str
    cause: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQueueRestored(Event):
    """A backlog queue that had failed takes messages again."""

    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainStalled(Event):
    """The primary is back, and the backlog has not become less for `drain_timeout`. Does a syphon
    run?"""

    path: str
    error: BaseException | None = None
    """Why the backlog could not be looked at, if it could not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonStarted(Event):
    """The syphon of this process runs (`enable_syphon=True`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonStopped(Event):
    """The syphon of this process has stopped: because the pairing was closed, or because of an
    error, after which it is started again."""

    error: BaseException | None = None
