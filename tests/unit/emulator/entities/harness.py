"""The entities of a namespace on a real SQLite file, without sockets and without a clock."""

from itertools import count
from pathlib import Path
from typing import Any

from pairbus.amqp.sections import Header, Message, Properties
from pairbus.amqp.types import Symbol, Timestamp, UInt
from pairbus.emulator.entities.descriptions import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.message_codec import IncomingMessage, encode_removed, parse_message
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.entities.registry import EntityRegistry
from pairbus.emulator.filters.rules import Rule
from pairbus.emulator.storage.store import Store
from pairbus.emulator.storage.stored_message import StoredMessage
from pairbus.servicebus.message_states import ACTIVE

SCHEDULED_ENQUEUE_TIME = Symbol("x-opt-scheduled-enqueue-time")


def payload(
    body: str = "",
    *,
    session: str | None = None,
    ttl: int | None = None,
    at: int | None = None,
    id: Any = None,
    properties: dict[str, Any] | None = None,
    **fields: Any,
) -> bytes:
    """Encode a message. `ttl` and `at` are milliseconds, `fields` belong to its properties."""
    message = Message.build(
        header=None if ttl is None else Header(ttl=UInt(ttl)),
        message_annotations=None if at is None else {SCHEDULED_ENQUEUE_TIME: Timestamp(at)},
        properties=Properties(message_id=id, group_id=session, **fields),
        application_properties=properties,
        data=body.encode(),
    )
    return message.encode()


def message(body: str = "", **settings: Any) -> IncomingMessage:
    return parse_message(payload(body, **settings))


def stored_message(sequence: int, **changes: Any) -> StoredMessage:
    """Return an active message for a store."""
    values: dict[str, Any] = {
        "state": ACTIVE,
        "enqueued_ms": 1,
        "expires_ms": None,
        "due_ms": None,
        "deliveries": 0,
        "session": None,
        "size": 10,
        "header": b"header",
        "annotation_count": 2,
        "annotations": b"annotations",
        "rest": b"rest",
    }
    return StoredMessage(sequence, **values | changes)


def crash(store: Store) -> None:
    """Close a store as a killed process would: uncommitted changes are lost."""
    database = store._database
    database.discard_messages()
    database._in_transaction = False
    database.connection.close()
    database._lock.release()


class EntityHarness:
    """The entities of a namespace that can be stopped, killed and started again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tokens = count(1)
        self.available: list[str] = []
        """The path of the queue, for each time that a message or session became available."""
        self.deleted: list[str] = []
        """The paths of deleted entities."""
        self.store, self.entities = self._open()

    def _open(self) -> tuple[Store, EntityRegistry]:
        store = Store(self._path)
        return store, EntityRegistry(
            store,
            lambda: next(self._tokens).to_bytes(16, "big"),
            on_available=lambda queue: self.available.append(queue.path),
            on_deleted=lambda entity: self.deleted.append(entity.path),
        )

    def restart(self) -> None:
        self.store.close()
        self.store, self.entities = self._open()

    def kill(self) -> None:
        """Restart without the uncommitted changes."""
        crash(self.store)
        self.store, self.entities = self._open()

    def close(self) -> None:
        self.store.close()

    # Entities.

    def add_queue(self, name: str = "q", now: int = 0, **settings: Any) -> MessageQueue:
        return self.entities.create(QueueDescription(name=name, **settings), now).queue

    def add_topic(self, name: str = "t", **settings: Any) -> Entity:
        return self.entities.create(TopicDescription(name=name, **settings), 0)

    def add_subscription(
        self, name: str = "s", topic: str = "t", rule: Rule | None = None, **settings: Any
    ) -> MessageQueue:
        description = SubscriptionDescription(topic=topic, name=name, **settings)
        return self.entities.create(description, 0, rule).queue

    def queue(self, path: str = "q") -> MessageQueue:
        """Return the queue that a receiver's address names."""
        return self.entities.source(path)[1]

    def dead_letters(self, path: str = "q") -> MessageQueue:
        return self.queue(f"{path}/$DeadLetterQueue")

    def transfer_dead_letters(self, path: str = "q") -> MessageQueue:
        return self.queue(f"{path}/$Transfer/$DeadLetterQueue")

    # Messages.

    def send(self, path: str = "q", *messages: IncomingMessage, now: int = 0) -> list[int]:
        return self.entities.router.send(self.entities.get(path), messages, now)

    def tick(self, now: int) -> None:
        while self.entities.tick(now):
            pass


def lock_all(
    queue: MessageQueue, now: int = 0, limit: int = 100, session: str | None = None
) -> list[bytes]:
    """Receive messages under locks and return their tokens."""
    received = queue.receive(limit, now, locked=True, session=session)
    return [lock.token for _, lock in received if lock is not None]


def lock_one(
    queue: MessageQueue, now: int = 0, session: str | None = None
) -> tuple[StoredMessage, bytes]:
    """Receive the first message under a lock and return it with its token."""
    ((stored, lock),) = queue.receive(1, now, locked=True, session=session)
    assert lock is not None
    return stored, lock.token


def drain(queue: MessageQueue, now: int = 0, session: str | None = None) -> list[str]:
    """Receive and delete all messages, and return their bodies."""
    received = queue.receive(100_000, now, locked=False, session=session)
    return [body(stored) for stored, _ in received]


def peek(queue: MessageQueue, session: str | None = None) -> list[str]:
    """Return the bodies of all messages in any state."""
    return [body(stored) for stored in queue.peek(0, 100_000, session)]


def delivered(stored: StoredMessage) -> Message:
    """Return a message as a receiver gets it."""
    return Message.parse(encode_removed(stored))


def body(stored: StoredMessage) -> str:
    return delivered(stored).read_body()[1][0].decode()


def properties(stored: StoredMessage) -> dict[str, Any]:
    return delivered(stored).read_application_properties()


def dead_letter_reasons(queue: MessageQueue) -> list[tuple[str, str]]:
    """Return the bodies of dead-lettered messages with their reasons."""
    return [
        (body(stored), properties(stored)["DeadLetterReason"]) for stored in queue.peek(0, 100_000)
    ]
