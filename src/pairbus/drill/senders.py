"""An application that sends: some threads, each with a paired sender of its own."""

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

TURNS_A_SECOND = 4
SESSIONS = 2
"""Of each sender of a queue with sessions."""
AGAIN_S = 0.2
"""After an error a sender waits so long, and sends the same messages again."""
STOP_S = 60.0
_STORED = (PathStatus.FAILOVER, PathStatus.DRAINING)


@dataclass(slots=True)
class SendCounts:
    """What the senders of one path have done."""

    sent: int = 0
    """Acknowledged."""
    stored: int = 0
    """Of these, sent while the path was in failover or draining."""
    errors: int = 0
    """Calls that failed; their messages were sent again."""


@dataclass(slots=True)
class _Sender:
    """One thread's own."""

    entity: DrillEntity
    sessions: tuple[str | None, ...]
    calls: int = 0
    numbers: Counter[str | None] = field(default_factory=Counter)

    def next_call(self, count: int, size: int) -> list[tuple[SentMessage, ServiceBusMessage]]:
        """Some messages, of one session where there are sessions."""
        session = self.sessions[self.calls % len(self.sessions)]
        self.calls += 1
        made = []
        for _ in range(count):
            self.numbers[session] += 1
            key = MessageKey(self.entity.path, str(uuid4()))
            body = f"{key.id} ".ljust(size, ".")[:size]
            message = ServiceBusMessage(body, message_id=key.id, session_id=session)
            made.append((SentMessage(key, session, self.numbers[session]), message))
        return made


class Senders:
    """Sends until it is stopped. A message whose send fails is sent again, with the same id, before
    the next one: so an application would do it that must not lose any."""

    def __init__(
        self, bus: PairedClient, entities: tuple[DrillEntity, ...], options: DrillOptions
    ) -> None:
        self._bus = bus
        self._options = options
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._pause = threading.Event()
        self._give_up_at = float("inf")
        self.sent: list[SentMessage] = []
        self.not_acknowledged: list[MessageKey] = []
        """Given up when the fleet was stopped."""
        self.lines = {entity.path: SendCounts() for entity in entities}
        self.failures: list[BaseException] = []
        """What ended a sender before its time."""
        self._threads = [
            threading.Thread(
                target=self._work,
                args=(number, entities[number % len(entities)]),
                name=f"sender {number}",
                daemon=True,
            )
            for number in range(options.senders)
        ]

    @property
    def sessions(self) -> tuple[str, ...]:
        """The sessions that something was sent to."""
        return tuple(sorted({one.session for one in self.sent if one.session is not None}))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let every sender bring its last messages home, in bounded time. Can be called again."""
        self._give_up_at = min(self._give_up_at, time.monotonic() + STOP_S / 2)
        self._stopped.set()
        deadline = time.monotonic() + STOP_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self, number: int, entity: DrillEntity) -> None:
        sessions: tuple[str | None, ...] = (None,)
        if entity.shape is EntityType.SESSIONS:
            sessions = tuple(f"customer-{number}-{n}" for n in range(SESSIONS))
        mine = _Sender(entity, sessions)
        make = (
            self._bus.get_topic_sender
            if entity.shape is EntityType.TOPIC
            else self._bus.get_queue_sender
        )
        a_turn = self._options.rate / self._options.senders / TURNS_A_SECOND
        began, due, turn = time.monotonic(), 0.0, 0
        try:
            with make(entity.path) as sender:
                while not self._stopped.is_set():
                    turn += 1
                    due += a_turn
                    count, due = int(due), due % 1
                    # One by itself, the others together: both ways of sending are in the drill.
                    for some in (min(count, 1), count - 1):
                        if some > 0:
                            self._send(sender, mine.next_call(some, self._options.size))
                    self._stopped.wait(max(0.0, began + turn / TURNS_A_SECOND - time.monotonic()))
        except Exception as exc:  # noqa: BLE001  whoever waits for the fleet is told
            self.failures.append(exc)

    def _send(self, sender: Any, call: list[tuple[SentMessage, ServiceBusMessage]]) -> None:
        path = call[0][0].key.path
        messages = [message for _, message in call]
        while True:
            try:
                sender.send_messages(messages[0] if len(messages) == 1 else messages)
            except (ServiceBusError, PairbusError):
                with self._lock:
                    self.lines[path].errors += 1
                if time.monotonic() > self._give_up_at:
                    self.not_acknowledged += [one.key for one, _ in call]
                    return
                self._pause.wait(AGAIN_S)
            else:
                break
        state = self._bus.status().paths[path].status
        with self._lock:
            self.sent += [one for one, _ in call]
            self.lines[path].sent += len(call)
            if state in _STORED:
                self.lines[path].stored += len(call)
