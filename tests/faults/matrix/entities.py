"""The queues and the topic of one run, and the messages in them, which are only peeked."""

from collections.abc import Iterator

from pairbus.amqp.sections import Message
from pairbus.drill.reconciliation import MessageKey
from pairbus.spark.messages import destination_of
from tests.faults.matrix.environment import MatrixEnvironment
from tests.faults.matrix.verdict import DeliveredCopy
from tests.faults.namespace_process import Namespace
from tests.messages import id_of, peek_all

SUBSCRIPTION = "all"
DEAD_LETTERS = "/$deadletterqueue"


class Entities:
    """A queue with duplicate detection, one without, one with sessions, and a topic with duplicate
    detection."""

    def __init__(self, environment: MatrixEnvironment, number: int) -> None:
        self._environment = environment
        self.exact, self.plain, self.sessions, self.topic = self.all = tuple(
            f"{name}-{number}" for name in ("exact", "plain", "sessions", "topic")
        )
        self.without_duplicates = self.exact, self.topic

    def create(self) -> None:
        with self._environment.administration(self._environment.primary) as administration:
            administration.create_queue(self.exact, requires_duplicate_detection=True)
            administration.create_queue(self.plain)
            administration.create_queue(self.sessions, requires_session=True)
            administration.create_topic(self.topic, requires_duplicate_detection=True)
            administration.create_subscription(self.topic, SUBSCRIPTION)

    def copies(self) -> list[DeliveredCopy]:
        """Return the delivered messages of each path, in the order of delivery, with the times."""
        return [
            DeliveredCopy(MessageKey(path, id_of(payload)), _enqueued_at(payload))
            for path in self.all
            for payload in _messages(self._environment.primary, self._source(path))
        ]

    def in_backlog(self) -> list[MessageKey]:
        return [
            _key_of(payload)
            for queue in self._environment.backlog_queues
            for payload in _messages(self._environment.secondary, queue)
        ]

    def dead_letters(self) -> list[MessageKey]:
        """Return the dead letters of the entities and of the backlog queues."""
        in_primary = [
            MessageKey(path, id_of(payload))
            for path in self.all
            for payload in _messages(self._environment.primary, self._source(path) + DEAD_LETTERS)
        ]
        return in_primary + [
            _key_of(payload)
            for queue in self._environment.backlog_queues
            for payload in _messages(self._environment.secondary, queue + DEAD_LETTERS)
        ]

    def _source(self, path: str) -> str:
        return f"{path}/Subscriptions/{SUBSCRIPTION}" if path == self.topic else path


def _messages(namespace: Namespace, source: str) -> Iterator[bytes]:
    return peek_all(namespace.connection_string, source)


def _key_of(payload: bytes) -> MessageKey:
    """Return the key of a message in the backlog."""
    return MessageKey(destination_of(payload) or "", id_of(payload))


def _enqueued_at(payload: bytes) -> float:
    return float(Message.parse(payload).read_message_annotations()["x-opt-enqueued-time"]) / 1000
