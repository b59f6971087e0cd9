"""Ways to the namespaces that can be cut: what is connected stays so, and nothing comes through.

A cut takes some connections, or all: those that are open fall silent both ways, new ones are
accepted and never answered. When it is healed, the silent ones are reset, and new ones work.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterable

from tests.faults.pairing_kit import Servers

Selects = Callable[["Connection"], bool]


class Connection:
    """One connection through a wire."""

    def __init__(self, wire: "Wire", writer: asyncio.StreamWriter) -> None:
        self.wire = wire
        self.port: int = writer.get_extra_info("peername")[1]
        """The client's."""
        self.cuts: set[Cut] = set()
        self.writers = [writer]
        self.was_reset = asyncio.Event()

    @property
    def silent(self) -> bool:
        return bool(self.cuts)

    def swallow(self, data: bytes) -> None:
        for cut in self.cuts:
            cut.swallowed += len(data)

    def reset(self) -> None:
        """End it, as a host does that knows nothing of it."""
        self.was_reset.set()
        for writer in self.writers:
            if (end := writer.get_extra_info("socket")) is not None and end.fileno() >= 0:
                linger = struct.pack("ii", 1, 0)
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()


class Cut:
    """Connections that are cut off, until it is healed."""

    def __init__(self, wires: "Wires", over: Iterable["Wire"], selects: Selects) -> None:
        self._wires = wires
        self._over = tuple(over)
        self.selects = selects
        self.silenced = 0
        """On how many connections it fell silent, or was silent from the start."""
        self.swallowed = 0
        """Bytes that did not come through."""
        wires.call(self._begin())

    async def _begin(self) -> None:
        for wire in self._over:
            wire.cuts.append(self)
            for connection in wire.connections:
                self.meet(connection)

    def meet(self, connection: Connection) -> None:
        if self.selects(connection):
            connection.cuts.add(self)
            self.silenced += 1

    def heal(self) -> None:
        self._wires.call(self._end())

    async def _end(self) -> None:
        for wire in self._over:
            wire.cuts.remove(self)
            for connection in list(wire.connections):
                if self in connection.cuts:
                    connection.cuts.discard(self)
                    if not connection.silent:
                        connection.reset()


class Wire:
    """A port that leads to another."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        self.connections: set[Connection] = set()
        self.cuts: list[Cut] = []

    def address(self, connection_string: str) -> str:
        """A connection string of the target, by this way."""
        return connection_string.replace(f":{self._target}", f":{self.port}")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, writer)
        self.connections.add(connection)
        for cut in self.cuts:
            cut.meet(connection)
        try:
            if connection.silent:
                while data := await reader.read(65536):
                    connection.swallow(data)
                await connection.was_reset.wait()
            else:
                there, host = await asyncio.open_connection("127.0.0.1", self._target)
                connection.writers.append(host)
                await asyncio.gather(
                    self._pass_on(reader, host, connection),
                    self._pass_on(there, writer, connection),
                )
        except OSError:  # nobody is there
            connection.reset()
        finally:
            self.connections.discard(connection)
            for one in connection.writers:
                one.close()

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, connection: Connection
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if connection.silent:
                    connection.swallow(data)
                else:
                    sink.write(data)
                    await sink.drain()
        if connection.silent:  # the other end does not hear of this one's
            await connection.was_reset.wait()
        sink.close()


class Wires(Servers):
    """All wires, in one thread."""

    def to(self, port: int) -> Wire:
        wire = Wire(port)
        wire.port = self.listen(wire.serve)
        return wire
