"""The network: byte streams between processes on simulated hosts.

A connection delivers bytes in order, after a delay that differs from one connection to the next, so
connections overtake each other. It can be cut after any byte, or become silent: then both ends
believe that it is open, and nothing arrives any more. Between two hosts the network can be
partitioned: what is sent waits, as TCP waits, and arrives when the partition ends, unless the
connection was given up.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tests.simulation.scheduler import Process, ProcessKilled, Scheduler


class Receives(Protocol):
    """The user of one end of a connection. It is called by the network, in no process."""

    def on_bytes(self, data: bytes) -> None: ...

    def on_lost(self, reason: str) -> None: ...


@dataclass
class LinkConditions:
    """The conditions between two hosts."""

    min_delay_s: float = 0.0005
    max_delay_s: float = 0.003
    partitioned: bool = False
    refuses: bool = True
    """New connections are refused while the hosts are partitioned. False: they get no answer."""


@dataclass(eq=False)
class End:
    """One end of a connection."""

    process: Process
    user: Receives | None = None
    open: bool = True
    told: bool = False
    """The user was told that the connection ended."""
    arrival: float = 0.0
    """The time at which the last bytes arrive that were sent to this end."""
    silent: bool = False
    """Nothing arrives at this end any more, and it is not told."""
    held: list[bytes] = field(default_factory=list)
    """Bytes that wait for the end of a partition."""
    in_flight: list[tuple[int, bytes]] = field(default_factory=list)
    """Bytes that are on the way to this end."""


class Connection:
    """A connection between two processes."""

    def __init__(self, network: "Network", number: int, client: End, server: End) -> None:
        self.network = network
        self.number = number
        self.client, self.server = client, server
        self.name = f"{client.process.name}->{server.process.name}#{number}"
        random = network.scheduler.random
        self.extra_delay_s = random.random() * 0.002
        if random.random() < network.slow_share:
            self.extra_delay_s = random.uniform(0.3, 2.0)
        self._segments = 0

    def other(self, end: End) -> End:
        return self.server if end is self.client else self.client

    @property
    def conditions(self) -> LinkConditions:
        return self.network.between(self.client.process, self.server.process)

    def send(self, end: End, data: bytes) -> None:
        """Send bytes from one end to the other."""
        if not end.process.alive:
            raise ProcessKilled
        if not end.open:
            return
        peer = self.other(end)
        scheduler = self.network.scheduler
        scheduler.trace(self.name, f"{'>' if end is self.client else '<'} {len(data)}", data=data)
        if peer.silent:
            return
        if self.conditions.partitioned:
            peer.held.append(data)
            return
        random = scheduler.random
        if len(data) > 1 and random.random() < self.network.split_share:
            # The parts of a write arrive one by one.
            at = random.randrange(1, len(data))
            self._transmit(peer, data[:at])
            data = data[at:]
        self._transmit(peer, data)

    def _transmit(self, peer: End, data: bytes) -> None:
        scheduler, conditions = self.network.scheduler, self.conditions
        delay = self.extra_delay_s + scheduler.random.uniform(
            conditions.min_delay_s, conditions.max_delay_s
        )
        peer.arrival = max(peer.arrival + 1e-6, scheduler.now + delay)
        self._segments += 1
        segment = self._segments, data
        peer.in_flight.append(segment)

        def arrive() -> None:
            if segment not in peer.in_flight:
                return
            peer.in_flight.remove(segment)
            if not peer.open or peer.silent:
                return
            if self.conditions.partitioned:
                peer.held.append(data)
            elif peer.user is not None:
                peer.user.on_bytes(data)

        scheduler.call_at(peer.arrival, arrive)

    def close(self, end: End, reason: str = "the peer closed the connection") -> None:
        """Close one end. The other one is told after the bytes that were sent before."""
        if not end.open:
            return
        end.open = False
        peer = self.other(end)
        scheduler = self.network.scheduler
        scheduler.trace(self.name, f"closed by {end.process.name}")
        if peer.silent or not peer.open:
            self.network.forget(self)
            return
        delay = self.extra_delay_s + self.conditions.max_delay_s
        peer.arrival = max(peer.arrival + 1e-6, scheduler.now + delay)

        def arrive() -> None:
            if self.conditions.partitioned:
                peer.held.append(b"")
            else:
                self._tell(peer, reason)

        scheduler.call_at(peer.arrival, arrive)

    def _tell(self, end: End, reason: str) -> None:
        self.network.forget(self)
        if end.open and not end.silent and not end.told and end.process.alive:
            end.open, end.told = False, True
            if end.user is not None:
                end.user.on_lost(reason)

    # Faults.

    def cut(self) -> None:
        """Break the connection. A part of what is on the way still arrives."""
        scheduler = self.network.scheduler
        scheduler.trace(self.name, "cut")
        for end in (self.client, self.server):
            segments, end.in_flight = end.in_flight, []
            if segments and end.open and not end.silent and scheduler.random.random() < 0.7:
                data = b"".join(data for _, data in segments)
                part = data[: scheduler.random.randrange(len(data) + 1)]
                if part and end.user is not None:
                    end.user.on_bytes(part)
            end.held.clear()
        for end in (self.client, self.server):
            scheduler.call_later(
                scheduler.random.random() * 0.05,
                lambda end=end: self._tell(end, "connection reset by peer"),  # type: ignore[misc]
            )

    def silence(self, end: End) -> None:
        """Let nothing arrive at this end any more."""
        self.network.scheduler.trace(self.name, f"silent towards {end.process.name}")
        end.silent = True
        end.in_flight.clear()

    def heal(self) -> None:
        """Deliver what waited for the end of a partition."""
        for end in (self.client, self.server):
            held, end.held = end.held, []
            for data in held:
                if data:
                    self._transmit(end, data)
                else:
                    self._tell(end, "the peer closed the connection")


class Network:
    """All hosts, and the connections between them."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.max_delay_s = 0.003
        """The longest delay between hosts, unless it is changed for two of them."""
        self.slow_share = 0.0
        """The share of connections that are much slower than others."""
        self.split_share = 0.02
        """The share of writes that arrive in two parts."""
        self.connections: dict[Connection, None] = {}
        self._listeners: dict[str, tuple[Process, Callable[[Connection], Receives]]] = {}
        self._down: dict[str, bool] = {}
        self._conditions: dict[frozenset[str], LinkConditions] = {}
        self._count = 0

    def end_slowness(self, max_delay_s: float) -> None:
        """Open no more connections that are much slower than others, and limit the additional delay
        of those that are open: workers keep their connections."""
        self.slow_share = 0.0
        for connection in self.connections:
            connection.extra_delay_s = min(connection.extra_delay_s, max_delay_s)

    def between(self, one: Process, other: Process) -> LinkConditions:
        return self.conditions(one.machine.name, other.machine.name)

    def conditions(self, one: str, other: str) -> LinkConditions:
        """Return the conditions between two hosts, which may be changed."""
        key = frozenset((one, other))
        if key not in self._conditions:
            self._conditions[key] = LinkConditions(max_delay_s=self.max_delay_s)
        return self._conditions[key]

    def listen(self, host: str, process: Process, accept: Callable[[Connection], Receives]) -> None:
        """Let a process accept the connections to a host."""
        self._listeners[host] = process, accept
        self._down.pop(host, None)

    def stop_listening(self, host: str, *, silent: bool) -> None:
        """Let connections to a host be refused or, with `silent`, not be answered."""
        self._listeners.pop(host, None)
        self._down[host] = silent

    def connect(self, process: Process, host: str, timeout_s: float) -> tuple[Connection, End]:
        """Connect in a simulated thread. Raises ConnectionRefusedError or TimeoutError."""
        scheduler = self.scheduler
        task = scheduler.current_task()
        listener = self._listeners.get(host)
        machine = host if listener is None else listener[0].machine.name
        conditions = self.conditions(process.machine.name, machine)
        if conditions.partitioned and not conditions.refuses:
            task.wait(timeout_s)
            raise TimeoutError(f"{host} did not answer")
        delay = 2 * scheduler.random.uniform(conditions.min_delay_s, conditions.max_delay_s)
        if delay > timeout_s:
            task.wait(timeout_s)
            raise TimeoutError(f"{host} did not answer")
        task.wait(delay)
        listener = self._listeners.get(host)
        if listener is None or conditions.partitioned:
            if self._down.get(host, False):
                task.wait(max(0.0, timeout_s - delay))
                raise TimeoutError(f"{host} did not answer")
            raise ConnectionRefusedError(f"{host} refused the connection")
        if not process.alive:
            raise ProcessKilled
        # A frozen server does not stop its operating system from accepting connections.
        self._count += 1
        client, server = End(process), End(listener[0])
        connection = Connection(self, self._count, client, server)
        self.connections[connection] = None
        scheduler.trace(connection.name, "connected")
        server.user = listener[1](connection)
        return connection, client

    def forget(self, connection: Connection) -> None:
        if not connection.client.open and not connection.server.open:
            self.connections.pop(connection, None)

    def process_died(self, process: Process, *, silent: bool) -> None:
        """End the connections of a process. With `silent` its machine died, and nobody is told."""
        for connection in list(self.connections):
            for end in (connection.client, connection.server):
                if end.process is process:
                    if silent:
                        end.open = False
                        end.in_flight.clear()
                        connection.other(end).silent = True
                    else:
                        connection.close(end, "connection reset by peer")

    def partition(self, one: str, other: str, *, silent: bool) -> None:
        conditions = self.conditions(one, other)
        conditions.partitioned, conditions.refuses = True, not silent
        self.scheduler.trace("network", f"partition {one} | {other}")

    def heal(self, one: str, other: str) -> None:
        conditions = self.conditions(one, other)
        if not conditions.partitioned:
            return
        conditions.partitioned = False
        self.scheduler.trace("network", f"healed {one} | {other}")
        hosts = {one, other}
        for connection in list(self.connections):
            if {connection.client.process.machine.name, connection.server.process.machine.name} == (
                hosts
            ):
                if self.scheduler.random.random() < 0.3:
                    connection.cut()
                else:
                    connection.heal()

    def open_connections(self, client: Process) -> list[str]:
        """Return the names of the open connections of a client."""
        return [
            connection.name
            for connection in self.connections
            if connection.client.open and connection.client.process is client
        ]

    def random_connection(self) -> Connection | None:
        connections = [c for c in self.connections if c.client.open or c.server.open]
        return self.scheduler.random.choice(connections) if connections else None
