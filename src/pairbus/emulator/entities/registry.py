"""The entities of one namespace: found by path, made, changed, removed, and sent to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pairbus.emulator.admin import atom, atom_input
from pairbus.emulator.entities.descriptions import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    kind_of,
    updated,
)
from pairbus.emulator.entities.envelope import Incoming, read, restore
from pairbus.emulator.entities.queue import NEVER_MS, Queue
from pairbus.emulator.entities.sequences import Sequences
from pairbus.emulator.entities.topic import View, changed
from pairbus.emulator.filters.rules import CorrelationFilter, Rule, Selection, compile_rules
from pairbus.emulator.storage.store import EntityRow, Store, StoredMessage
from pairbus.errors import (
    EntityDisabled,
    EntityExists,
    EntityNotFound,
    MessageTooLarge,
    PairbusError,
    QuotaExceeded,
    Refused,
)
from pairbus.servicebus.application_properties import MAX_HOP_COUNT_EXCEEDED
from pairbus.servicebus.entity_paths import (
    DEAD_LETTER_QUEUE,
    DEFAULT_RULE,
    SUBSCRIPTIONS,
    TRANSFER_DEAD_LETTER_QUEUE,
    normalize_path,
    path_from_address,
)
from pairbus.servicebus.limits import MAX_FORWARDING_HOPS
from pairbus.servicebus.message_states import ACTIVE, DEFERRED, SCHEDULED
from pairbus.servicebus.time_spans import MAX_TIME_SPAN, to_milliseconds

_DEAD_LETTERS = f"/{DEAD_LETTER_QUEUE}"
_TRANSFER_DEAD_LETTERS = f"/{TRANSFER_DEAD_LETTER_QUEUE}"
ACCESS_MS = 10_000
"""How far the time of the last access on disk may be behind."""
_SITE = atom.AtomSite(namespace="", base="")


@dataclass(eq=False, slots=True)
class Entity:
    """One queue, topic or subscription, with its lines of messages."""

    row: EntityRow
    description: Description
    queue: Queue
    """A topic's holds scheduled messages only."""
    dead_letters: Queue
    transfer_dead_letters: Queue
    rules: dict[str, Rule] = field(default_factory=dict)
    """A subscription's, by their names in lower case."""
    select: Callable[[View], Selection] | None = None
    """What a subscription gets of a message."""
    accessed_ms: int = field(init=False)
    """When somebody last sent to it, received from it, changed it, or had a link to it."""

    def __post_init__(self) -> None:
        self.accessed_ms = self.row.accessed_ms

    def is_idle(self, now_ms: int) -> bool:
        """Whether it was of no use for so long that it is to be deleted."""
        limit = self.description.auto_delete_on_idle
        return (
            limit < MAX_TIME_SPAN
            and now_ms - self.accessed_ms >= to_milliseconds(limit)
            and not self.queue.counts[SCHEDULED]
        )

    @property
    def path(self) -> str:
        return self.description.path

    @property
    def queues(self) -> tuple[Queue, Queue, Queue]:
        return self.queue, self.dead_letters, self.transfer_dead_letters

    @property
    def bytes(self) -> int:
        """The sizes of all messages, dead letters included."""
        return self.queue.bytes + self.dead_letters.bytes + self.transfer_dead_letters.bytes


