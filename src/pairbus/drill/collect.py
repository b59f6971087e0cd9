"""Receive all messages from the primary, and peek at those that are elsewhere."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode, ServiceBusSubQueue

from pairbus.drill.connections import DIRECT, NetworkSettings, sdk_client
from pairbus.drill.plan import SUBSCRIPTION, DrillEntity, EntityType
from pairbus.drill.reconciliation import MessageKey
from pairbus.pairing.ping import is_ping
from pairbus.servicebus.application_properties import PATH_ALIAS

BATCH_SIZE = 200
WAIT_S = 1.0
MAX_ATTEMPTS = 30
"""A message that was not received after this many attempts counts as lost."""


class ReceivePace:
    """Limits the messages a second that several threads receive together; None: no limit.

    A namespace that throttles ends the links of receivers, and messages that are on their way then
    would count as lost.
    """

    def __init__(
        self,
        max_rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._max_rate = max_rate
        self._clock = clock
        self._wait = threading.Event().wait if wait is None else wait
        self._lock = threading.Lock()
        self._next_at = clock()

    def wait_for(self, messages: int) -> None:
        """Wait until this many further messages may be delivered."""
        if self._max_rate is None or messages == 0:
            return
        with self._lock:
            now = self._clock()
            start = max(now, self._next_at)
            self._next_at = start + messages / self._max_rate
        self._wait(start - now)


@dataclass(frozen=True, slots=True)
class CollectedMessages:
    """All messages at the end of a drill."""

    delivered: list[MessageKey]
    """In the order of delivery, per entity."""
    in_backlog: list[MessageKey]
    dead_lettered: dict[MessageKey, str]
    """The dead-lettered messages with their reasons."""


def collect(
    primary: str,
    secondary: str,
    entities: tuple[DrillEntity, ...],
    sessions: tuple[str, ...],
    backlog_queues: tuple[str, ...],
    *,
    max_rate: float | None,
    network: NetworkSettings = DIRECT,
) -> CollectedMessages:
    """Receive all messages of the entities, and peek at the backlog and all dead-letter queues.
    `max_rate` limits the messages a second."""
    pace = ReceivePace(max_rate)
    delivered: list[MessageKey] = []
    in_backlog: list[MessageKey] = []
    dead_lettered: dict[MessageKey, str] = {}
    dead_letters: dict[str, Any] = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER}
    with sdk_client(primary, network) as client:
        sources = [
            (entity, session) for entity in entities for session in _sessions(entity, sessions)
        ]
        with ThreadPoolExecutor(len(sources)) as pool:
            for keys in pool.map(lambda source: _receive(client, pace, *source), sources):
                delivered += keys
        for entity in entities:
            for message in _peek(_receiver(client, entity, **dead_letters)):
                dead_lettered[MessageKey(entity.path, message.message_id)] = _reason(message)
    with sdk_client(secondary, network) as client:
        for queue in backlog_queues:
            in_backlog += map(_backlog_key, _peek(client.get_queue_receiver(queue)))
            for message in _peek(client.get_queue_receiver(queue, **dead_letters)):
                dead_lettered[_backlog_key(message)] = _reason(message)
    return CollectedMessages(delivered, in_backlog, dead_lettered)


def _sessions(entity: DrillEntity, sessions: tuple[str, ...]) -> tuple[str | None, ...]:
    return sessions if entity.type is EntityType.SESSION_QUEUE else (None,)


def _receiver(client: ServiceBusClient, entity: DrillEntity, **options: Any) -> Any:
    if entity.type is EntityType.TOPIC:
        return client.get_subscription_receiver(entity.path, SUBSCRIPTION, **options)
    return client.get_queue_receiver(entity.path, **options)


def _receive(
    client: ServiceBusClient, pace: ReceivePace, entity: DrillEntity, session: str | None
) -> list[MessageKey]:
    options: dict[str, Any] = {"receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE}
    if session is not None:
        options["session_id"] = session
    with _receiver(client, entity, **options) as receiver:
        messages = [message for message in receive_all(receiver, pace) if not is_ping(message)]
    return [MessageKey(entity.path, str(message.message_id)) for message in messages]


def receive_all(receiver: Any, pace: ReceivePace) -> Iterator[Any]:
    """Yield all messages of a queue. An empty receive does not prove that the queue is empty, so a
    peek has to confirm it."""
    credit = 0
    """Messages that the service may still deliver, because a receive returned fewer."""
    for _ in range(MAX_ATTEMPTS):
        empty = not receiver.peek_messages(1)
        messages = None
        while messages is None or messages:
            pace.wait_for(BATCH_SIZE - credit)
            messages = receiver.receive_messages(BATCH_SIZE, max_wait_time=WAIT_S)
            credit = BATCH_SIZE - len(messages)
            yield from messages
        if empty:
            return


def _peek(receiver: Any) -> Iterator[Any]:
    """Yield all messages of a queue without receiving them."""
    sequence_number = 1
    with receiver:
        while messages := receiver.peek_messages(BATCH_SIZE, sequence_number=sequence_number):
            yield from messages
            sequence_number = messages[-1].sequence_number + 1


def _backlog_key(message: Any) -> MessageKey:
    """Return the key of a message in the backlog, which has its destination in an alias."""
    properties = message.application_properties or {}
    path = properties.get(PATH_ALIAS, properties.get(PATH_ALIAS.encode(), b""))
    text = path.decode() if isinstance(path, bytes) else str(path)
    return MessageKey(text, str(message.message_id))


def _reason(message: Any) -> str:
    parts = (message.dead_letter_reason, message.dead_letter_error_description)
    return ": ".join(str(part) for part in parts if part)
