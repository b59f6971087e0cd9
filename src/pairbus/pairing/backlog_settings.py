"""Compares the settings of backlog queues that exist with those that pairing creates.

A queue that exists is used as it is. A setting that is worse than ours loses, duplicates or blocks
messages, and that shows only in an outage, so it is reported when the namespaces are paired. A
setting that is better than ours, such as a longer lock, is not reported, nor one that the service
did not return.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pairbus.pairing.backlog_queues import QUEUE_SETTINGS
from pairbus.servicebus.atom import QueueProperties, property_text
from pairbus.servicebus.entity_status import EntityStatus
from pairbus.servicebus.time_spans import MAX_TIME_SPAN

PRACTICALLY_FOREVER = MAX_TIME_SPAN - timedelta(days=1)
"""Services write the longest time span with different precision; these count as the longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingMismatch:
    """A setting of one backlog queue that is worse than that of a queue that pairing creates."""

    queue: str
    setting: str
    value: str
    expected: str
    consequence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchGroup:
    """The queues that have the same value of a setting."""

    first: SettingMismatch
    queues: tuple[str, ...]


def find_mismatches(queue: QueueProperties, *, ordered: bool) -> list[SettingMismatch]:
    """Return the settings of a queue that are worse than ours. `ordered`: the pairing keeps the
    order within sessions (`failback="after-drain"`)."""
    return [
        SettingMismatch(
            queue=queue.path,
            setting=setting,
            value=property_text(value),
            expected=property_text(expected),
            consequence=consequence,
        )
        for setting, value, expected, consequence in (
            *_modes(queue, ordered=ordered),
            *_limits(queue),
            *_lifetimes(queue),
        )
    ]


_Finding = tuple[str, object, object, str]
"""A setting, its value, the expected value, and the consequence."""


def _modes(queue: QueueProperties, *, ordered: bool) -> Iterator[_Finding]:
    if queue.status != EntityStatus.ACTIVE:
        yield (
            "Status",
            queue.status,
            EntityStatus.ACTIVE,
            "the queue stores no messages, or they cannot be drained",
        )
    if queue.requires_session:
        yield (
            "RequiresSession",
            True,
            False,
            "every send to the queue fails, because messages in the backlog have no session id",
        )
    if queue.requires_duplicate_detection:
        yield (
            "RequiresDuplicateDetection",
            True,
            False,
            "of messages with the same id, whatever their destinations, all but one are lost",
        )
    if queue.forward_to is not None:
        yield (
            "ForwardTo",
            queue.forward_to,
            "",
            "the service moves the messages to another entity, and the syphon does not find them",
        )
    if ordered and queue.enable_partitioning:
        yield (
            "EnablePartitioning",
            True,
            False,
            'a partitioned queue does not keep the order that failback="after-drain" promises',
        )


def _limits(queue: QueueProperties) -> Iterator[_Finding]:
    limits: tuple[tuple[str, Any, Any, str], ...] = (
        (
            "LockDuration",
            queue.lock_duration,
            QUEUE_SETTINGS["lock_duration"],
            "locks expire before the syphon completes messages, which are delivered repeatedly",
        ),
        (
            "MaxDeliveryCount",
            queue.max_delivery_count,
            QUEUE_SETTINGS["max_delivery_count"],
            "while a destination is unavailable, its messages are soon dead-lettered",
        ),
        (
            "MaxSizeInMegabytes",
            queue.max_size_in_megabytes,
            QUEUE_SETTINGS["max_size_in_megabytes"],
            "the queue is full earlier; when all queues are full, sends raise SendUnavailable",
        ),
    )
    for setting, value, expected, consequence in limits:
        if value is not None and value < expected:
            yield setting, value, expected, consequence


def _lifetimes(queue: QueueProperties) -> Iterator[_Finding]:
    time_to_live = queue.default_message_time_to_live
    if time_to_live is not None and time_to_live < PRACTICALLY_FOREVER:
        dead_lettered = queue.dead_lettering_on_message_expiration
        end = "dead-lettered" if dead_lettered else "deleted"
        yield (
            "DefaultMessageTimeToLive",
            time_to_live,
            MAX_TIME_SPAN,
            f"messages that are longer in the backlog are {end}",
        )
        if not dead_lettered:  # without effect on messages that do not expire
            yield (
                "DeadLetteringOnMessageExpiration",
                False,
                True,
                "messages that expire in the backlog are lost",
            )
    idle = queue.auto_delete_on_idle
    if idle is not None and idle < PRACTICALLY_FOREVER:
        yield (
            "AutoDeleteOnIdle",
            idle,
            MAX_TIME_SPAN,
            "the service deletes the queue and its messages when it was not used for this time",
        )


def group_mismatches(mismatches: Iterable[SettingMismatch]) -> list[MismatchGroup]:
    """Return one group for each value of a setting, so that a warning can name all its queues."""
    queues: dict[tuple[str, str], list[SettingMismatch]] = {}
    for mismatch in mismatches:
        queues.setdefault((mismatch.setting, mismatch.value), []).append(mismatch)
    return [
        MismatchGroup(first=group[0], queues=tuple(item.queue for item in group))
        for group in queues.values()
    ]
