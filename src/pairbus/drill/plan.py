"""The options of a drill, and the entities that it sends to."""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import NamedTuple, get_args

from pairbus.errors import ConfigurationError
from pairbus.options import Failback

MAX_RATE = 1000
"""Messages a second. One process can send about this many with the Azure SDK during a drill."""
SUBSCRIPTION = "all"


class EntityType(Enum):
    """The type of an entity. The values are shown to the user."""

    QUEUE = "queue"
    SESSION_QUEUE = "queue with sessions"
    TOPIC = "topic"


class DrillEntity(NamedTuple):
    """A queue or topic of the primary that the drill creates, sends to and receives from. It has
    duplicate detection."""

    path: str
    type: EntityType


def entities(prefix: str = "") -> tuple[DrillEntity, ...]:
    """Return one entity of each type."""
    return (
        DrillEntity(f"{prefix}orders", EntityType.QUEUE),
        DrillEntity(f"{prefix}payments", EntityType.SESSION_QUEUE),
        DrillEntity(f"{prefix}news", EntityType.TOPIC),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOptions:
    """The size and the timing of a drill. Raises ConfigurationError for a value out of bounds."""

    senders: int = 6
    """The number of sender threads. Each sends to one of the entities."""
    rate: float = 150
    """Messages a second, of all senders together."""
    size: int = 1024
    """The size of a message body in bytes."""
    before: timedelta = timedelta(seconds=5)
    """The time before the outage."""
    outage: timedelta = timedelta(seconds=15)
    """The length of the outage."""
    after: timedelta = timedelta(seconds=3)
    """The time for which senders continue after the drain."""
    backlog_queue_count: int = 4
    failover_interval: timedelta = timedelta(seconds=2)
    ping_primary_interval: timedelta = timedelta(seconds=1)
    failback: Failback = "after-drain"

    def __post_init__(self) -> None:
        _check("senders", self.senders, 3, 64)
        _check("rate", self.rate, 1, MAX_RATE)
        _check("size", self.size, 1, 200_000)
        _check("backlog_queue_count", self.backlog_queue_count, 1, 100)
        for name in ("before", "outage", "after"):
            _check(name, getattr(self, name).total_seconds(), 0, 3600, " seconds")
        if self.failback not in get_args(Failback):
            raise ConfigurationError(
                f"failback must be one of {', '.join(get_args(Failback))}, not {self.failback!r}."
            )
        if self.outage <= self.failover_interval:
            raise ConfigurationError(
                f"An outage of {self.outage.total_seconds():g} s causes no failover. It must be "
                f"longer than the failover interval, "
                f"{self.failover_interval.total_seconds():g} s."
            )

    @property
    def duration(self) -> timedelta:
        """The time for which messages are sent, without the drain."""
        return self.before + self.outage + self.after


def _check(name: str, value: float, minimum: float, maximum: float, unit: str = "") -> None:
    if not minimum <= value <= maximum:
        raise ConfigurationError(
            f"{name} must be between {minimum:,} and {maximum:,}{unit}, not {value:,.10g}."
        )
