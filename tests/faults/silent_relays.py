"""TCP relays to a namespace that become silent at a point of the protocol."""

import asyncio
import contextlib
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme

from tests.faults.namespace_process import DEADLINE_S, Namespace


@dataclass(frozen=True)
class Point:
    """The point at which a host becomes silent: before the first `unit` that it sends after it has
    attached `attached` links. The SDK attaches two links for tokens, then that of the sender, then
    two for management.
    """

    unit: str
    attached: int = 0
    half: bool = False
    """Send the first half of the unit before becoming silent."""
    raw: int | None = None
    """The number of bytes after which the host becomes silent."""


_NAMES = {0x10: "open", 0x11: "begin", 0x12: "attach", 0x13: "flow", 0x14: "transfer"}
_NAMES |= {0x15: "disposition", 0x16: "detach", 0x17: "end", 0x18: "close"}
_SASL = 1


class _HostOutput:
    """The data that the host has sent over one connection."""

    def __init__(self) -> None:
        self.amqp = False
        self.silent = False
        self.sent_units: Counter[str] = Counter()
        self.bytes = 0
        self._rest = b""

    def units(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        """Split the data of the host into headers and frames."""
        self._rest += data
        while len(self._rest) >= 8:
            if self._rest.startswith(b"AMQP"):
                name, size = "sasl header" if self._rest[4] == 3 else "header", 8
            else:
                size = int.from_bytes(self._rest[:4], "big")
                if len(self._rest) < size:
                    return
                name = "sasl" if self._rest[5] == _SASL else "empty"
                if name == "empty" and size > 8:
                    name = _NAMES[self._rest[self._rest[4] * 4 + 2]]
            unit, self._rest = self._rest[:size], self._rest[size:]
            yield name, unit


class Relay:
    """A TCP relay to a namespace that can become silent: sockets stay open, but no data passes."""

    def __init__(self, target: Namespace, *, tls: bool, ca_file: str) -> None:
        self._target = target
        self.tls = tls
        self.ca_file = ca_file
        self.port = 0
        self.point: Point | None = None
        self._times: int | None = None
        self._refusing = False
        self.accepted = 0
        self.open = 0
        self.silences = 0
        """The number of connections that became silent."""

    @property
    def connection_string(self) -> str:
        text = self._target.connection_string.replace(f":{self._target.port}", f":{self.port}")
        return text.replace(";UseDevelopmentEmulator=true", "") if self.tls else text

    def become_silent(self, point: Point, *, times: int | None = None) -> None:
        """Become silent at a point, on every new connection or on `times` of them."""
        self.point, self._times = point, times

    def refuse(self) -> None:
        """Close every new connection immediately."""
        self._refusing = True

    def heal(self) -> None:
        """Forward everything again, except on connections that are already silent."""
        self.point, self._refusing = None, False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.open += 1
        host = None
        try:
            if not self._refusing:
                responses, host = await asyncio.open_connection("127.0.0.1", self._target.port)
                output = _HostOutput()
                await asyncio.gather(
                    self._forward_requests(reader, host, output),
                    self._forward_responses(responses, writer, output),
                )
        except OSError:
            pass
        finally:
            self.open -= 1
            for stream in (writer, host):
                if stream is not None:
                    stream.close()

    async def _forward_requests(
        self, reader: asyncio.StreamReader, host: asyncio.StreamWriter, output: _HostOutput
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                output.amqp = output.amqp or data.startswith(b"AMQP")
                if not output.silent:
                    host.write(data)
        host.close()

    async def _forward_responses(
        self, responses: asyncio.StreamReader, writer: asyncio.StreamWriter, output: _HostOutput
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await responses.read(65536):
                if not output.silent:
                    writer.write(self._forwarded(data, output))
        if not output.silent:
            writer.close()

    def _forwarded(self, data: bytes, output: _HostOutput) -> bytes:
        """Return the part of the data of the host that the client gets."""
        if self.point is not None and self.point.raw is not None:
            data = data[: self.point.raw - output.bytes]
            output.bytes += len(data)
            if output.bytes == self.point.raw:
                self._silence(output)
            return data
        if not output.amqp:
            if self._matches("http", output):
                self._silence(output)
            return b"" if output.silent else data
        forwarded = b""
        for name, unit in output.units(data):
            if self._matches(name, output):
                self._silence(output)
                assert self.point is not None
                return forwarded + (unit[: len(unit) // 2] if self.point.half else b"")
            output.sent_units[name] += 1
            forwarded += unit
        return forwarded

    def _matches(self, name: str, output: _HostOutput) -> bool:
        point = self.point
        return (
            point is not None
            and self._times != 0
            and name == point.unit
            and output.sent_units["attach"] >= point.attached
        )

    def _silence(self, output: _HostOutput) -> None:
        output.silent = True
        self.silences += 1
        if self._times is not None:
            self._times -= 1


class Servers:
    """Servers in one thread with an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def listen(self, serve: Callable[..., Any], context: ssl.SSLContext | None = None) -> int:
        """Listen on a free port, and return it."""

        async def start() -> asyncio.Server:
            return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)

        server: asyncio.Server = self.call(start())
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        async def end() -> None:
            for server in self._servers:
                server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()


class Relays:
    """Relays in one thread."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca_file = str(folder / "relays.pem")
        authority.cert_pem.write_to_path(self.ca_file)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(self._context)
        self._servers = Servers()

    def to(self, target: Namespace, *, tls: bool = False, raw: bool = False) -> Relay:
        """Return a relay. With TLS it terminates the TLS of the client, so that it can parse
        frames; a raw relay does not."""
        relay = Relay(target, tls=tls, ca_file=target.ca_file if raw else self.ca_file)
        relay.port = self._servers.listen(relay.serve, self._context if tls and not raw else None)
        return relay

    def close(self) -> None:
        self._servers.close()
