"""Routing of sent messages: into a queue, through a topic to its subscriptions, and forwarding."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pairbus.emulator.entities.descriptions import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.message_codec import (
    IncomingMessage,
    encode_original,
    parse_message,
    partition_key,
    with_message_id,
)
from pairbus.emulator.entities.queue_settings import MAX_TIMESTAMP_MS
from pairbus.emulator.entities.rule_messages import RuleMessage, apply_changes
from pairbus.emulator.storage.store import Store
from pairbus.emulator.storage.stored_message import StoredMessage
from pairbus.errors import (
    EntityDisabled,
    EntityNotFound,
    MessageTooLarge,
    PairbusError,
    QuotaExceeded,
    Refused,
)
from pairbus.servicebus.application_properties import MAX_HOP_COUNT_EXCEEDED
from pairbus.servicebus.entity_paths import path_from_address
from pairbus.servicebus.limits import MAX_FORWARDING_HOPS
from pairbus.servicebus.time_spans import to_milliseconds

if TYPE_CHECKING:
    from pairbus.emulator.entities.registry import EntityRegistry


class MessageRouter:
    """Puts each sent message into the queues it belongs to."""

    def __init__(self, registry: "EntityRegistry", store: Store) -> None:
        self._registry = registry
        self._store = store

    def send(self, entity: Entity, messages: Sequence[IncomingMessage], now_ms: int) -> list[int]:
        """Send messages to a queue or topic, all or none, and return their sequence numbers.

        A message without a message id gets one. The number of a message that was discarded as a
        duplicate is 0. Raises Refused, QuotaExceeded, MessageTooLarge, EntityDisabled or
        EntityNotFound.
        """
        self._check(entity, messages)
        self._registry.touch(entity, now_ms)
        messages = [
            message if message.message_id is not None else with_message_id(message)
            for message in messages
        ]
        description = entity.description
        if (
            isinstance(description, QueueDescription)
            and not description.requires_duplicate_detection
            and description.forward_to is None
        ):
            return entity.queue.enqueue_all(messages, now_ms)
        return [self._send(entity, message, now_ms, 0) for message in messages]

    def _check(self, entity: Entity, messages: Sequence[IncomingMessage]) -> None:
        """Raise an error if the entity cannot accept all of the messages."""
        if self._registry.find_by_id(entity.row.id) is not entity:
            raise EntityNotFound(f"The messaging entity {entity.path!r} was deleted.")
        description = entity.description
        if isinstance(description, SubscriptionDescription):
            raise Refused(f"{entity.path!r} is a subscription. Send to its topic instead.")
        if not description.status.allows_sending:
            raise EntityDisabled(f"{entity.path!r} is disabled for sending.")
        limit = description.max_message_size_in_kilobytes * 1024
        sizes = [message.size for message in messages]
        if sizes and max(sizes) > limit:
            raise MessageTooLarge(
                f"The message has {max(sizes)} bytes; {entity.path!r} accepts at most {limit}."
            )
        if isinstance(description, QueueDescription) and description.requires_session:
            for message in messages:
                entity.queue.check(message)
        stored_bytes = self._quota_bytes(entity)
        if stored_bytes + sum(sizes) > description.max_size_in_megabytes * 1024 * 1024:
            raise QuotaExceeded(f"{entity.path!r} is full: it contains {stored_bytes} bytes.")

    def _quota_bytes(self, entity: Entity) -> int:
        """Return the bytes that count towards the quota, those of a topic's subscriptions too."""
        total = entity.bytes
        if isinstance(entity.description, TopicDescription):
            subscriptions = self._registry.subscriptions(entity)
            total += sum(subscription.bytes for subscription in subscriptions)
        return total

    def _send(self, entity: Entity, message: IncomingMessage, now_ms: int, hops: int) -> int:
        if self._is_duplicate(entity, message, now_ms):
            return 0
        scheduled = message.scheduled_ms is not None and message.scheduled_ms > now_ms
        if isinstance(entity.description, TopicDescription):
            if scheduled:
                return entity.queue.enqueue(message, now_ms)
            self._publish(entity, message, now_ms, hops)
            return entity.queue.next_sequence()
        target = getattr(entity.description, "forward_to", None)
        if target is None or scheduled:
            return entity.queue.enqueue(message, now_ms)
        self._forward(entity, target, message, now_ms, hops)
        return entity.queue.next_sequence()

    def _is_duplicate(self, entity: Entity, message: IncomingMessage, now_ms: int) -> bool:
        description = entity.description
        if isinstance(description, SubscriptionDescription) or message.message_id is None:
            return False
        if not description.requires_duplicate_detection:
            return False
        id = str(message.message_id)
        if description.enable_partitioning:
            # Each partition detects its own duplicates.
            key = partition_key(message.sections, message.session)
            id = id if key is None else f"{id}\0{key}"
        window_ms = to_milliseconds(description.duplicate_detection_history_time_window)
        return self._store.message_ids.is_duplicate(entity.row.id, id, now_ms, now_ms + window_ms)

    # Topics.

    def _publish(self, topic: Entity, message: IncomingMessage, now_ms: int, hops: int = 0) -> None:
        """Give each subscription of a topic the copies that its rules select."""
        rule_message = RuleMessage(message, now_ms)
        max_ttl_ms = to_milliseconds(topic.description.default_message_time_to_live)
        for subscription in self._registry.subscriptions(topic):
            assert subscription.apply_rules is not None
            result = subscription.apply_rules(rule_message)
            description = subscription.description
            assert isinstance(description, SubscriptionDescription)
            failures: list[PairbusError] = [*result.failures]
            for changes in result.copies:
                try:
                    copy = _limit_ttl(apply_changes(message, changes), max_ttl_ms)
                except PairbusError as exc:  # the action produced an invalid message
                    failures.append(exc)
                    continue
                if description.forward_to is None:
                    self._enqueue_or_dead_letter(subscription, copy, now_ms)
                else:
                    self._forward(subscription, description.forward_to, copy, now_ms, hops)
            if failures and description.dead_lettering_on_filter_evaluation_exceptions:
                subscription.dead_letters.add_new_dead_letter(
                    message,
                    "FilterEvaluationException",
                    str(failures[0]),
                    subscription.path,
                    now_ms,
                )

    def _enqueue_or_dead_letter(
        self, subscription: Entity, message: IncomingMessage, now_ms: int
    ) -> None:
        try:
            subscription.queue.check(message)
        except Refused as exc:
            reason = "Session ID is null." if message.session is None else type(exc).__name__
            subscription.dead_letters.add_new_dead_letter(
                message, reason, str(exc), subscription.path, now_ms
            )
        else:
            subscription.queue.enqueue(message, now_ms)

    # Forwarding.

    def _forward(
        self, entity: Entity, target: str, message: IncomingMessage, now_ms: int, hops: int
    ) -> None:
        """Send a message to the target, or to the transfer dead-letter queue if that fails."""
        if hops >= MAX_FORWARDING_HOPS:
            reason = MAX_HOP_COUNT_EXCEEDED
            description = f"The message was forwarded {MAX_FORWARDING_HOPS} times."
        else:
            try:
                target_entity = self._registry.get(path_from_address(target))
                self._check(target_entity, [message])
            except PairbusError as exc:
                reason, description = type(exc).__name__, str(exc)
            else:
                self._send(target_entity, message, now_ms, hops + 1)
                return
        entity.transfer_dead_letters.add_new_dead_letter(
            message, reason, description, entity.path, now_ms
        )

    def forward_dead_letter(self, entity_id: int, message: StoredMessage, now_ms: int) -> bool:
        """Forward a dead-lettered message if its entity has ForwardDeadLetteredMessagesTo.

        Its time-to-live may be over, so that of the target applies from now on.
        """
        entity = self._registry.find_by_id(entity_id)
        assert entity is not None
        target = getattr(entity.description, "forward_dead_lettered_messages_to", None)
        if target is None:
            return False
        incoming = replace(_to_incoming(message), ttl_ms=None)
        self._forward(entity, target, incoming, now_ms, 0)
        return True

    # Scheduled messages.

    def activate(self, entity: Entity, message: StoredMessage, now_ms: int) -> None:
        """Enqueue, publish or forward a scheduled message that is due."""
        self._registry.touch(entity, now_ms)  # it was not idle until now
        target = getattr(entity.description, "forward_to", None)
        if not isinstance(entity.description, TopicDescription) and target is None:
            entity.queue.activate(message, now_ms)
            return
        entity.queue.remove(message)
        if target is None:
            self._publish(entity, _to_incoming(message), now_ms)
        else:
            self._forward(entity, target, _to_incoming(message), now_ms, 0)


def _to_incoming(message: StoredMessage) -> IncomingMessage:
    """Return a stored message as if it were sent now, without a schedule."""
    return replace(parse_message(encode_original(message)), scheduled_ms=None)


def _limit_ttl(message: IncomingMessage, max_ttl_ms: int) -> IncomingMessage:
    """Return the message with a time-to-live of at most `max_ttl_ms`."""
    if max_ttl_ms >= MAX_TIMESTAMP_MS or (
        message.ttl_ms is not None and message.ttl_ms <= max_ttl_ms
    ):
        return message
    return replace(message, ttl_ms=max_ttl_ms)
