"""Helpers of the fault tests of pairing: namespaces in separate processes, relays that become
silent, and a common interface of both flavours.
"""

import asyncio
import contextlib
import inspect
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import azure.servicebus
import azure.servicebus.aio
import trustme
from azure.servicebus import TransportType

import pairbus
import pairbus.aio
from pairbus import SendAvailabilityOptions
from pairbus.amqp.client import Client, ClientOptions
from pairbus.amqp.client.management import Management
from pairbus.amqp.sections import Message
from pairbus.emulator import EmulatorProcess

DEADLINE_S = 60.0
"""The longest time to wait for anything."""
QUICK: dict[str, Any] = {"retry_total": 0, "retry_backoff_factor": 0.02, "retry_backoff_max": 1}
"""Options of an SDK client with few retries."""
FLAVOURS = ("sync", "aio")
_CLIENTS = {
    "sync": azure.servicebus.ServiceBusClient,
    "aio": azure.servicebus.aio.ServiceBusClient,
}
_PAIRING = {"sync": pairbus.pair_namespace, "aio": pairbus.aio.pair_namespace}


def wait_until(done: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.02)


# Namespaces.


class Namespace(EmulatorProcess):
    """A namespace in an emulator process that counts its kills."""

    def __init__(self, name: str, folder: Path, *queues: str) -> None:
        super().__init__(name, folder=folder, queues=queues)
        self.kills = 0
        self.start()

    def kill(self) -> None:
        super().kill()
        self.kills += 1

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Pause the process, and resume it at the end."""
        with self.paused():
            yield
            assert self.is_paused

    def ids(self, path: str) -> list[str]:
        """Return the ids of all messages in a queue, scheduled ones included, by a peek."""
        found: list[str] = []
        options = ClientOptions.from_connection_string(
            self.connection_string, operation_timeout_s=DEADLINE_S
        )
        with Client(options) as client, Management(client, path) as management:
            number = 1
            while some := [Message.parse(one) for one in management.peek(number, 200)]:
                found += [str(one.read_properties().message_id) for one in some]
                number = some[-1].read_message_annotations()["x-opt-sequence-number"] + 1
        return found


def backlog_path(name: str, index: int) -> str:
    return f"{name}/x-servicebus-transfer/{index}"


# Relays.


@dataclass(frozen=True)
class Point:
    """The point at which a host becomes silent: before the first `what` that it sends after it
    attached so many links. The SDK attaches two links for tokens, then that of the sender, then two
    for management.
    """

    what: str
    attached: int = 0
    half: bool = False
    """The first half of it is still sent."""
    raw: int | None = None
    """The number of bytes after which the host becomes silent."""


_NAMES = {0x10: "open", 0x11: "begin", 0x12: "attach", 0x13: "flow", 0x14: "transfer"}
_NAMES |= {0x15: "disposition", 0x16: "detach", 0x17: "end", 0x18: "close"}
_SASL = 1


class _Talk:
    """The data that the host has sent over one connection."""

    def __init__(self) -> None:
        self.amqp = False
        self.silent = False
        self.said: Counter[str] = Counter()
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
    """A TCP relay to a namespace that can become silent: sockets stay open, but no data comes."""

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

    def fall_silent(self, point: Point, *, times: int | None = None) -> None:
        """Become silent at a point, on every new connection or on so many."""
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
                there, host = await asyncio.open_connection("127.0.0.1", self._target.port)
                talk = _Talk()
                await asyncio.gather(
                    self._ask(reader, host, talk), self._answer(there, writer, talk)
                )
        except OSError:
            pass
        finally:
            self.open -= 1
            for one in (writer, host):
                if one is not None:
                    one.close()

    async def _ask(
        self, reader: asyncio.StreamReader, host: asyncio.StreamWriter, talk: _Talk
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                talk.amqp = talk.amqp or data.startswith(b"AMQP")
                if not talk.silent:
                    host.write(data)
        host.close()

    async def _answer(
        self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, talk: _Talk
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await there.read(65536):
                if not talk.silent:
                    writer.write(self._through(data, talk))
        if not talk.silent:
            writer.close()

    def _through(self, data: bytes, talk: _Talk) -> bytes:
        """Forward the data of the host to the client."""
        if self.point is not None and self.point.raw is not None:
            data = data[: self.point.raw - talk.bytes]
            talk.bytes += len(data)
            if talk.bytes == self.point.raw:
                self._silence(talk)
            return data
        if not talk.amqp:
            if self._matches("http", talk):
                self._silence(talk)
            return b"" if talk.silent else data
        through = b""
        for name, unit in talk.units(data):
            if self._matches(name, talk):
                self._silence(talk)
                assert self.point is not None
                return through + (unit[: len(unit) // 2] if self.point.half else b"")
            talk.said[name] += 1
            through += unit
        return through

    def _matches(self, name: str, talk: _Talk) -> bool:
        point = self.point
        return (
            point is not None
            and self._times != 0
            and name == point.what
            and talk.said["attach"] >= point.attached
        )

    def _silence(self, talk: _Talk) -> None:
        talk.silent = True
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


@dataclass(frozen=True)
class Elsewhere:
    """A port at which no namespace listens."""

    like: Namespace
    port: int

    @property
    def ca_file(self) -> str:
        return self.like.ca_file

    @property
    def connection_string(self) -> str:
        return self.like.connection_string.replace(f":{self.like.port}", f":{self.port}")


@contextlib.contextmanager
def dead_port() -> Iterator[int]:
    """Yield a port that refuses connections."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """Yield a port whose connections are never accepted, because its backlog is full."""
    with socket.socket() as listener, contextlib.ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(4):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        with socket.socket() as probe:
            probe.settimeout(0.5)
            try:
                probe.connect(("127.0.0.1", port))
            except TimeoutError:
                pass
            else:
                raise AssertionError("the backlog is not full")
        yield port


Host = Namespace | Relay | Elsewhere

# Both flavours of a pairing.


async def come_back(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the result of a call of either flavour, which must return during the silence."""
    async with asyncio.timeout(DEADLINE_S):
        if inspect.iscoroutinefunction(call):
            return await call(*args, **options)
        return await asyncio.wrap_future(in_thread(call, *args, **options))


