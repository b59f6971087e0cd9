"""Estimates of a queue's content from a few messages of it. No I/O.

Each message that is peeked is billed, and takes a credit of a Standard namespace. So a large queue
is sampled: some messages at several places, from the oldest to the newest.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pairbus.backlog.json_values import iso_time
from pairbus.backlog.message import BacklogMessage
from pairbus.console.text import label

PLACES: Final = 5
"""The places of a queue from which messages are taken."""
MAX_GROUPS: Final = 500
"""Groups that a snapshot shows, the largest first."""


@dataclass(slots=True)
class MessageEstimate:
    """The estimated number of messages that have one destination, and for dead letters one
    reason."""

    destination: str | None
    reason: str | None = None
    messages: float = 0.0
    oldest_ms: int | None = None

    def add(self, weight: float, time_ms: int | None) -> None:
        """Add a message that stands for `weight` messages."""
        self.messages += weight
        if time_ms is not None:
            self.oldest_ms = time_ms if self.oldest_ms is None else min(self.oldest_ms, time_ms)

    def destination_to_json(self) -> dict[str, Any]:
        """Return the group for `destinations` of the snapshot."""
        return {
            "destination": shown(self.destination),
            "messages": round(self.messages),
            "oldest": None if self.oldest_ms is None else iso_time(self.oldest_ms),
        }

    def dead_letters_to_json(self) -> dict[str, Any]:
        """Return the group for `dead_letters` of the snapshot."""
        return {
            "destination": shown(self.destination),
            "reason": shown(self.reason),
            "messages": round(self.messages),
        }


@dataclass(frozen=True, slots=True)
class QueueSample:
    """Messages of one queue, and the number of all its messages."""

    messages: tuple[BacklogMessage, ...]
    total: int

    @property
    def complete(self) -> bool:
        """True if the sample has all messages."""
        return len(self.messages) >= self.total


def shown(name: str | None) -> str | None:
    """Return a name as the snapshot has it."""
    return None if name is None else label(name)


def sample_positions(first: int, total: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield the sequence number and the number of messages of each request for a sample. `first` is
    the sequence number of the oldest message. Numbers of a queue are nearly contiguous; a number
    that does not exist stands for the next one."""
    if total <= limit:
        yield first, total
        return
    count = max(1, limit // PLACES)
    step = max(count, (total - count) // (PLACES - 1))
    for place in range(PLACES):
        yield first + place * step, count


def estimate(samples: Iterable[QueueSample], *, by_reason: bool) -> list[MessageEstimate]:
    """Return the groups of all queues, the largest first. A message of a sample stands for as many
    messages as its queue has for each message of the sample."""
    groups: dict[tuple[str | None, str | None], MessageEstimate] = {}
    for sample in samples:
        if not sample.messages:
            continue
        weight = max(sample.total, len(sample.messages)) / len(sample.messages)
        for message in sample.messages:
            key = message.destination, message.dead_letter_reason if by_reason else None
            groups.setdefault(key, MessageEstimate(*key)).add(weight, message.enqueued_ms)
    ordered = sorted(
        groups.values(),
        key=lambda group: (-group.messages, group.destination or "", group.reason or ""),
    )
    return ordered[:MAX_GROUPS]


def changed_counts(before: Mapping[str, int], after: Mapping[str, int]) -> set[str]:
    """Return the queues whose count is another one than before."""
    return {queue for queue, count in after.items() if before.get(queue) != count}
