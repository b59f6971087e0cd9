"""Totals of the backlog by destination."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pairbus.backlog.json_values import oldest_to_json
from pairbus.backlog.message import BacklogMessage


@dataclass(slots=True)
class DestinationSummary:
    """The total of the messages that have one destination and one problem."""

    destination: str | None
    """None if the messages name no destination."""
    problem: str | None
    """The reason why a syphon would dead-letter the messages, or None if it would deliver them to
    a destination that exists."""
    messages: int = 0
    bytes: int = 0
    oldest_ms: int | None = None

    def add(self, size: int, enqueued_ms: int | None) -> None:
        """Add a message."""
        self.messages += 1
        self.bytes += size
        if enqueued_ms is not None and (self.oldest_ms is None or enqueued_ms < self.oldest_ms):
            self.oldest_ms = enqueued_ms

    def to_json(self, now_ms: int) -> dict[str, Any]:
        return {
            "destination": self.destination,
            "problem": self.problem,
            "messages": self.messages,
            "size_in_bytes": self.bytes,
            **oldest_to_json(self.oldest_ms, now_ms),
        }


@dataclass(slots=True)
class DestinationSummaries:
    """Sums up messages by destination. It keeps a summary per destination, not the messages."""

    messages: int = 0
    _summaries: dict[tuple[str | None, str | None], DestinationSummary] = field(
        default_factory=dict
    )

    def add(self, messages: Iterable[BacklogMessage]) -> None:
        for message in messages:
            key = message.destination, message.problem
            summary = self._summaries.setdefault(key, DestinationSummary(*key))
            summary.add(message.size, message.enqueued_ms)
            self.messages += 1

    @property
    def without_destination(self) -> int:
        """The number of messages that name no destination."""
        return sum(
            summary.messages for summary in self._summaries.values() if summary.destination is None
        )

    def largest_first(self) -> list[DestinationSummary]:
        return sorted(
            self._summaries.values(),
            key=lambda summary: (
                -summary.messages,
                summary.destination or "",
                summary.problem or "",
            ),
        )
