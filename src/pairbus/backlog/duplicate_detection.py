"""Duplicate detection at the entity to which dead letters return.

An entity with duplicate detection accepts a message whose id it has seen within its time window,
and drops it. A dead letter that returns to its own queue or topic within that time would be lost.
A dead letter of the backlog is different: if its destination has seen the id, the message is there.
"""

from datetime import timedelta
from functools import partial
from typing import Final

from pairbus.backlog.dead_letter_source import DeadLetterSource, topic_of
from pairbus.errors import AmqpError, ConfigurationError, EntityNotFound
from pairbus.servicebus.administration import AdministrationClient
from pairbus.servicebus.atom import QueueProperties, TopicProperties
from pairbus.servicebus.entity_paths import normalize_path
from pairbus.spark.throttled_requests import retry_throttled
from pairbus.spark.usage import NO_USAGE, UsageRecorder

WOULD_BE_DROPPED: Final = "DuplicateDetection"
"""The reason for which a dead letter stays."""
MAX_WINDOW: Final = timedelta(days=7)
"""The longest time window of Service Bus."""


def duplicate_windows(
    source: DeadLetterSource, usage: UsageRecorder = NO_USAGE
) -> dict[str, timedelta]:
    """Return the time window of duplicate detection for the entities whose dead letters return to
    where they came from. Needs the Manage right. Raises EntityNotFound, and ConfigurationError if
    it cannot be read."""
    origins = {entity: _origin(source, entity) for entity in source.entities}
    windows: dict[str, timedelta] = {}
    if source.in_backlog or source.ignore_duplicate_detection or not any(origins.values()):
        return windows
    with AdministrationClient(
        source.namespace.administration(), on_request=usage.add_request
    ) as administration:
        for entity, origin in origins.items():
            if origin is None:
                continue
            try:
                properties = retry_throttled(partial(_read, administration, entity, origin))
            except EntityNotFound:
                raise
            except AmqpError as exc:
                raise ConfigurationError(
                    f"It is not known if {origin!r} has duplicate detection, which would drop "
                    f"messages that it has seen: {exc.description}. Use a key with the Manage "
                    "right, or --ignore-duplicate-detection if you know that it has none."
                ) from exc
            if properties.requires_duplicate_detection:
                windows[entity] = properties.duplicate_detection_window or MAX_WINDOW
    usage.flush()
    return windows


def _read(
    administration: AdministrationClient, entity: str, origin: str
) -> QueueProperties | TopicProperties:
    is_queue = topic_of(entity) is None
    return administration.get_queue(origin) if is_queue else administration.get_topic(origin)


def would_be_dropped(enqueued_ms: int | None, window: timedelta, now_ms: int) -> bool:
    """Return True if an entity may still know the id of a message that was enqueued there. None:
    the time is not known."""
    return enqueued_ms is None or now_ms - enqueued_ms < window.total_seconds() * 1000


def describe(origin: str, window: timedelta) -> str:
    """Say why a message stays."""
    return (
        f"{origin!r} has duplicate detection and has seen the id within the last {window}, so it "
        "would drop the message. Redrive it later, or with --to another queue."
    )


def _origin(source: DeadLetterSource, entity: str) -> str | None:
    """Return the queue or topic that the messages came from, if it is their destination."""
    origin = topic_of(entity) or entity
    destination = source.destination_of(entity)
    returns = destination is not None and normalize_path(destination) == normalize_path(origin)
    return origin if returns else None