class EntityRegistry:
    """All entities of a namespace."""

    def __init__(
        self,
        store: Store,
        new_token: Callable[[], bytes],
        on_queue: Callable[[Queue], None] | None = None,
    ) -> None:
        """`on_queue` is told of every queue that comes to be."""
        self._store = store
        self._new_token = new_token
        self._by_path: dict[str, Entity] = {}
        self._by_id: dict[int, Entity] = {}
        self._on_queue = _nothing if on_queue is None else on_queue
        self.on_gone: Callable[[Entity], None] = _nothing
        """Is told of every entity that goes."""
        for row in store.entities():
            self._load(row)

    # Finding.

    def all(self, kind: type[Description] | None = None) -> list[Entity]:
        """Entities of a kind, by path."""
        found = [
            entity
            for entity in self._by_path.values()
            if kind is None or isinstance(entity.description, kind)
        ]
        return sorted(found, key=lambda entity: normalize_path(entity.path))

    def find(self, path: str) -> Entity | None:
        return self._by_path.get(normalize_path(path))

    def get(self, path: str) -> Entity:
        """Raises EntityNotFound."""
        entity = self.find(path)
        if entity is None:
            raise EntityNotFound(f"The messaging entity {path!r} could not be found.")
        return entity

    def subscriptions(self, topic: Entity) -> list[Entity]:
        prefix = normalize_path(topic.path) + f"/{SUBSCRIPTIONS.lower()}/"
        return [entity for path, entity in self._by_path.items() if path.startswith(prefix)]

    def source(self, address: str) -> tuple[Entity, Queue]:
        """What an address is that somebody wants to receive from. Raises EntityNotFound."""
        path = normalize_path(path_from_address(address))
        for suffix, index in ((_TRANSFER_DEAD_LETTERS, 2), (_DEAD_LETTERS, 1)):
            if path.endswith(suffix.lower()):
                entity = self.get(path[: -len(suffix)])
                return entity, entity.queues[index]
        entity = self.get(path)
        return entity, entity.queue

    # Making and removing.

    def create(
        self, description: Description, now_ms: int, default_rule: Rule | None = None
    ) -> Entity:
        """Raises EntityExists, ConfigurationError, or EntityNotFound if its topic or target does
        not exist."""
        if self.find(description.path) is not None:
            raise EntityExists(f"The entity {description.path!r} exists already.")
        if isinstance(description, SubscriptionDescription):
            topic = self.get(description.topic)
            if not isinstance(topic.description, TopicDescription):
                raise EntityNotFound(f"{description.topic!r} is not a topic.")
        self._check_targets(description)
        rules: tuple[Rule, ...] = ()
        if isinstance(description, SubscriptionDescription):
            rules = (Rule(name=DEFAULT_RULE) if default_rule is None else default_rule,)
            compile_rules(rules)
        row = self._store.add_entity(
            description.path, kind_of(description), self._written(description), now_ms
        )
        for rule in rules:
            self._store.put_rule(row.id, rule.name, self._written_rule(description.path, rule))
        return self._load(row)

    def update(self, path: str, settings: dict[str, Any], now_ms: int) -> Entity:
        """Raises EntityNotFound or ConfigurationError."""
        entity = self.get(path)
        description = updated(entity.description, settings)
        self._check_targets(description)
        self._store.update_entity(entity.row.id, self._written(description), now_ms)
        entity.row = replace(entity.row, updated_ms=now_ms)
        self.touch(entity, now_ms)
        entity.description = description
        for sub, queue in enumerate(entity.queues):
            queue.settings = _settings_of(description, sub)
        return entity

    def delete(self, path: str) -> None:
        """Raises EntityNotFound. A topic goes with its subscriptions."""
        entity = self.get(path)
        for subscription in self.subscriptions(entity):
            self._remove(subscription)
        self._remove(entity)

    def _remove(self, entity: Entity) -> None:
        del self._by_path[normalize_path(entity.path)]
        del self._by_id[entity.row.id]
        self._store.delete_entity(entity.row.id)
        for queue in entity.queues:
            queue.close()
        self.on_gone(entity)

    def touch(self, entity: Entity, now_ms: int) -> None:
        """It is in use."""
        entity.accessed_ms = now_ms
        if now_ms - entity.row.accessed_ms >= ACCESS_MS:
            entity.row = replace(entity.row, accessed_ms=now_ms)
            self._store.touch_entity(entity.row.id, now_ms)

    def _check_targets(self, description: Description) -> None:
        for name in ("forward_to", "forward_dead_lettered_messages_to"):
            target = getattr(description, name, None)
            if target is not None and self.find(path_from_address(target)) is None:
                raise EntityNotFound(f"{description.path!r} forwards to {target!r}, which is not.")

    def _load(self, row: EntityRow) -> Entity:
        given = atom_input.read_description(row.description.encode())
        identity: dict[str, Any] = {"name": row.path}
        if given.kind is SubscriptionDescription:
            topic, _, name = row.path.rpartition(f"/{SUBSCRIPTIONS}/")
            identity = {"topic": topic, "name": name}
        description = given.kind(**identity, **given.settings)
        numbers = Sequences(self._store, row.id, row.next_sequence)
        dead = self._queue(row, 1, _DEAD_LETTERS, description, numbers, None)
        entity = Entity(
            row,
            description,
            self._queue(row, 0, "", description, numbers, dead),
            dead,
            self._queue(row, 2, _TRANSFER_DEAD_LETTERS, description, numbers, None),
        )
        dead.send_on = partial(self._send_dead_letter_on, entity)
        for name, text in self._store.rules(row.id):
            entity.rules[name.lower()] = atom_input.read_rule(text.encode(), name)
        if isinstance(description, SubscriptionDescription):
            entity.select = compile_rules(entity.rules.values())
        self._by_path[normalize_path(description.path)] = entity
        self._by_id[row.id] = entity
        for queue in entity.queues:
            self._on_queue(queue)
        return entity

    def _queue(
        self,
        row: EntityRow,
        sub: int,
        suffix: str,
        description: Description,
        numbers: Sequences,
        dead: Queue | None,
    ) -> Queue:
        return Queue(
            id=row.id << 2 | sub,
            path=row.path + suffix,
            settings=_settings_of(description, sub),
            store=self._store,
            sequences=numbers,
            new_token=self._new_token,
            dead_letters=dead,
        )

    def _written(self, description: Description) -> str:
        epoch = datetime.fromtimestamp(0, UTC)
        runtime = atom.Runtime(created_at=epoch, updated_at=epoch)
        return atom.write_entry(atom.entity_entry(description, runtime), _SITE).decode()

    def _written_rule(self, path: str, rule: Rule) -> str:
        epoch = datetime.fromtimestamp(0, UTC)
        return atom.write_entry(atom.rule_entry(path, rule, epoch), _SITE).decode()

    # Rules.

    def put_rule(self, path: str, rule: Rule, now_ms: int, *, replace_it: bool) -> None:
        """Raises EntityNotFound, Exists or ConfigurationError."""
        entity = self.get(path)
        known = rule.name.lower() in entity.rules
        if known and not replace_it:
            raise EntityExists(f"The rule {rule.name!r} of {path!r} exists already.")
        if not known and replace_it:
            raise EntityNotFound(f"{path!r} has no rule {rule.name!r}.")
        rules = {**entity.rules, rule.name.lower(): rule}
        entity.select = compile_rules(rules.values())
        entity.rules = rules
        self._store.put_rule(entity.row.id, rule.name, self._written_rule(path, rule))
        self.touch(entity, now_ms)

    def delete_rule(self, path: str, name: str, now_ms: int) -> None:
        """Raises EntityNotFound."""
        entity = self.get(path)
        if name.lower() not in entity.rules:
            raise EntityNotFound(f"{path!r} has no rule {name!r}.")
        self._store.delete_rule(entity.row.id, entity.rules.pop(name.lower()).name)
        entity.select = compile_rules(entity.rules.values())
        self.touch(entity, now_ms)

    # Sending.

    def send(self, entity: Entity, messages: Sequence[Incoming], now_ms: int) -> list[int]:
        """Take messages in, all or none; their sequence numbers, 0 for one that was dropped as a
        duplicate. Raises Refused, QuotaExceeded, MessageTooLarge, EntityDisabled or
        EntityNotFound."""
        self._check(entity, messages)
        self.touch(entity, now_ms)
        return [self._send_one(entity, message, now_ms, 0) for message in messages]

    def _check(self, entity: Entity, messages: Sequence[Incoming]) -> None:
        """Raises what keeps one of the messages out of an entity."""
        if self._by_id.get(entity.row.id) is not entity:
            raise EntityNotFound(f"The messaging entity {entity.path!r} was deleted.")
        description = entity.description
        if isinstance(description, SubscriptionDescription):
            raise Refused(f"{entity.path!r} is a subscription: it is sent to through its topic.")
        if not description.status.sends:
            raise EntityDisabled(f"{entity.path!r} is disabled for sending.")
        limit = description.max_message_size_in_kilobytes * 1024
        size = 0
        for message in messages:
            size += message.size
            if message.size > limit:
                raise MessageTooLarge(
                    f"The message has {message.size} bytes, {entity.path!r} takes {limit}."
                )
            if isinstance(description, QueueDescription):
                entity.queue.check(message)
        held = self._bytes(entity)
        if held + size > description.max_size_in_megabytes * 1024 * 1024:
            raise QuotaExceeded(f"{entity.path!r} is full: it holds {held} bytes.")

    def _bytes(self, entity: Entity) -> int:
        """What counts towards a quota: dead letters too, and a topic's subscriptions."""
        held = entity.bytes
        if isinstance(entity.description, TopicDescription):
            held += sum(one.bytes for one in self.subscriptions(entity))
        return held

    def _send_one(self, entity: Entity, message: Incoming, now_ms: int, hops: int) -> int:
        if self._is_duplicate(entity, message, now_ms):
            return 0
        scheduled = message.scheduled_ms is not None and message.scheduled_ms > now_ms
        if isinstance(entity.description, TopicDescription):
            if scheduled:
                return entity.queue.enqueue(message, now_ms)
            self.publish(entity, message, now_ms, hops)
            return entity.queue.next_sequence()
        target = getattr(entity.description, "forward_to", None)
        if target is None or scheduled:
            return entity.queue.enqueue(message, now_ms)
        self._forward(entity, target, message, now_ms, hops)
        return entity.queue.next_sequence()

    def _is_duplicate(self, entity: Entity, message: Incoming, now_ms: int) -> bool:
        description = entity.description
        if isinstance(description, SubscriptionDescription) or message.message_id is None:
            return False
        if not description.requires_duplicate_detection:
            return False
        window = to_milliseconds(description.duplicate_detection_history_time_window)
        return self._store.seen(entity.row.id, str(message.message_id), now_ms, now_ms + window)

    def publish(self, topic: Entity, message: Incoming, now_ms: int, hops: int = 0) -> None:
        """Give each subscription of a topic what its rules let through."""
        view = View(message, now_ms)
        ttl_ms = to_milliseconds(topic.description.default_message_time_to_live)
        for subscription in self.subscriptions(topic):
            assert subscription.select is not None
            selection = subscription.select(view)
            description = subscription.description
            assert isinstance(description, SubscriptionDescription)
            failures: list[PairbusError] = [*selection.failures]
            for changes in selection.copies:
                try:
                    copy = _lives_at_most(changed(message, changes), ttl_ms)
                except PairbusError as exc:  # an action has made it what nobody would take
                    failures.append(exc)
                    continue
                if description.forward_to is None:
                    self._enqueue_or_bury(subscription, copy, now_ms)
                else:
                    self._forward(subscription, description.forward_to, copy, now_ms, hops)
            if failures and description.dead_lettering_on_filter_evaluation_exceptions:
                subscription.dead_letters.bury_new(
                    message,
                    "FilterEvaluationException",
                    str(failures[0]),
                    subscription.path,
                    now_ms,
                )

    def _enqueue_or_bury(self, entity: Entity, message: Incoming, now_ms: int) -> None:
        try:
            entity.queue.check(message)
        except Refused as exc:
            reason = "Session ID is null." if message.session is None else type(exc).__name__
            entity.dead_letters.bury_new(message, reason, str(exc), entity.path, now_ms)
        else:
            entity.queue.enqueue(message, now_ms)

    def _forward(
        self, entity: Entity, target: str, message: Incoming, now_ms: int, hops: int
    ) -> None:
        """Send on; what cannot be sent on goes to the transfer dead-letter queue."""
        if hops >= MAX_FORWARDING_HOPS:
            reason, why = MAX_HOP_COUNT_EXCEEDED, f"It was forwarded {MAX_FORWARDING_HOPS} times."
        else:
            try:
                onward = self.get(path_from_address(target))
                self._check(onward, [message])
            except PairbusError as exc:
                reason, why = type(exc).__name__, str(exc)
            else:
                self._send_one(onward, message, now_ms, hops + 1)
                return
        entity.transfer_dead_letters.bury_new(message, reason, why, entity.path, now_ms)

    def _send_dead_letter_on(self, entity: Entity, stored: StoredMessage, now_ms: int) -> bool:
        """Forward a dead letter, if its entity is set to. It may have outlived its time-to-live:
        from now on that of its new place counts."""
        target = getattr(entity.description, "forward_dead_lettered_messages_to", None)
        if target is None:
            return False
        message = replace(read(restore(stored)), scheduled_ms=None, ttl_ms=None)
        self._forward(entity, target, message, now_ms, 0)
        return True

    # Time.

    def tick(self, now_ms: int, limit: int = 1000) -> bool:
        """Carry out what has become due. True: there may be more."""
        for entity in self._by_id.values():
            for queue in entity.queues:
                queue.expire_locks(now_ms)
        for entity in [one for one in self._by_id.values() if one.is_idle(now_ms)]:
            if entity.row.id in self._by_id:  # not with its topic
                self.delete(entity.path)
        due = self._store.due(now_ms, limit)
        for queue_id, stored in due:
            self._activate(queue_id, stored, now_ms)
        expired = self._store.expired(now_ms, limit)
        for queue_id, stored in expired:
            self._queue_of(queue_id).expire(stored, now_ms)
        self._store.forget_seen(now_ms)
        return limit in (len(due), len(expired))

    def _queue_of(self, queue_id: int) -> Queue:
        return self._by_id[queue_id >> 2].queues[queue_id & 3]

    def _activate(self, queue_id: int, stored: StoredMessage, now_ms: int) -> None:
        entity = self._by_id[queue_id >> 2]
        target = getattr(entity.description, "forward_to", None)
        if not isinstance(entity.description, TopicDescription) and target is None:
            entity.queue.activate(stored, now_ms)
            return
        entity.queue.drop(stored)
        message = replace(read(restore(stored)), scheduled_ms=None)
        if target is None:
            self.publish(entity, message, now_ms)
        else:
            self._forward(entity, target, message, now_ms, 0)

    def runtime(self, entity: Entity) -> atom.Runtime:
        """What is known of an entity at run time."""
        main, dead, transfer = entity.queues
        subscriptions = self.subscriptions(entity)
        filters = [rule.filter for one in subscriptions for rule in one.rules.values()]
        return atom.Runtime(
            created_at=_moment(entity.row.created_ms),
            updated_at=_moment(entity.row.updated_ms),
            accessed_at=_moment(entity.accessed_ms),
            size_in_bytes=entity.bytes,
            counts=atom.MessageCounts(
                active=main.counts[ACTIVE] + main.counts[DEFERRED],
                scheduled=main.counts[SCHEDULED],
                dead_letter=len(dead),
                transfer_dead_letter=len(transfer),
            ),
            subscription_count=len(subscriptions),
            # Those that take or refuse everything are SQL to the service: 1=1 and 1=0.
            sql_filter_count=sum(not isinstance(one, CorrelationFilter) for one in filters),
            correlation_filter_count=sum(isinstance(one, CorrelationFilter) for one in filters),
        )


def _settings_of(description: Description, sub: int) -> Any:
    """A topic holds scheduled messages, as a queue with the service's defaults does. Sub-queues
    have no sessions."""
    if isinstance(description, TopicDescription):
        return QueueDescription(
            name=description.name,
            default_message_time_to_live=description.default_message_time_to_live,
        )
    return replace(description, requires_session=False) if sub else description


def _lives_at_most(message: Incoming, ttl_ms: int) -> Incoming:
    """The message with the smaller of its own time-to-live and this one."""
    if ttl_ms >= NEVER_MS or (message.ttl_ms is not None and message.ttl_ms <= ttl_ms):
        return message
    return replace(message, ttl_ms=ttl_ms)


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _nothing(_: object) -> None:
    pass
