"""Totals of dead letters by reason and destination. No I/O."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pairbus.backlog.json_values import iso_time, oldest_to_json
from pairbus.backlog.message import BacklogMessage


@dataclass(slots=True)
class DeadLetterGroup:
    """The dead letters that have one reason and one destination."""

    reason: str | None
    destination: str | None
    """None if the messages name no destination."""
    messages: int = 0
    bytes: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    description: str | None = None
    """The description of the first of the messages."""

    def add(self, message: BacklogMessage) -> None:
        """Add a message."""
        self.messages += 1
        self.bytes += message.size
        if self.description is None:
            self.description = message.dead_letter_description
        time = message.enqueued_ms
        if time is not None:
            self.oldest_ms = time if self.oldest_ms is None else min(self.oldest_ms, time)
            self.newest_ms = time if self.newest_ms is None else max(self.newest_ms, time)

    def to_json(self, now_ms: int) -> dict[str, object]:
        """Return the group for `json.dumps`."""
        return {
            "reason": self.reason,
            "destination": self.destination,
            "messages": self.messages,
            "size_in_bytes": self.bytes,
            **oldest_to_json(self.oldest_ms, now_ms),
            "newest_time": None if self.newest_ms is None else iso_time(self.newest_ms),
            "description": self.description,
        }


@dataclass(slots=True)
class DeadLetterGroups:
    """Sums up dead letters. It keeps a total per group, not the messages."""

    messages: int = 0
    bytes: int = 0
    _groups: dict[tuple[str | None, str | None], DeadLetterGroup] = field(default_factory=dict)

    def add(self, messages: Iterable[BacklogMessage]) -> None:
        """Add messages."""
        for message in messages:
            key = message.dead_letter_reason, message.destination
            self._groups.setdefault(key, DeadLetterGroup(*key)).add(message)
            self.messages += 1
            self.bytes += message.size

    def largest_first(self) -> list[DeadLetterGroup]:
        """Return the groups, sorted by the number of messages."""
        return sorted(
            self._groups.values(),
            key=lambda group: (-group.messages, group.reason or "", group.destination or ""),
        )
