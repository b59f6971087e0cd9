"""Hot paths of the emulator: a batch that it accepts, and messages that it delivers and settles.

The namespace, its storage and a connection are those of the emulator. The client is an AMQP engine
in the same process; both exchange bytes without a socket.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from benchmarks.hot_paths.path import HotPath
from pairbus.amqp.batch import BATCH_FORMAT, make_batch
from pairbus.amqp.connection import Connection
from pairbus.amqp.events import Delivery, Event
from pairbus.amqp.performatives import Accepted, Source, Target
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.settings import ConnectionSettings
from pairbus.emulator.connections.amqp_connection import AmqpConnection
from pairbus.emulator.entities.descriptions import QueueDescription
from pairbus.emulator.root_key import ROOT_RULE, root_rule
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.emulator.storage.store import Store

BATCH = 100
ROUNDS = 8
KEY = "key"
NOW_MS = 1_900_000_000_000


@contextmanager
def emulator_paths() -> Iterator[list[HotPath]]:
    """Provide the paths, which share a namespace."""
    with TemporaryDirectory("-hot-paths") as folder, Store(Path(folder) / "namespace.db") as store:
        client = InProcessClient(store)
        sender = client.engine.begin().attach_sender("send", target=Target("orders"))
        receiver = client.engine.begin().attach_receiver("receive", source=Source("orders"))
        client.exchange()
        batch = make_batch(
            Message.build(
                properties=Properties(message_id=f"{number:032}"), data=bytes(200)
            ).encode()
            for number in range(BATCH)
        )

        def accept() -> None:
            for _ in range(ROUNDS):
                sender.send(batch, message_format=BATCH_FORMAT)
                client.exchange()

        def deliver_and_settle() -> None:
            for _ in range(ROUNDS):
                receiver.flow(BATCH)
                events = client.exchange()
                ids = [event.id for event in events if isinstance(event, Delivery)]
                assert len(ids) == BATCH, len(ids)
                receiver.session.settle(ids[0], ids[-1], Accepted())
                client.exchange()

        yield [
            HotPath("emulator: accept a batch", accept, ROUNDS * BATCH),
            HotPath("emulator: deliver and settle", deliver_and_settle, ROUNDS * BATCH),
        ]


class InProcessClient:
    """An AMQP engine that is connected to a namespace with the queue `orders`."""

    def __init__(self, store: Store) -> None:
        callbacks: list[Callable[[], None]] = []
        runtime = NamespaceRuntime(
            "bench", store, (root_rule(KEY),), now_ms=lambda: NOW_MS, call_soon=callbacks.append
        )
        runtime.entities.create(QueueDescription(name="orders"), NOW_MS)
        self._callbacks = callbacks
        self._transport = Transport()
        self._server = AmqpConnection(
            runtime, cast(Any, self._transport), cast(Any, self), on_token=lambda: None
        )
        self.engine = Connection(
            ConnectionSettings(container_id="client"),
            sasl=SaslClient.plain(ROOT_RULE, KEY),
            client=True,
            now=0.0,
        )
        self.exchange()

    def time(self) -> float:
        """Return the time of the event loop."""
        return 0.0

    def exchange(self) -> list[Event]:
        """Exchange bytes until both sides have nothing to send. Return the events of the client."""
        events: list[Event] = []
        while self.engine.has_data_to_send or self._callbacks or self._transport.written:
            if self.engine.has_data_to_send:
                self._server.receive(self.engine.data_to_send())
            callbacks = self._callbacks[:]
            self._callbacks.clear()
            for callback in callbacks:
                callback()
            written = b"".join(self._transport.written)
            self._transport.written.clear()
            if written:
                events += self.engine.receive(written, 0.0)
        return events


class Transport:
    """Keeps what the emulator writes."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return 0
