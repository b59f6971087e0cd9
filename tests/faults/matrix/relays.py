"""TCP relays to the namespaces that can simulate a network partition.

A cut applies to some connections, or to all. Open connections stay open, but no data passes; new
connections are accepted and never answered. A cut may drop only what the namespace sends: then
requests arrive, and their answers are lost. When the cut is healed, its connections are reset, and
new ones work.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterable

from tests.faults.silent_relays import Servers

Filter = Callable[["Connection"], bool]


class Connection:
    """One connection through a relay."""

    def __init__(self, relay: "Relay", writer: asyncio.StreamWriter) -> None:
        self.relay = relay
        self.port: int = writer.get_extra_info("peername")[1]
        """The port of the client."""
        self.cuts: set[Cut] = set()
        self.writers = [writer]
        self.was_reset = asyncio.Event()

    @property
    def silent(self) -> bool:
        """True if the client receives nothing."""
        return bool(self.cuts)

    @property
    def unheard(self) -> bool:
        """True if the namespace receives nothing."""
        return any(not cut.answers_only for cut in self.cuts)

    def drop(self, data: bytes) -> None:
        for cut in self.cuts:
            cut.dropped += len(data)

    def reset(self) -> None:
        """Reset the connection with RST, like a host without this connection."""
        self.was_reset.set()
        for writer in self.writers:
            if (
                connection_socket := writer.get_extra_info("socket")
            ) is not None and connection_socket.fileno() >= 0:
                linger = struct.pack("ii", 1, 0)
                with contextlib.suppress(OSError):
                    connection_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()


class Cut:
    """A network partition of some connections, until it is healed."""

    def __init__(
        self,
        relays: "Relays",
        cut_relays: Iterable["Relay"],
        selects: Filter,
        *,
        answers_only: bool = False,
    ) -> None:
        self._relays = relays
        self.answers_only = answers_only
        self._cut_relays = tuple(cut_relays)
        self.selects = selects
        self.silenced = 0
        """The number of connections of this cut."""
        self.dropped = 0
        """The number of bytes that were dropped."""
        relays.call(self._begin())

    async def _begin(self) -> None:
        for relay in self._cut_relays:
            relay.cuts.append(self)
            for connection in relay.connections:
                self.apply(connection)

    def apply(self, connection: Connection) -> None:
        if self.selects(connection):
            connection.cuts.add(self)
            self.silenced += 1

    def heal(self) -> None:
        self._relays.call(self._end())

    async def _end(self) -> None:
        for relay in self._cut_relays:
            relay.cuts.remove(self)
            for connection in list(relay.connections):
                if self in connection.cuts:
                    connection.cuts.discard(self)
                    if not connection.silent:
                        connection.reset()


class Relay:
    """A port that forwards to another port."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        self.connections: set[Connection] = set()
        self.cuts: list[Cut] = []

    def address(self, connection_string: str) -> str:
        """Return the connection string of the target with the port of this relay."""
        return connection_string.replace(f":{self._target}", f":{self.port}")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, writer)
        self.connections.add(connection)
        for cut in self.cuts:
            cut.apply(connection)
        try:
            if connection.unheard:
                while data := await reader.read(65536):
                    connection.drop(data)
                await connection.was_reset.wait()
            else:
                target_reader, target_writer = await asyncio.open_connection(
                    "127.0.0.1", self._target
                )
                connection.writers.append(target_writer)
                await asyncio.gather(
                    self._forward(reader, target_writer, connection, lambda: connection.unheard),
                    self._forward(target_reader, writer, connection, lambda: connection.silent),
                )
        except OSError:  # the target does not accept connections
            connection.reset()
        finally:
            self.connections.discard(connection)
            for open_writer in connection.writers:
                open_writer.close()

    async def _forward(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        connection: Connection,
        drops: Callable[[], bool],
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if drops():
                    connection.drop(data)
                else:
                    sink.write(data)
                    await sink.drain()
        if connection.silent:  # the other side must not notice that this side was closed
            await connection.was_reset.wait()
        sink.close()


class Relays(Servers):
    """All relays, in one thread."""

    def to(self, port: int) -> Relay:
        relay = Relay(port)
        relay.port = self.listen(relay.serve)
        return relay
