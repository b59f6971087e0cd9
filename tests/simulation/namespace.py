"""A namespace of the emulator as a simulated process: its real runtime, store and connections."""

import logging
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pairbus.amqp.client import ClientOptions, SharedAccessKey
from pairbus.amqp.sasl import SaslClient
from pairbus.emulator.connections.amqp_connection import AmqpConnection
from pairbus.emulator.entities.descriptions import QueueDescription
from pairbus.emulator.entities.message_codec import parse_message
from pairbus.emulator.root_key import ROOT_RULE, root_rule
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.emulator.storage.database import Database, StoreFailed
from pairbus.emulator.storage.store import Store
from pairbus.emulator.tiers import UNLIMITED, NamespaceTier
from tests.simulation.disk import SimulatedDisk
from tests.simulation.network import Connection, End, Network
from tests.simulation.scheduler import Machine, Process, Scheduler

TICK_S, MAX_TICK_S = 0.2, 1.6
"""The namespace lets time pass at this interval while it is busy, and less often while it is idle:
nothing but time can make something due then."""
FULL_BYTES = 2**40
"""The size of messages that fill every queue."""
RETRY_S = 0.5
"""The pause after which a queue is created that could not be created now."""
PORT = 5672
KEY = "c2ltdWxhdGlvbi1rZXktb2YtMzItYnl0ZXMtbGVuZ3RoMQ=="

_root_rules = (root_rule(KEY),)


class NoLock:
    """Each simulated disk belongs to one namespace, so its file needs no lock."""

    def __init__(self, path: object) -> None:
        pass

    def release(self) -> None:
        pass


