"""Takes everything out of the primary, and looks at what is elsewhere."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode, ServiceBusSubQueue

from pairbus.drill.plan import SUBSCRIPTION, DrillEntity, EntityType
from pairbus.drill.reconciliation import MessageKey
from pairbus.pairing.ping import is_ping
from pairbus.servicebus.application_properties import PATH_ALIAS

MANY = 200
WAIT_S = 1.0
LOOKS = 30
"""What has not come after so many is taken for lost."""


@dataclass(frozen=True, slots=True)
class CollectedMessages:
    delivered: list[MessageKey]
    """In the order of delivery, of each entity."""
    in_backlog: list[MessageKey]
    dead_lettered: dict[MessageKey, str]
    """With the reason."""


def collect(
    primary: str,
    secondary: str,
    entities: tuple[DrillEntity, ...],
    sessions: tuple[str, ...],
    backlog_queues: tuple[str, ...],
) -> CollectedMessages:
    """Receive all messages of the entities, and peek at the backlog and all dead-letter queues."""
    delivered: list[MessageKey] = []
    in_backlog: list[MessageKey] = []
    dead: dict[MessageKey, str] = {}
    letters: dict[str, Any] = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER}
    with ServiceBusClient.from_connection_string(primary) as client:
        jobs = [(one, session) for one in entities for session in _sessions(one, sessions)]
        with ThreadPoolExecutor(len(jobs)) as pool:
            for found in pool.map(lambda job: _received(client, *job), jobs):
                delivered += found
        for entity in entities:
            for message in _peeked(_receiver(client, entity, **letters)):
                dead[MessageKey(entity.path, message.message_id)] = _reason(message)
    with ServiceBusClient.from_connection_string(secondary) as client:
        for queue in backlog_queues:
            in_backlog += map(_destined, _peeked(client.get_queue_receiver(queue)))
            for message in _peeked(client.get_queue_receiver(queue, **letters)):
                dead[_destined(message)] = _reason(message)
    return CollectedMessages(delivered, in_backlog, dead)


def _sessions(entity: DrillEntity, sessions: tuple[str, ...]) -> tuple[str | None, ...]:
    return sessions if entity.shape is EntityType.SESSIONS else (None,)


def _receiver(client: ServiceBusClient, entity: DrillEntity, **options: Any) -> Any:
    if entity.shape is EntityType.TOPIC:
        return client.get_subscription_receiver(entity.path, SUBSCRIPTION, **options)
    return client.get_queue_receiver(entity.path, **options)


def _received(
    client: ServiceBusClient, entity: DrillEntity, session: str | None
) -> list[MessageKey]:
    options: dict[str, Any] = {"receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE}
    if session is not None:
        options["session_id"] = session
    with _receiver(client, entity, **options) as receiver:
        found = [one for one in _taken(receiver) if not is_ping(one)]
    return [MessageKey(entity.path, str(one.message_id)) for one in found]


def _taken(receiver: Any) -> Iterator[Any]:
    """All messages of a queue. That none came for a while does not say that none is there: the
    namespace itself is asked."""
    for _ in range(LOOKS):
        empty = not receiver.peek_messages(1)
        while messages := receiver.receive_messages(MANY, max_wait_time=WAIT_S):
            yield from messages
        if empty:
            return


def _peeked(receiver: Any) -> Iterator[Any]:
    """All messages of a queue; they stay there."""
    number = 1
    with receiver:
        while messages := receiver.peek_messages(MANY, sequence_number=number):
            yield from messages
            number = messages[-1].sequence_number + 1


def _destined(message: Any) -> MessageKey:
    """A message of the backlog, known by where it was going."""
    properties = message.application_properties or {}
    path = properties.get(PATH_ALIAS, properties.get(PATH_ALIAS.encode(), b""))
    return MessageKey(
        path.decode() if isinstance(path, bytes) else str(path), str(message.message_id)
    )


def _reason(message: Any) -> str:
    parts = (message.dead_letter_reason, message.dead_letter_error_description)
    return ": ".join(str(part) for part in parts if part)
