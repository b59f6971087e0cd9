"""The runtime properties of an entity: message counts, size and times."""

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCounts:
    """The number of messages of an entity, by state and subqueue."""

    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0

    @property
    def total(self) -> int:
        counts = self.active + self.dead_letter + self.scheduled
        return counts + self.transfer + self.transfer_dead_letter


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeProperties:
    """The runtime properties of a queue, topic or subscription. Times are timezone-aware."""

    created_at: datetime
    updated_at: datetime
    accessed_at: datetime | None = None
    size_in_bytes: int = 0
    counts: MessageCounts = MessageCounts()
    subscription_count: int = 0
    sql_filter_count: int = 0
    correlation_filter_count: int = 0


def to_datetime(milliseconds: int) -> datetime:
    """Return a time in milliseconds since 1970 as an aware datetime."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
