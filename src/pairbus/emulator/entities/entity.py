"""A queue, topic or subscription with its messages."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pairbus.emulator.entities.descriptions import EntityDescription
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.entities.rule_messages import RuleMessage
from pairbus.emulator.filters.rules import Rule, RuleResult
from pairbus.emulator.storage.entities import EntityRow
from pairbus.servicebus.message_states import SCHEDULED
from pairbus.servicebus.time_spans import MAX_TIME_SPAN, to_milliseconds


@dataclass(eq=False, slots=True)
class Entity:
    """A queue, topic or subscription with its queues of messages."""

    row: EntityRow
    description: EntityDescription
    queue: MessageQueue
    """The queue of a topic contains scheduled messages only."""
    dead_letters: MessageQueue
    transfer_dead_letters: MessageQueue
    rules: dict[str, Rule] = field(default_factory=dict)
    """The rules of a subscription, by their names in lower case."""
    apply_rules: Callable[[RuleMessage], RuleResult] | None = None
    """The compiled rules of a subscription."""
    accessed_ms: int = field(init=False)
    """The time of the last send, receive, change or open link."""

    def __post_init__(self) -> None:
        self.accessed_ms = self.row.accessed_ms

    @property
    def idle_at_ms(self) -> int | None:
        """The time from which the entity was unused for AutoDeleteOnIdle. None means never."""
        limit = self.description.auto_delete_on_idle
        if limit >= MAX_TIME_SPAN or self.queue.counts[SCHEDULED]:
            return None
        return self.accessed_ms + to_milliseconds(limit)

    def is_idle(self, now_ms: int) -> bool:
        """Return True if the entity was unused for longer than AutoDeleteOnIdle."""
        idle_at_ms = self.idle_at_ms
        return idle_at_ms is not None and now_ms >= idle_at_ms

    @property
    def path(self) -> str:
        return self.description.path

    @property
    def queues(self) -> tuple[MessageQueue, MessageQueue, MessageQueue]:
        return self.queue, self.dead_letters, self.transfer_dead_letters

    @property
    def bytes(self) -> int:
        """The size of all messages, dead letters included."""
        return self.queue.bytes + self.dead_letters.bytes + self.transfer_dead_letters.bytes
