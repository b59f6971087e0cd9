"""The sender process: a paired client with eight senders, until its input ends.

    python -m tests.faults.matrix.sender < orders

The first line of its input says what to do, as JSON. It notes each call before and after it. One
that fails is made again with the same messages, as an application would, and in the end given up.
SIGUSR1 prints where its threads are.
"""

import faulthandler
import json
import random
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import SendAvailabilityOptions, pair_namespace
from pairbus.errors import PairbusError, PartlyStored
from pairbus.events import Event, StateChanged
from tests.faults.matrix.notes import NoteWriter

SENDERS = 8
PATIENCE_S = 30.0
"""How long a message is tried again."""
PAUSE_S = 0.2
"""Between two tries."""
SIZES = (1, 1, 1, 1, 4, 10)
"""Messages of a call: one, a list, or a batch."""
BATCH = 10
EXPECTED = (AzureError, PairbusError)
SDK: dict[str, Any] = {"retry_total": 1, "retry_backoff_factor": 0.05, "retry_backoff_max": 1}


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a sender process is told."""

    primary: str
    secondary: str
    name: str
    backlog_queues: int
    notes: str
    prefix: str
    """Message ids begin with it: they are of this run, and of this life."""
    seed: str
    failover_interval_s: float
    failback: str
    queues: tuple[str, ...]
    with_sessions: tuple[str, ...]
    topics: tuple[str, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Orders":
        values: Any = json.loads(text)
        for name in ("queues", "with_sessions", "topics"):
            values[name] = tuple(values[name])
        return cls(**values)

    @property
    def paths(self) -> tuple[str, ...]:
        return self.queues + self.with_sessions + self.topics


class Work:
    """One of the senders, in a thread of its own."""

    def __init__(self, orders: Orders, bus: Any, number: int, stop: threading.Event) -> None:
        self._orders = orders
        self._bus = bus
        self._number = number
        self._stop = stop
        self._path = orders.paths[number % len(orders.paths)]
        self._session = f"session-{number}" if self._path in orders.with_sessions else None
        self._chance = random.Random(f"{orders.seed}, sender {number}")
        self._made = 0
        self._notes = NoteWriter(Path(orders.notes))
        self.thread = threading.Thread(target=self._run, name=f"sender {number}")

    def _run(self) -> None:
        try:
            if self._path in self._orders.topics:
                sender = self._bus.get_topic_sender(self._path)
            else:
                sender = self._bus.get_queue_sender(self._path)
            with sender:
                while not self._stop.is_set():
                    self._send(sender, [self._make() for _ in range(self._chance.choice(SIZES))])
                    self._stop.wait(self._chance.uniform(0.08, 0.2))
        except Exception:  # noqa: BLE001  whatever it is, the run is to know
            self._notes.write("broken", error=traceback.format_exc())
        finally:
            self._notes.close()

    def _make(self) -> ServiceBusMessage:
        self._made += 1
        id = f"{self._orders.prefix}-{self._number}-{self._made}"
        body = b"x" * self._chance.choice((20, 200, 2000))
        return ServiceBusMessage(body, message_id=id, session_id=self._session)

    def _send(self, sender: Any, messages: list[ServiceBusMessage]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while messages:
            self._note("try", messages)
            try:
                self._call(sender, messages)
            except PartlyStored as exc:
                self._note("done", [messages[place] for place in exc.stored])
                messages = [messages[place] for place in exc.not_stored]
                self._note("failed", messages, error=type(exc).__name__)
            except EXPECTED as exc:
                self._note("failed", messages, error=type(exc).__name__)
            else:
                self._note("done", messages)
                return
            if self._stop.wait(PAUSE_S) or time.monotonic() > deadline:
                return

    def _call(self, sender: Any, messages: list[ServiceBusMessage]) -> None:
        if len(messages) == 1:
            sender.send_messages(messages[0])
        elif len(messages) < BATCH:
            sender.send_messages(messages)
        else:
            batch = sender.create_message_batch()
            for one in messages:
                batch.add_message(one)
            sender.send_messages(batch)

    def _note(self, what: str, messages: list[ServiceBusMessage], **values: Any) -> None:
        ids = [one.message_id for one in messages]
        self._notes.write(what, path=self._path, ids=ids, session=self._session, **values)


def pair(orders: Orders, notes: NoteWriter, stop: threading.Event) -> tuple[Any, list[Any]] | None:
    """A paired client, and what is to be closed after it. None: it was stopped before."""

    def note(event: Event) -> None:
        if isinstance(event, StateChanged):
            notes.write("state", path=event.path, state=event.to_state.value)
        else:
            notes.write(type(event).__name__)

    while not stop.is_set():
        clients = [
            ServiceBusClient.from_connection_string(text, **SDK)
            for text in (orders.primary, orders.secondary)
        ]
        options = SendAvailabilityOptions(
            secondary=clients[1],
            primary_name=orders.name,
            backlog_queue_count=orders.backlog_queues,
            failover_interval=timedelta(seconds=orders.failover_interval_s),
            ping_primary_interval=timedelta(seconds=1),
            failback=orders.failback,  # type: ignore[arg-type]
            failback_hold=timedelta(seconds=2),
            operation_timeout=timedelta(seconds=4),
            backlog_cool_down=timedelta(seconds=1),
            check_duplicate_detection=False,
            on_event=note,
        )
        try:
            return pair_namespace(clients[0], options), clients
        except EXPECTED as exc:
            notes.write("failed", error=f"pairing: {type(exc).__name__}")
            for one in clients:
                one.close()
            stop.wait(PAUSE_S)
    return None


def main() -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: whoever started this ends it
    orders = Orders.from_json(sys.stdin.readline())
    notes, stop = NoteWriter(Path(orders.notes)), threading.Event()

    def heed() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=heed, daemon=True).start()
    if (paired := pair(orders, notes, stop)) is None:
        return
    bus, clients = paired
    notes.write("paired")
    workers = [Work(orders, bus, number, stop) for number in range(SENDERS)]
    for one in workers:
        one.thread.start()
    for one in workers:
        one.thread.join()
    bus.close()
    for client in clients:
        client.close()
    notes.write("closed")


if __name__ == "__main__":
    main()
