"""The application of a drill: threads that send, each with its own paired sender."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.drill.plan import DrillEntity, DrillOptions, EntityType
from pairbus.drill.reconciliation import MessageKey, SentMessage
from pairbus.errors import PairbusError
from pairbus.events import PathStatus
from pairbus.pairing.client import PairedClient

CALLS_PER_SECOND = 4
SESSIONS_PER_SENDER = 2
RETRY_S = 0.2
"""The delay after an error. Then the sender sends the same messages again."""
STOP_S = 60.0
_TO_BACKLOG = (PathStatus.FAILOVER, PathStatus.DRAINING)


@dataclass(slots=True)
class SendCounts:
    """The totals of the senders of one path."""

    sent: int = 0
    """Messages whose send was acknowledged."""
    to_backlog: int = 0
    """Messages of these that were sent while the path was in failover or draining."""
    errors: int = 0
    """Calls that failed. Their messages were sent again."""


@dataclass(slots=True)
class _MessageSource:
    """Creates the messages of one sender."""

    entity: DrillEntity
    sessions: tuple[str | None, ...]
    calls: int = 0
    numbers: Counter[str | None] = field(default_factory=Counter)

    def create(self, count: int, size: int) -> list[tuple[SentMessage, ServiceBusMessage]]:
        """Create the messages of one call. They are of one session."""
        session = self.sessions[self.calls % len(self.sessions)]
        self.calls += 1
        messages = []
        for _ in range(count):
            self.numbers[session] += 1
            key = MessageKey(self.entity.path, str(uuid4()))
            body = f"{key.id} ".ljust(size, ".")[:size]
            message = ServiceBusMessage(body, message_id=key.id, session_id=session)
            messages.append((SentMessage(key, session, self.numbers[session]), message))
        return messages


class Senders:
    """Sends until it is stopped. After a failed call, a sender repeats the same messages with the
    same ids before it continues, like an application that must not lose any."""

    def __init__(
        self, client: PairedClient, entities: tuple[DrillEntity, ...], options: DrillOptions
    ) -> None:
        self._client = client
        self._options = options
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._pause = threading.Event()
        self._retry_until = float("inf")
        self.sent: list[SentMessage] = []
        self.counts = {entity.path: SendCounts() for entity in entities}
        self.failures: list[BaseException] = []
        """Unexpected exceptions that ended a sender."""
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(number, entities[number % len(entities)]),
                name=f"sender {number}",
                daemon=True,
            )
            for number in range(options.senders)
        ]

    @property
    def sessions(self) -> tuple[str, ...]:
        """The sessions that messages were sent to."""
        return tuple(
            sorted({message.session for message in self.sent if message.session is not None})
        )

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Wait a bounded time until every sender has sent its last messages. Idempotent."""
        self._retry_until = min(self._retry_until, time.monotonic() + STOP_S / 2)
        self._stopped.set()
        deadline = time.monotonic() + STOP_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, number: int, entity: DrillEntity) -> None:
        sessions: tuple[str | None, ...] = (None,)
        if entity.type is EntityType.SESSION_QUEUE:
            sessions = tuple(f"customer-{number}-{n}" for n in range(SESSIONS_PER_SENDER))
        source = _MessageSource(entity, sessions)
        get_sender = (
            self._client.get_topic_sender
            if entity.type is EntityType.TOPIC
            else self._client.get_queue_sender
        )
        per_call = self._options.rate / self._options.senders / CALLS_PER_SECOND
        start, due, calls = time.monotonic(), 0.0, 0
        try:
            with get_sender(entity.path) as sender:
                while not self._stopped.is_set():
                    calls += 1
                    due += per_call
                    count, due = int(due), due % 1
                    # One message alone and the others as a list, so that the drill covers both.
                    for part in (min(count, 1), count - 1):
                        if part > 0:
                            self._send(sender, source.create(part, self._options.size))
                    next_call = start + calls / CALLS_PER_SECOND
                    self._stopped.wait(max(0.0, next_call - time.monotonic()))
        except Exception as exc:  # noqa: BLE001  the drill reports it
            self.failures.append(exc)

    def _send(self, sender: Any, pairs: list[tuple[SentMessage, ServiceBusMessage]]) -> None:
        """Send messages until the call succeeds, or until the senders have to stop."""
        path = pairs[0][0].key.path
        messages = [message for _, message in pairs]
        while True:
            try:
                sender.send_messages(messages[0] if len(messages) == 1 else messages)
            except (ServiceBusError, PairbusError):
                with self._lock:
                    self.counts[path].errors += 1
                if time.monotonic() > self._retry_until:
                    return
                self._pause.wait(RETRY_S)
            else:
                break
        state = self._client.status().paths[path].status
        with self._lock:
            self.sent += [message for message, _ in pairs]
            self.counts[path].sent += len(pairs)
            if state in _TO_BACKLOG:
                self.counts[path].to_backlog += len(pairs)
