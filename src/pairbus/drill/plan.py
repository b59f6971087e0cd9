"""What a drill does: how much is sent, where, and how long things last."""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import NamedTuple, get_args

from pairbus.errors import ConfigurationError
from pairbus.options import Failback

MOST = 1000
"""Messages a second: about what one process sends with the Azure SDK beside all else."""
SUBSCRIPTION = "all"


class EntityType(Enum):
    """What an entity is."""

    QUEUE = "a queue"
    SESSIONS = "a queue with sessions"
    TOPIC = "a topic"


class DrillEntity(NamedTuple):
    """A queue or topic of the primary that the drill makes, sends to and receives from. All of them
    remove duplicates."""

    path: str
    shape: EntityType


def entities(prefix: str = "") -> tuple[DrillEntity, ...]:
    return (
        DrillEntity(f"{prefix}orders", EntityType.QUEUE),
        DrillEntity(f"{prefix}payments", EntityType.SESSIONS),
        DrillEntity(f"{prefix}news", EntityType.TOPIC),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOptions:
    """Raises ConfigurationError where a value is out of bounds."""

    senders: int = 6
    """Threads that send, each to one of three entities."""
    rate: float = 150
    """Messages a second, of all senders together."""
    size: int = 1024
    """Bytes of a body."""
    before: timedelta = timedelta(seconds=5)
    """How long all is well."""
    outage: timedelta = timedelta(seconds=15)
    """How long the primary is down."""
    after: timedelta = timedelta(seconds=3)
    """How long senders go on when all is well again."""
    backlog_queue_count: int = 4
    failover_interval: timedelta = timedelta(seconds=2)
    ping_primary_interval: timedelta = timedelta(seconds=1)
    failback: Failback = "after-drain"

    def __post_init__(self) -> None:
        _within("senders", self.senders, 3, 64)
        _within("rate", self.rate, 1, MOST)
        _within("size", self.size, 1, 200_000)
        _within("backlog queues", self.backlog_queue_count, 1, 100)
        for name in ("before", "outage", "after"):
            _within(f"{name}, in seconds,", getattr(self, name).total_seconds(), 0, 3600)
        if self.failback not in get_args(Failback):
            raise ConfigurationError(
                f"failback is one of {', '.join(get_args(Failback))}, not {self.failback!r}"
            )
        if self.outage <= self.failover_interval:
            raise ConfigurationError(
                f"an outage of {self.outage} is not longer than the failover interval, "
                f"{self.failover_interval}: there would be no failover"
            )

    @property
    def lasts(self) -> timedelta:
        """How long messages are sent, without the drain."""
        return self.before + self.outage + self.after


def _within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ConfigurationError(f"{name} is {least:g} to {most:g}, not {value:g}")
