"""The events of a pairing: plain data for `SendAvailabilityOptions.on_event`."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

__all__ = [
    "BacklogQueueMismatch",
    "BacklogQueuePulled",
    "BacklogQueueRestored",
    "DrainStalled",
    "Event",
    "PathStatus",
    "Pinged",
    "Probed",
    "SecondaryRestored",
    "SecondaryUnavailable",
    "StateChanged",
    "SyphonStarted",
    "SyphonStopped",
    "Throttled",
]


class PathStatus(Enum):
    """The state of a path, which decides where its messages are sent."""

    HEALTHY = "healthy"
    """Messages go to the primary."""
    SUSPECT = "suspect"
    """Messages go to the primary. A send failed, none has succeeded since, and the failover timer
    runs."""
    FAILOVER = "failover"
    """Messages go to the backlog, and the primary is pinged."""
    DRAINING = "draining"
    """The primary is back, but messages go to the backlog until it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The base class of all events."""

    when: datetime
    """The time of the event, in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged(Event):
    """A path changed its state."""

    path: str
    from_state: PathStatus
    to_state: PathStatus
    cause: BaseException | None = None
    """The error that led to the change, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinged(Event):
    """A path in failover was pinged."""

    path: str
    error: BaseException | None = None
    """The error of the ping; None if the primary accepted it."""
    refused: bool = False
    """The primary answered and refused the ping: the entity was deleted, or a right is missing.
    Waiting does not help. Messages continue to go to the backlog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed(Event):
    """The primary was probed over a new link: a send failed for a reason that the SDK hides. If the
    probe fails too, the path fails over."""

    path: str
    error: BaseException | None = None
    """The error of the probe; None if the primary accepted it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled(Event):
    """A namespace did not accept a call because it throttles, after the retries of the SDK."""

    path: str
    namespace: str
    """The host of the namespace, with its port if that is not the default."""
    messages: int
    """The number of messages of the call."""
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQueueMismatch(Event):
    """A backlog queue that existed before the pairing has a setting that is worse than that of a
    queue that pairing creates. The queue is used as it is."""

    queue: str
    setting: str
    """The service's name of the setting, such as `LockDuration`."""
    value: str
    """The value of the setting, as the service writes it."""
    expected: str
    consequence: str
    """The effect of the setting in an outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQueuePulled(Event):
    """A backlog queue failed, and no sender uses it until its cool-down has passed."""

    queue: str
    cause: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQueueRestored(Event):
    """A backlog queue that was pulled is used again."""

    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondaryUnavailable(Event):
    """The host of the secondary cannot be reached. Sends of paths in failover raise SendUnavailable
    at once, until a probe in the background reaches it."""

    cause: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondaryRestored(Event):
    """The host of the secondary can be reached again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainStalled(Event):
    """The primary is back, but the backlog did not shrink for `drain_timeout`. Check that a syphon
    is running."""

    path: str
    error: BaseException | None = None
    """The error of the last peek at the backlog, if it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonStarted(Event):
    """The syphon of this process started (`enable_syphon=True`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonStopped(Event):
    """The syphon of this process stopped."""

    error: BaseException | None = None
    """The error that stopped the syphon, after which it is restarted; None if the pairing was
    closed."""
