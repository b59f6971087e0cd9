"""The settings of an entity that its queues depend on."""

from datetime import timedelta
from typing import Protocol

from pairbus.emulator.entities.descriptions import (
    EntityDescription,
    QueueDescription,
    TopicDescription,
    with_settings,
)
from pairbus.servicebus.time_spans import to_milliseconds

MAX_TIMESTAMP_MS = 253402300799999
"""The end of the year 9999. A message that would expire later never expires."""


class QueueSettings(Protocol):
    """The settings of one queue. Descriptions of queues and subscriptions have them."""

    @property
    def lock_duration(self) -> timedelta: ...
    @property
    def max_delivery_count(self) -> int: ...
    @property
    def default_message_time_to_live(self) -> timedelta: ...
    @property
    def dead_lettering_on_message_expiration(self) -> bool: ...
    @property
    def requires_session(self) -> bool: ...


def queue_settings(description: EntityDescription, subqueue: int) -> QueueSettings:
    """Return the settings for the queue (0) or a dead-letter queue (1, 2) of an entity.

    The scheduled messages of a topic are kept in a queue with default settings. Dead-letter queues
    have no sessions.
    """
    if isinstance(description, TopicDescription):
        return QueueDescription(
            name="topic", default_message_time_to_live=description.default_message_time_to_live
        )
    if not subqueue or not description.requires_session:
        return description
    return with_settings(description, requires_session=False)


def expiry_ms(settings: QueueSettings, ttl_ms: int | None, start_ms: int) -> int | None:
    """Return when a message expires whose time-to-live starts at a time. None means never."""
    default_ms = to_milliseconds(settings.default_message_time_to_live)
    lifetime_ms = default_ms if ttl_ms is None else min(ttl_ms, default_ms)
    return None if start_ms + lifetime_ms >= MAX_TIMESTAMP_MS else start_ms + lifetime_ms
