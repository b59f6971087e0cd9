"""The backlog by where its messages are going."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.queues import oldest_as_json


@dataclass(slots=True)
class DestinationSummary:
    """Messages that say one thing."""

    destination: str | None
    """None: they say none."""
    problem: str | None
    """Why a syphon would dead-letter them; None: it would not, if the destination is there."""
    messages: int = 0
    bytes: int = 0
    oldest_ms: int | None = None

    def as_json(self, now_ms: int) -> dict[str, Any]:
        return {
            "destination": self.destination,
            "problem": self.problem,
            "messages": self.messages,
            "bytes": self.bytes,
            **oldest_as_json(self.oldest_ms, now_ms),
        }


@dataclass(slots=True)
class DestinationSummaries:
    """Adds messages up. However many they are, it keeps no more than a line for each
    destination."""

    messages: int = 0
    _found: dict[tuple[str | None, str | None], DestinationSummary] = field(default_factory=dict)

    def add(self, messages: Iterable[BacklogMessage]) -> None:
        for one in messages:
            key = one.destination, one.problem
            heap = self._found.setdefault(key, DestinationSummary(*key))
            heap.messages += 1
            heap.bytes += one.size
            if one.enqueued_ms is not None and (
                heap.oldest_ms is None or one.enqueued_ms < heap.oldest_ms
            ):
                heap.oldest_ms = one.enqueued_ms
            self.messages += 1

    @property
    def none(self) -> int:
        """Messages that say no destination."""
        return sum(heap.messages for heap in self._found.values() if heap.destination is None)

    def largest_first(self) -> list[DestinationSummary]:
        return sorted(
            self._found.values(),
            key=lambda heap: (-heap.messages, heap.destination or "", heap.problem or ""),
        )
