"""A namespace is killed under load with `kill -9` at random moments, and started again.

No accepted message is lost, no completed one is redelivered, and no repair is needed.
"""

import gc
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.amqp.client import Client, ClientOptions, Receiver, Sender
from pairbus.amqp.events import Delivery
from pairbus.amqp.sections import Message, Properties
from pairbus.emulator import EmulatorProcess, LocalNamespace
from pairbus.emulator.storage.store import Store
from pairbus.errors import AmqpError
from tests.waiting import wait_until

pytestmark = [
    # The SDK does not close its socket when a connection fails.
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
]

DEADLINE_S = 30.0
ROUNDS = 5
QUEUES = ("orders", "parcels")


@pytest.fixture(scope="module", autouse=True)
def _collect_sockets() -> Iterator[None]:
    """Collect sockets of the SDK before a module that does not ignore their warnings."""
    yield
    gc.collect()


class Ledger:
    """The outcomes that clients have seen, by message id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.tried: set[str] = set()
        self.accepted: set[str] = set()
        self.completing: set[str] = set()
        self.completed: set[str] = set()
        self.redelivered: list[str] = []

    def begin(self, count: int) -> list[str]:
        ids = [str(uuid4()) for _ in range(count)]
        with self._lock:
            self.tried.update(ids)
        return ids

    def accept(self, ids: list[str]) -> None:
        with self._lock:
            self.accepted.update(ids)

    def receive(self, ids: list[str]) -> None:
        with self._lock:
            self.redelivered += [id for id in ids if id in self.completed]
            self.completing.update(ids)

    def complete(self, ids: list[str]) -> None:
        with self._lock:
            self.completed.update(ids)


def encoded(id: str) -> bytes:
    return Message.build(properties=Properties(message_id=id), data=b"x" * 200).encode()


def id_of(delivery: Delivery) -> str:
    return str(Message.parse(delivery.payload).read_properties().message_id)


class Load:
    """Clients that send and receive in threads until the namespace is killed."""

    def __init__(self, connection_string: str, ledger: Ledger, seed: int) -> None:
        self._text = connection_string
        self._ledger = ledger
        self.interrupted: list[str] = []
        self.broken: list[BaseException] = []
        work: list[Callable[[random.Random], None]] = [
            self._send_single,
            self._send_batches,
            self._send_with_sdk,
            self._receive,
            self._receive_with_sdk,
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(client, random.Random(seed + index)))
            for index, client in enumerate(work)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), "a client thread did not end"

    def _run(self, work: Callable[[random.Random], None], chance: random.Random) -> None:
        try:
            work(chance)
        except (AmqpError, ServiceBusError) as exc:
            self.interrupted.append(f"{work.__name__}: {exc}")
        except BaseException as exc:  # noqa: BLE001  the test raises it
            self.broken.append(exc)

    def _client(self) -> Client:
        return Client(ClientOptions.from_connection_string(self._text, operation_timeout_s=20))

    def _send_single(self, chance: random.Random) -> None:
        with self._client() as client:
            senders = [Sender(client, queue) for queue in QUEUES]
            while True:
                ids = self._ledger.begin(1)
                chance.choice(senders).send(encoded(ids[0]))
                self._ledger.accept(ids)

    def _send_batches(self, chance: random.Random) -> None:
        with self._client() as client:
            senders = [Sender(client, queue) for queue in QUEUES]
            while True:
                ids = self._ledger.begin(chance.randrange(1, 100))
                chance.choice(senders).send_batch([encoded(id) for id in ids])
                self._ledger.accept(ids)

    def _send_with_sdk(self, chance: random.Random) -> None:
        with self._sdk() as client, client.get_queue_sender("orders", keep_alive=0) as sender:
            while True:
                ids = self._ledger.begin(chance.randrange(1, 10))
                sender.send_messages([ServiceBusMessage("x", message_id=id) for id in ids])
                self._ledger.accept(ids)

    def _receive(self, chance: random.Random) -> None:
        with self._client() as client:
            receivers = [Receiver(client, queue) for queue in QUEUES]
            while True:
                receiver = chance.choice(receivers)
                deliveries = receiver.receive(chance.randrange(1, 50), timeout_s=0.2)
                ids = [id_of(delivery) for delivery in deliveries]
                self._ledger.receive(ids)
                receiver.settle(deliveries)
                self._ledger.complete(ids)

    def _receive_with_sdk(self, chance: random.Random) -> None:
        with (
            self._sdk() as client,
            client.get_queue_receiver("orders", prefetch_count=10, keep_alive=0) as receiver,
        ):
            while True:
                for message in receiver.receive_messages(5, max_wait_time=0.5):
                    self._ledger.receive([message.message_id])
                    receiver.complete_message(message)
                    self._ledger.complete([message.message_id])

    def _sdk(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(
            self._text, retry_total=0, retry_backoff_factor=0.02
        )


def drained(connection_string: str) -> list[str]:
    """Receive and delete all messages, and return their ids."""
    ids: list[str] = []
    options = ClientOptions.from_connection_string(connection_string, operation_timeout_s=20)
    with Client(options) as client:
        for queue in QUEUES:
            receiver = Receiver(client, queue, settled=True)
            for deliveries in receiver.receive_available(100_000):
                ids += [id_of(delivery) for delivery in deliveries]
    return ids


def test_killed_namespace_keeps_exactly_what_it_accepted(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    ledger = Ledger()
    create_queues(tmp_path / "local")

    with EmulatorProcess("local", folder=tmp_path) as process:
        for round_ in range(ROUNDS):
            kill_under_load(process, ledger, chance, seed + 100 * round_)
            process.start()
        left = drained(process.connection_string)
        assert process.terminate() == 0

    assert ledger.redelivered == []
    assert set(left) & ledger.completed == set()
    assert len(left) == len(set(left))
    assert set(left) <= ledger.tried
    # A message that was being completed may have been removed. All others are still stored.
    assert ledger.accepted - ledger.completing <= set(left)
    check_file(tmp_path / "local")


def kill_under_load(
    process: EmulatorProcess, ledger: Ledger, chance: random.Random, seed: int
) -> None:
    load = Load(process.connection_string, ledger, seed)
    accepted = len(ledger.accepted) + chance.randrange(1, 2000)
    completed = len(ledger.completed) + chance.randrange(1, 100)

    def is_under_load() -> bool:
        done = len(ledger.accepted) >= accepted and len(ledger.completed) >= completed
        return done or bool(load.broken)

    try:
        wait_until(is_under_load, "the load")
        time.sleep(chance.random() * 0.05)  # kill at a random point
    finally:
        errors = process.errors()
        process.kill()
        load.join()
    assert process.exit_status == -signal.SIGKILL
    assert load.broken == []
    assert len(load.interrupted) == 5, load.interrupted
    assert errors == ""


def create_queues(folder: Path) -> None:
    with LocalNamespace(folder=folder) as namespace:
        for queue in QUEUES:
            namespace.create_queue(queue, max_delivery_count=1000)


def check_file(folder: Path) -> None:
    """Check the integrity of the file and its entities."""
    db = sqlite3.connect(folder / "namespace.db")
    try:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        db.close()
    with Store(folder / "namespace.db") as store:
        assert [entity.path for entity in store.entities.all()] == list(QUEUES)