def in_thread(call: Callable[..., Any], *args: Any, **options: Any) -> "Future[Any]":
    """Run a call in a new daemon thread: a call that never ends must not block others."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(call(*args, **options))
        except BaseException as exc:  # noqa: BLE001  raised to the waiting task
            future.set_exception(exc)

    threading.Thread(target=work, daemon=True).start()
    return future


async def side_by_side(cases: dict[str, Coroutine[Any, Any, None]]) -> None:
    """Run all cases concurrently. Errors name their case."""
    ends = await asyncio.gather(*cases.values(), return_exceptions=True)
    errors = [(name, end) for name, end in zip(cases, ends, strict=True) if end is not None]
    for name, error in errors:
        error.add_note(f"in the case: {name}")
    if errors:
        raise BaseExceptionGroup("some cases failed", [error for _, error in errors])


async def all_tasks_end() -> None:
    """Check that all tasks end."""
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        _, late = await asyncio.wait(others, timeout=DEADLINE_S)
        assert not late


def connect(flavour: str, to: Host, *, tls: bool = False, **options: Any) -> Any:
    """Return a client of the SDK."""
    given = QUICK | options
    text = to.connection_string
    if tls:
        text = text.replace(";UseDevelopmentEmulator=true", "")
        given |= {
            "transport_type": TransportType.Amqp,
            "custom_endpoint_address": f"sb://localhost:{to.port}",
            "connection_verify": to.ca_file,
        }
    return _CLIENTS[flavour].from_connection_string(text, **given)


def options_of(secondary: Any, name: str, **options: Any) -> SendAvailabilityOptions:
    """Return options of a pairing with immediate failover, short timeouts and no pings."""
    given: dict[str, Any] = {
        "primary_name": name,
        "backlog_queue_count": 2,
        "failover_interval": timedelta(),
        "ping_primary_interval": timedelta(minutes=30),
        "operation_timeout": timedelta(seconds=6),
        "check_duplicate_detection": False,
    }
    return SendAvailabilityOptions(secondary=secondary, **(given | options))


async def pair(flavour: str, primary: Any, options: SendAvailabilityOptions) -> Any:
    return await come_back(_PAIRING[flavour], primary, options)


async def close_all(*clients: Any) -> None:
    for client in clients:
        await come_back(client.close)


async def enter(sender: Any) -> None:
    await come_back(sender.__aenter__ if hasattr(sender, "__aenter__") else sender.__enter__)


@contextlib.asynccontextmanager
async def paired(
    flavour: str,
    primary: Host,
    secondary: Host,
    name: str,
    *,
    tls: bool = False,
    sdk: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[Any]:
    """Yield a paired client, whose `close` must return too."""
    given = {} if sdk is None else sdk
    client = connect(flavour, primary, tls=tls, **given)
    other = connect(flavour, secondary, tls=tls, **given)
    bus = await pair(flavour, client, options_of(other, name, **options))
    try:
        yield bus
    finally:
        await come_back(bus.close)
        await close_all(client, other)


def threads_of_ours() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("pairbus")]