class NamespaceLoop:
    """The part of an event loop that connections of a namespace use."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def time(self) -> float:
        return self._process.monotonic()

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        self._process.scheduler.call_later(seconds, lambda: callback(*args), self._process)  # type: ignore[arg-type, return-value]

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._process.scheduler.call_soon(callback, self._process)


class ServerTransport:
    """The end of a connection in the namespace, with the methods of `asyncio.Transport`."""

    def __init__(self, namespace: "SimulatedNamespace", connection: Connection) -> None:
        self._namespace = namespace
        self._process = namespace.process
        self._connection = connection
        self._end: End = connection.server
        self._closing = False
        self._paused = False
        self._arrived: deque[bytes | str] = deque()
        """Bytes, or the reason why the connection was lost. A process that was frozen handles all
        of it at one time, and events of one time have no order."""
        self._unread: list[bytes] = []
        self.protocol: AmqpConnection | None = None

    # Called by the network.

    def on_bytes(self, data: bytes) -> None:
        self._arrived.append(data)
        self._process.scheduler.call_soon(self._handle_next, self._process)

    def on_lost(self, reason: str) -> None:
        self._arrived.append(reason)
        self._process.scheduler.call_soon(self._handle_next, self._process)

    def _handle_next(self) -> None:
        arrived = self._arrived.popleft()
        if isinstance(arrived, bytes):
            self._receive(arrived)
        else:
            self._lost(arrived)

    def _receive(self, data: bytes) -> None:
        if self._closing or self._namespace.has_failed:
            return
        if self._paused:
            self._unread.append(data)
            return
        self._namespace.was_busy()
        if self.protocol is None:
            self.protocol = self._namespace.open(self)
        self.protocol.receive(data)

    def _lost(self, reason: str) -> None:
        self._closing = True
        if self.protocol is not None and not self._namespace.has_failed:
            self._namespace.closed(self)
            self.protocol.lost(reason)

    # Called by the connection of the emulator.

    def write(self, data: bytes) -> None:
        if not self._closing:
            self._connection.send(self._end, data)

    def get_write_buffer_size(self) -> int:
        client = self._connection.client
        return sum(map(len, client.held)) if client.held else 0

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._connection.close(self._end)
            self._lost_soon("the connection was closed")

    def abort(self) -> None:
        if not self._closing:
            self._closing = True
            self._connection.close(self._end, "connection reset by peer")
            self._lost_soon("the connection was aborted")

    def _lost_soon(self, reason: str) -> None:
        self._process.scheduler.call_soon(lambda: self._lost(reason), self._process)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        unread, self._unread = self._unread, []
        self._arrived.extendleft(reversed(unread))
        for _ in unread:
            self._process.scheduler.call_soon(self._handle_next, self._process)


class SimulatedNamespace:
    """A namespace that can crash, freeze and start again. Its disk survives."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        name: str,
        *,
        tier: NamespaceTier = UNLIMITED,
        machine: Machine | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.network = network
        self.name = name
        self.host = f"{name}.simulation"
        self.tier = tier
        self.machine = Machine(self.host) if machine is None else machine
        self.disk = SimulatedDisk(name, scheduler.random)
        self.process = Process(scheduler, name, self.machine)
        self.process.alive = False
        self.runtime: NamespaceRuntime
        self.with_tokens = True
        """Clients send a token for each entity. False: they authenticate once, which is faster."""
        self.queues: list[str] = []
        """The paths of all queues, also of those that are deleted for a while."""
        self.starts = 0
        self._connections: dict[AmqpConnection, None] = {}
        self._transports: dict[ServerTransport, None] = {}
        self._tick_s = TICK_S
        self._tick_ticket = 0

    def options(self, **options: Any) -> ClientOptions:
        """Return the options of a client of the namespace."""
        fields: dict[str, Any] = {
            "host": self.host,
            "port": PORT,
            "tls": False,
        }
        if self.with_tokens:
            fields["tokens"] = SharedAccessKey(ROOT_RULE, KEY)
        else:
            fields["sasl"] = SaslClient.plain(ROOT_RULE, KEY)
        return ClientOptions(**{**fields, **options})

    # Life.

    def start(self) -> None:
        """Start the process, on the content of its disk."""
        if self.process.alive:
            return
        self.starts += 1
        process = self.process = Process(self.scheduler, self.name, self.machine)
        self._connections.clear()
        self._transports.clear()
        with self.scheduler.running(process, None):
            store = Store(self.name, on_failure=self._failed, open_database=self._open_database)
            self.runtime = NamespaceRuntime(
                self.name,
                store,
                _root_rules,
                now_ms=lambda: int(process.wall() * 1000),
                call_soon=lambda callback: self.scheduler.call_soon(callback, process),
                tier=self.tier,
            )
        self._loop = process.loop = NamespaceLoop(process)
        self.network.listen(self.host, process, self._accept)
        self.scheduler.trace(self.name, "started")
        self._tick_s = TICK_S
        self._schedule_tick()

    def _open_database(self, path: Any, on_failure: Callable[[], None]) -> Database:
        return Database(path, on_failure, connect=self.disk.connect, lock=NoLock)  # type: ignore[arg-type]

    def crash(self, *, silent: bool = False) -> None:
        """Kill the process. With `silent` its machine dies, and clients are not told."""
        if not self.process.alive:
            return
        self.scheduler.trace(self.name, "crashed" + (", silently" if silent else ""))
        self.network.stop_listening(self.host, silent=silent)
        self.network.process_died(self.process, silent=silent)
        self.process.kill()
        self.disk.crash()

    def _failed(self) -> None:
        """Stop, because the store has failed, as LocalNamespace does."""
        self.scheduler.trace(self.name, f"failed: {self.runtime.store.failure}")
        self.scheduler.call_soon(self.crash)

    @property
    def has_failed(self) -> bool:
        return self.runtime.store.failure is not None

    def create_queue(self, description: QueueDescription) -> None:
        if description.path not in self.queues:
            self.queues.append(description.path)
        with self.scheduler.running(self.process, None):
            self.runtime.entities.create(description, self.runtime.now_ms())
            self.runtime.turn()

    def fill(self, path: str) -> Callable[[], None] | None:
        """Let a queue be full until the returned function is called, or the process ends."""
        entity = self.runtime.entities.find(path)
        if entity is None:
            return None
        queue = entity.queue
        queue.bytes += FULL_BYTES

        def empty() -> None:
            queue.bytes -= FULL_BYTES

        return empty

    def delete_queue(self, path: str) -> Callable[[], None] | None:
        """Delete a queue, and return a function that creates it again. None if it has messages, or
        would forget which ones it had."""
        entity = self.runtime.entities.find(path)
        if entity is None or entity.bytes or self.process.frozen or self.disk.is_failing:
            return None
        description: Any = entity.description
        if description.requires_duplicate_detection:
            return None

        def create() -> None:
            if not self.process.alive or self.process.frozen or self.disk.is_failing:
                self.scheduler.call_later(RETRY_S, create)
            elif self.runtime.entities.find(path) is None:
                self.scheduler.trace(self.name, f"creates {path}")
                self.create_queue(description)

        self.scheduler.trace(self.name, f"deletes {path}")
        with self.scheduler.running(self.process, None):
            self.runtime.entities.delete(path)
            self.runtime.schedule_turn()
        return create

    def store(self, path: str, payloads: list[bytes], *, dead_letters: bool = False) -> None:
        """Store messages that were sent before the simulation began, and dead-letter them."""
        with self.scheduler.running(self.process, None):
            entity = self.runtime.entities.find(path)
            assert entity is not None
            messages = [parse_message(payload) for payload in payloads]
            queue, now_ms = entity.queue, self.runtime.now_ms()
            self.runtime.entities.router.send(entity, messages, now_ms)
            if dead_letters:
                for _, lock in queue.receive(len(messages), now_ms, locked=True):
                    assert lock is not None
                    queue.dead_letter(lock.token, "refused", "earlier", {}, now_ms)
            self.runtime.turn()

    def holds_messages(self, path: str) -> bool:
        """Return whether a queue has messages, without its dead letters."""
        entity = self.runtime.entities.find(path)
        return entity is not None and len(entity.queue) > 0

    # Connections.

    def _accept(self, connection: Connection) -> ServerTransport:
        return ServerTransport(self, connection)

    def open(self, transport: ServerTransport) -> AmqpConnection:
        protocol = AmqpConnection(
            self.runtime,
            transport,  # type: ignore[arg-type]
            self._loop,  # type: ignore[arg-type]
            lambda: None,
        )
        self._connections[protocol] = None
        self._transports[transport] = None
        return protocol

    def closed(self, transport: ServerTransport) -> None:
        self._transports.pop(transport, None)
        if transport.protocol is not None:
            self._connections.pop(transport.protocol, None)

    # Time.

    def was_busy(self) -> None:
        """Let time pass often for a while."""
        if self._tick_s > TICK_S:
            self._tick_s = TICK_S
            self._schedule_tick()

    def _schedule_tick(self) -> None:
        self._tick_ticket += 1
        ticket = self._tick_ticket
        self.scheduler.call_later(self._tick_s, lambda: self._tick(ticket), self.process)

    def _tick(self, ticket: int) -> None:
        if ticket != self._tick_ticket or self.has_failed:
            return
        try:
            self.runtime.tick()
            for connection in list(self._connections):
                connection.tick()
        except StoreFailed:
            return
        self._tick_s = min(self._tick_s * 2, MAX_TICK_S)
        self._schedule_tick()


def queue(name: str, lock_s: float = 30.0, **settings: Any) -> QueueDescription:
    """Return the description of a queue."""
    return QueueDescription(name=name, lock_duration=timedelta(seconds=lock_s), **settings)


logging.getLogger("pairbus").setLevel(logging.CRITICAL)
