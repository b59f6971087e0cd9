"""The transport of `pairbus.amqp.client` over the simulated network."""

from pairbus.amqp.client.options import ClientOptions
from pairbus.errors import ConnectionLost, OperationTimeout
from tests.simulation.network import Connection, End, Network
from tests.simulation.scheduler import CLOCK_STEP_S, Process, ProcessKilled, Scheduler, Task


class SimulatedTransport:
    """One end of a connection, with the methods of `pairbus.amqp.client.transport.Transport`."""

    def __init__(self, connection: Connection, end: End) -> None:
        self._connection = connection
        self._end = end
        self._process: Process = end.process
        self._arrived = bytearray()
        self._lost: str | None = None
        self._waiting: Task | None = None
        end.user = self

    # Called by the network.

    def on_bytes(self, data: bytes) -> None:
        self._arrived += data
        self._wake()

    def on_lost(self, reason: str) -> None:
        self._lost = reason
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None:
            self._waiting.wake()
            self._waiting = None

    # Called by the client.

    def exchange(self, data: bytes, deadline: float) -> bytes:
        process = self._process
        if not process.alive:
            raise ProcessKilled
        if data:
            self._write(data)
        while not self._arrived:
            if self._lost is not None:
                raise ConnectionLost(f"the connection failed: {self._lost}")
            left = deadline - process.monotonic()
            if left <= 0:
                process.scheduler.now += CLOCK_STEP_S  # a loop that polls comes to its end
                return b""
            task = process.scheduler.current_task()
            self._waiting = task
            task.wait(left)
        arrived = bytes(self._arrived)
        self._arrived.clear()
        return arrived

    def _write(self, data: bytes) -> None:
        if self._lost is not None and not self._arrived:
            raise ConnectionLost(f"the connection failed: {self._lost}")
        self._connection.send(self._end, data)

    def flush(self, data: bytes, deadline: float) -> None:
        if data and self._lost is None and self._process.alive:
            self._connection.send(self._end, data)

    def close(self) -> None:
        if self._process.alive:
            self._connection.close(self._end)


def transport_factory(network: Network) -> object:
    """Return a function in the place of `pairbus.amqp.client.connect.open_transport`."""
    scheduler: Scheduler = network.scheduler

    def open_transport(
        options: ClientOptions, tls: object, deadline: float, clock: object
    ) -> SimulatedTransport:
        process = scheduler.process
        host = options.address[0]
        left = deadline - process.monotonic()
        if left <= 0:
            raise OperationTimeout(f"the timeout expired before connecting to {host}")
        try:
            return SimulatedTransport(*network.connect(process, host, left))
        except TimeoutError as exc:
            raise OperationTimeout(f"{host} did not answer in time") from exc
        except OSError as exc:
            raise ConnectionLost(f"cannot connect to {host}: {exc}") from exc

    return open_transport
