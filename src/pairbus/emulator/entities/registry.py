"""The entities of a namespace: lookup by path, creation, change and deletion."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from pairbus.emulator.entities import entity_records
from pairbus.emulator.entities.descriptions import (
    FORWARDING_FIELDS,
    EntityDescription,
    SubscriptionDescription,
    TopicDescription,
    kind_of,
    updated_description,
)
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.entities.queue_settings import queue_settings
from pairbus.emulator.entities.routing import MessageRouter
from pairbus.emulator.entities.runtime_properties import (
    MessageCounts,
    RuntimeProperties,
    to_datetime,
)
from pairbus.emulator.entities.sequence_numbers import SequenceNumbers
from pairbus.emulator.filters.rules import CorrelationFilter, Rule, compile_rules
from pairbus.emulator.storage.entities import EntityRow
from pairbus.emulator.storage.store import Store
from pairbus.errors import EntityExists, EntityNotFound
from pairbus.servicebus.atom import property_name
from pairbus.servicebus.entity_paths import (
    DEAD_LETTER_QUEUE,
    DEFAULT_RULE,
    SUBSCRIPTIONS,
    TRANSFER_DEAD_LETTER_QUEUE,
    normalize_path,
    path_from_address,
    without_management_node,
)
from pairbus.servicebus.message_states import ACTIVE, DEFERRED, SCHEDULED

SUBQUEUES = ("", f"/{DEAD_LETTER_QUEUE}", f"/{TRANSFER_DEAD_LETTER_QUEUE}")
"""Path suffixes, by the number of the subqueue."""
ACCESS_TIME_PRECISION_MS = 10_000
"""The time of the last access is written to disk at most this often."""


def _unchanged(description: EntityDescription) -> EntityDescription:
    return description


class EntityRegistry:
    """All entities of a namespace."""

    def __init__(
        self,
        store: Store,
        new_token: Callable[[], bytes],
        *,
        on_available: Callable[[MessageQueue], None] | None = None,
        on_deleted: Callable[[Entity], None] | None = None,
        complete: Callable[[EntityDescription], EntityDescription] = _unchanged,
    ) -> None:
        """Load the entities from the store.

        `on_available` is called with a queue when receivers can receive from it, `on_deleted` with
        each entity that was deleted. `complete` checks the description of a new or changed entity
        and adds the defaults of the namespace.
        """
        self._store = store
        self._new_token = new_token
        self._complete = complete
        self._by_path: dict[str, Entity] = {}
        self._by_id: dict[int, Entity] = {}
        self._on_available = _ignore if on_available is None else on_available
        self._on_deleted = _ignore if on_deleted is None else on_deleted
        self.router = MessageRouter(self, store)
        for row in store.entities.all():
            self._load(row)

    # Lookup.

    def all(self, kind: type[EntityDescription] | None = None) -> list[Entity]:
        """Return the entities of a kind, sorted by path."""
        entities = [
            entity
            for entity in self._by_path.values()
            if kind is None or isinstance(entity.description, kind)
        ]
        return sorted(entities, key=lambda entity: normalize_path(entity.path))

    def find(self, path: str) -> Entity | None:
        return self._by_path.get(normalize_path(path))

    def get(self, path: str) -> Entity:
        """Return the entity at a path. Raises EntityNotFound."""
        entity = self.find(path)
        if entity is None:
            raise EntityNotFound(f"The messaging entity {path!r} could not be found.")
        return entity

    def find_by_id(self, entity_id: int) -> Entity | None:
        return self._by_id.get(entity_id)

    def subscriptions(self, topic: Entity) -> list[Entity]:
        prefix = normalize_path(topic.path) + f"/{SUBSCRIPTIONS.lower()}/"
        return [entity for path, entity in self._by_path.items() if path.startswith(prefix)]

    def source(self, address: str) -> tuple[Entity, MessageQueue]:
        """Return the entity and queue that a receiver's address names. Raises EntityNotFound."""
        path = normalize_path(path_from_address(address))
        for subqueue in (2, 1):  # the suffix of 2 ends with that of 1
            suffix = SUBQUEUES[subqueue].lower()
            if path.endswith(suffix):
                entity = self.get(path[: -len(suffix)])
                return entity, entity.queues[subqueue]
        entity = self.get(path)
        return entity, entity.queue

    def has_address(self, address: str) -> bool:
        """Return True if an entity, one of its sub-queues or its `$management` node is there."""
        path = normalize_path(path_from_address(address))
        try:
            self.source(without_management_node(path))
        except EntityNotFound:
            return False
        return True

    # Lifecycle.

    def create(
        self, description: EntityDescription, now_ms: int, default_rule: Rule | None = None
    ) -> Entity:
        """Create an entity. A subscription gets `default_rule`, or one that matches all messages.

        Raises EntityExists, ConfigurationError, or EntityNotFound if the topic of a subscription or
        a forwarding target does not exist.
        """
        if self.find(description.path) is not None:
            raise EntityExists(f"The entity {description.path!r} exists already.")
        description = self._complete(description)
        rules: tuple[Rule, ...] = ()
        if isinstance(description, SubscriptionDescription):
            topic = self.get(description.topic)
            if not isinstance(topic.description, TopicDescription):
                raise EntityNotFound(f"{description.topic!r} is not a topic.")
            rules = (Rule(name=DEFAULT_RULE) if default_rule is None else default_rule,)
            compile_rules(rules)
        self._check_forwarding_targets(description)
        row = self._store.entities.add(
            description.path,
            kind_of(description),
            entity_records.encode_description(description),
            now_ms,
        )
        for rule in rules:
            self._store_rule(row.id, description.path, rule)
        return self._load(row)

    def update(self, path: str, settings: dict[str, Any], now_ms: int) -> Entity:
        """Change the settings of an entity. Raises EntityNotFound or ConfigurationError."""
        entity = self.get(path)
        description = self._complete(updated_description(entity.description, settings))
        self._check_forwarding_targets(description)
        self._store.entities.update(
            entity.row.id, entity_records.encode_description(description), now_ms
        )
        entity.row = replace(entity.row, updated_ms=now_ms)
        self.touch(entity, now_ms)
        entity.description = description
        for subqueue, queue in enumerate(entity.queues):
            queue.settings = queue_settings(description, subqueue)
        return entity

    def delete(self, path: str) -> None:
        """Delete an entity, and with a topic its subscriptions. Raises EntityNotFound."""
        entity = self.get(path)
        for subscription in self.subscriptions(entity):
            self._delete(subscription)
        self._delete(entity)

    def _delete(self, entity: Entity) -> None:
        del self._by_path[normalize_path(entity.path)]
        del self._by_id[entity.row.id]
        self._store.entities.delete(entity.row.id)
        self._store.messages.reload_removed()
        for queue in entity.queues:
            queue.close()
        self._on_deleted(entity)

    def touch(self, entity: Entity, now_ms: int) -> None:
        """Record that an entity is in use."""
        entity.accessed_ms = now_ms
        if now_ms - entity.row.accessed_ms >= ACCESS_TIME_PRECISION_MS:
            entity.row = replace(entity.row, accessed_ms=now_ms)
            self._store.entities.touch(entity.row.id, now_ms)

    def _check_forwarding_targets(self, description: EntityDescription) -> None:
        for field in FORWARDING_FIELDS:
            target = getattr(description, field, None)
            if target is None:
                continue
            path = path_from_address(target)
            is_itself = normalize_path(path) == normalize_path(description.path)
            if not is_itself and self.find(path) is None:
                raise EntityNotFound(
                    f"Forwarding target {target!r} of {description.path!r} does not exist. "
                    f"Create it first, or remove {property_name(field)}."
                )

    def _load(self, row: EntityRow) -> Entity:
        description = entity_records.decode_description(row)
        sequences = SequenceNumbers(self._store, row.id, row.next_sequence)
        dead_letters = self._open_queue(
            row, 1, description, sequences, forward=partial(self.router.forward_dead_letter, row.id)
        )
        entity = Entity(
            row,
            description,
            self._open_queue(row, 0, description, sequences, dead_letters=dead_letters),
            dead_letters,
            self._open_queue(row, 2, description, sequences),
        )
        for name, text in self._store.entities.rules(row.id):
            entity.rules[name.lower()] = entity_records.decode_rule(name, text)
        if isinstance(description, SubscriptionDescription):
            entity.apply_rules = compile_rules(entity.rules.values())
        self._by_path[normalize_path(description.path)] = entity
        self._by_id[row.id] = entity
        return entity

    def _open_queue(
        self,
        row: EntityRow,
        subqueue: int,
        description: EntityDescription,
        sequences: SequenceNumbers,
        **links: Any,
    ) -> MessageQueue:
        return MessageQueue(
            id=row.id << 2 | subqueue,
            path=row.path + SUBQUEUES[subqueue],
            settings=queue_settings(description, subqueue),
            store=self._store,
            sequences=sequences,
            new_token=self._new_token,
            on_available=self._on_available,
            **links,
        )

    # Rules.

    def create_rule(self, path: str, rule: Rule, now_ms: int) -> None:
        """Add a rule to a subscription.

        Raises EntityNotFound, EntityExists or ConfigurationError.
        """
        subscription = self.get(path)
        if rule.name.lower() in subscription.rules:
            raise EntityExists(f"The rule {rule.name!r} of {path!r} exists already.")
        self._put_rule(subscription, rule, now_ms)

    def update_rule(self, path: str, rule: Rule, now_ms: int) -> None:
        """Replace a rule of a subscription. Raises EntityNotFound or ConfigurationError."""
        self._put_rule(self._subscription_with_rule(path, rule.name), rule, now_ms)

    def delete_rule(self, path: str, name: str, now_ms: int) -> None:
        """Delete a rule of a subscription. Raises EntityNotFound."""
        subscription = self._subscription_with_rule(path, name)
        rule = subscription.rules.pop(name.lower())
        self._store.entities.delete_rule(subscription.row.id, rule.name)
        subscription.apply_rules = compile_rules(subscription.rules.values())
        self.touch(subscription, now_ms)

    def _subscription_with_rule(self, path: str, name: str) -> Entity:
        subscription = self.get(path)
        if name.lower() not in subscription.rules:
            raise EntityNotFound(f"{path!r} has no rule {name!r}.")
        return subscription

    def _put_rule(self, subscription: Entity, rule: Rule, now_ms: int) -> None:
        rules = {**subscription.rules, rule.name.lower(): rule}
        subscription.apply_rules = compile_rules(rules.values())
        subscription.rules = rules
        self._store_rule(subscription.row.id, subscription.path, rule)
        self.touch(subscription, now_ms)

    def _store_rule(self, entity_id: int, path: str, rule: Rule) -> None:
        self._store.entities.put_rule(entity_id, rule.name, entity_records.encode_rule(path, rule))

    # Time.

    def tick(self, now_ms: int, limit: int = 1000) -> bool:
        """Expire locks, delete idle entities, and activate or expire at most `limit` messages each.

        Return True if there may be more messages to activate or expire.
        """
        for entity in self._by_id.values():
            for queue in entity.queues:
                queue.expire_locks(now_ms)
        for entity in [entity for entity in self._by_id.values() if entity.is_idle(now_ms)]:
            if entity.row.id in self._by_id:  # it was not deleted together with its topic
                self.delete(entity.path)
        due = self._store.messages.due(now_ms, limit)
        for queue_id, message in due:
            self.router.activate(self._by_id[queue_id >> 2], message, now_ms)
        expired = self._store.messages.expired(now_ms, limit)
        for queue_id, message in expired:
            self._by_id[queue_id >> 2].queues[queue_id & 3].expire(message, now_ms)
        self._store.message_ids.delete_expired(now_ms)
        return limit in (len(due), len(expired))

    def next_event_ms(self) -> int | None:
        """Return the earliest time at which a tick may change something, or None if it never does.
        It may lie in the past."""
        times = [self._store.messages.next_due_ms(), self._store.messages.next_expiry_ms()]
        for entity in self._by_id.values():
            times.append(entity.idle_at_ms)
            for queue in entity.queues:
                times.append(queue.next_lock_expiry_ms())
                if queue.sessions is not None:
                    times.append(queue.sessions.next_lock_expiry_ms())
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    # Runtime properties.

    def runtime_properties(self, entity: Entity) -> RuntimeProperties:
        subscriptions = self.subscriptions(entity)
        filters = [
            rule.filter for subscription in subscriptions for rule in subscription.rules.values()
        ]
        correlation_filters = sum(isinstance(item, CorrelationFilter) for item in filters)
        return RuntimeProperties(
            created_at=to_datetime(entity.row.created_ms),
            updated_at=to_datetime(entity.row.updated_ms),
            accessed_at=to_datetime(entity.accessed_ms),
            size_in_bytes=entity.bytes,
            counts=MessageCounts(
                active=entity.queue.counts[ACTIVE] + entity.queue.counts[DEFERRED],
                scheduled=entity.queue.counts[SCHEDULED],
                dead_letter=len(entity.dead_letters),
                transfer_dead_letter=len(entity.transfer_dead_letters),
            ),
            subscription_count=len(subscriptions),
            # The service counts true and false filters as the SQL filters 1=1 and 1=0.
            sql_filter_count=len(filters) - correlation_filters,
            correlation_filter_count=correlation_filters,
        )


def _ignore(_: object) -> None:
    pass
