"""The queues and the topic of one run, and where its messages are. All is peeked at: it stays."""

from collections.abc import Iterator

from pairbus.amqp.sections import Message
from pairbus.drill.reconciliation import MessageKey
from pairbus.spark.messages import destination_of
from tests.faults.matrix.verdict import Copy
from tests.faults.matrix.world import World
from tests.faults.pairing_kit import Namespace
from tests.faults.syphon_kit import id_of, payloads

SUBSCRIPTION = "all"
DEAD = "/$deadletterqueue"


class Entities:
    """A queue with duplicate detection, one without, one with sessions, and a topic with it."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self.exact, self.plain, self.sessions, self.topic = self.all = tuple(
            f"{name}-{number}" for name in ("exact", "plain", "sessions", "topic")
        )
        self.without_duplicates = self.exact, self.topic

    def create(self) -> None:
        with self._world.administration(self._world.primary) as administration:
            administration.create_queue(self.exact, requires_duplicate_detection=True)
            administration.create_queue(self.plain)
            administration.create_queue(self.sessions, requires_session=True)
            administration.create_topic(self.topic, requires_duplicate_detection=True)
            administration.create_subscription(self.topic, SUBSCRIPTION)

    def copies(self) -> list[Copy]:
        """What has arrived, in the order in which it came, and when."""
        return [
            Copy(MessageKey(path, id_of(payload)), _enqueued_at(payload))
            for path in self.all
            for payload in _messages(self._world.primary, self._source(path))
        ]

    def in_backlog(self) -> list[MessageKey]:
        return [
            _key_of(payload)
            for queue in self._world.backlog_queues
            for payload in _messages(self._world.secondary, queue)
        ]

    def dead_letters(self) -> list[MessageKey]:
        """Of the entities, and of the backlog."""
        here = [
            MessageKey(path, id_of(payload))
            for path in self.all
            for payload in _messages(self._world.primary, self._source(path) + DEAD)
        ]
        return here + [
            _key_of(payload)
            for queue in self._world.backlog_queues
            for payload in _messages(self._world.secondary, queue + DEAD)
        ]

    def _source(self, path: str) -> str:
        return f"{path}/Subscriptions/{SUBSCRIPTION}" if path == self.topic else path


def _messages(namespace: Namespace, source: str) -> Iterator[bytes]:
    return payloads(namespace.connection_string, source)


def _key_of(payload: bytes) -> MessageKey:
    """Of a message in the backlog."""
    return MessageKey(destination_of(payload) or "", id_of(payload))


def _enqueued_at(payload: bytes) -> float:
    return float(Message.parse(payload).read_message_annotations()["x-opt-enqueued-time"]) / 1000
