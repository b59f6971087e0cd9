"""The sockets of namespaces: one port each, for AMQP, AMQP in TLS, and HTTP with and without TLS.

What a client speaks is told by its first bytes: a TLS hello, `AMQP`, or the name of an HTTP method.
Everything runs in one event loop. Connections bring bytes; when all that are ready have been read,
the namespace has its turn, with one commit, and what is to be written is written.

When the store fails, everybody is cut off at once, with nothing said of what was not committed, and
nothing is served any more.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable

from pairbus.emulator.connections.amqp_connection import HIGH_WATER, AmqpConnection
from pairbus.emulator.connections.http import HttpConnection, HttpRequest, HttpResponse
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.emulator.storage.store import StoreFailed

logger = logging.getLogger(__name__)

TICK_S = 0.05
FIRST_BYTES_S = 30.0
"""How long a client may take until it says what it speaks."""
TLS_HANDSHAKE_S = 30.0
CLOSE_S = 5.0
_TLS_HELLO = 0x16

RequestHandler = Callable[[HttpRequest, str], HttpResponse]
"""Answers a request that came over `http` or `https`."""


class Listener:
    """One namespace on one port."""

    def __init__(
        self,
        core: NamespaceRuntime,
        listening: socket.socket,
        tls: ssl.SSLContext | None,
        admin: RequestHandler,
        *,
        tls_only: bool = False,
        on_failure: Callable[[], None],
    ) -> None:
        """`on_failure` is called when the store has failed: it is time to stop then."""
        self.core = core
        self._tls_only = tls_only
        self.admin = admin
        self._socket = listening
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._transports: set[asyncio.Transport] = set()
        self._all_closed = asyncio.Event()
        self._peers: set[AmqpConnection] = set()
        self._touched: dict[AmqpConnection, None] = {}
        self._turn_due = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticker: asyncio.TimerHandle | None = None
        core.wake = self._wake
        self._on_failure = on_failure
        core.store.on_failure = self._cut_off

    # Lifecycle.

    def start(self) -> None:
        self._socket.setblocking(False)
        self._spawn(self._accept())
        self._tick()

    async def stop(self) -> None:
        """Stop accepting, hang up, commit. Does not raise if that fails: `core.store` has it."""
        if self._ticker is not None:
            self._ticker.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._socket.close()
        for transport in list(self._transports):
            transport.abort()
        if self._transports:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), CLOSE_S)
        # What ended with the connections, such as a receive that waited, is on record too.
        self._turn()
        self._turn_due = True
        with contextlib.suppress(StoreFailed):
            self.core.store.close()

    @property
    def failed(self) -> bool:
        return self.core.store.failure is not None

    def _cut_off(self) -> None:
        """The store has failed: whatever is written from now on goes nowhere."""
        logger.error(
            "The namespace %s stops: %s. What it has confirmed is on disk. Mend the cause (space,"
            " rights, hardware) and start it again.",
            self.core.name,
            self.core.store.failure,
        )
        for transport in self._transports:
            transport.abort()
        self._on_failure()

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(self._socket)
            except OSError as exc:
                logger.warning("a connection could not be accepted: %s", exc)
                await asyncio.sleep(0.1)
                continue
            refused = self.core.faults and self.core.faults.fire(("refuse-connections",))
            if refused or self.failed:
                accepted.close()
                continue
            self._spawn(self._welcome(accepted))

    async def _welcome(self, accepted: socket.socket) -> None:
        """Find out whether a client speaks TLS, without taking its bytes away."""
        accepted.setblocking(False)
        with contextlib.suppress(OSError):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            async with asyncio.timeout(FIRST_BYTES_S):
                first = await self._peek(accepted)
            if not first:
                accepted.close()
                return
            secure = first[0] == _TLS_HELLO
            if (secure and self._tls is None) or (not secure and self._tls_only):
                logger.warning("a client was hung up on: TLS is %s", "off" if secure else "needed")
                accepted.close()
                return
            await self._loop.connect_accepted_socket(
                lambda: ProtocolDetection(self),
                accepted,
                ssl=self._tls if secure else None,
                ssl_handshake_timeout=TLS_HANDSHAKE_S if secure else None,
            )
        except (TimeoutError, OSError, ssl.SSLError) as exc:
            logger.info("a client did not get through the door: %s", exc)
            accepted.close()
        except asyncio.CancelledError:  # the namespace stops
            accepted.close()
            raise

    async def _peek(self, accepted: socket.socket) -> bytes:
        readable = asyncio.Event()
        self._loop.add_reader(accepted, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(accepted)
        return accepted.recv(1, socket.MSG_PEEK)

    # Turns.

    def _wake(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            # Behind all sockets that are ready now: their messages share one commit.
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        try:
            self.core.turn()
        except StoreFailed:
            return
        touched, self._touched = self._touched, {}
        for peer in touched:
            peer.flush()

    def touched(self, peer: AmqpConnection) -> None:
        self._touched[peer] = None
        self._wake()

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        with contextlib.suppress(StoreFailed):
            self.core.tick()
            for peer in list(self._peers):
                peer.tick_if_due()

    # Connections.

    def opened(self, transport: asyncio.Transport) -> None:
        self._transports.add(transport)
        self._all_closed.clear()
        if self.failed:
            transport.abort()

    def closed(self, transport: asyncio.Transport) -> None:
        self._transports.discard(transport)
        if not self._transports:
            self._all_closed.set()

    def add_peer(self, peer: AmqpConnection) -> None:
        self._peers.add(peer)

    def remove_peer(self, peer: AmqpConnection) -> None:
        self._peers.discard(peer)
        self._touched.pop(peer, None)


class ProtocolDetection(asyncio.Protocol):
    """A connection whose first bytes are still to come; then what they ask for."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._room: AmqpProtocol | HttpProtocol | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER)
        self._listener.opened(transport)

    def data_received(self, data: bytes) -> None:
        if self._listener.failed:
            return
        if self._room is None:
            assert self._transport is not None
            room = AmqpProtocol if data[:1] == b"A" else HttpProtocol
            self._room = room(self._listener, self._transport)
        self._room.receive(data)

    def pause_writing(self) -> None:
        """The client does not read its answers: no more questions until it does."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._room is not None:
            self._room.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._listener.closed(self._transport)
        if self._room is not None and not self._listener.failed:
            self._room.lost("the client hung up" if exc is None else str(exc))


class AmqpProtocol:
    """A connection that speaks AMQP."""

    def __init__(self, listener: Listener, transport: asyncio.Transport) -> None:
        self._deaf = False
        loop = asyncio.get_running_loop()
        self._listener = listener
        self._transport = transport
        self._peer = AmqpConnection(
            listener.core,
            now=loop.time,
            send=transport.write,
            pending=transport.get_write_buffer_size,
            touched=listener.touched,
            hang_up=transport.close,
            cut=transport.abort,
            stop_reading=self._stop_reading,
            later=loop.call_later,
        )
        listener.add_peer(self._peer)

    def receive(self, data: bytes) -> None:
        self._peer.receive(data)

    def _stop_reading(self) -> None:
        self._deaf = True
        self._transport.pause_reading()

    def resume(self) -> None:
        """The client reads again."""
        if not self._deaf:
            self._transport.resume_reading()
        self._peer.on_writable()

    def lost(self, reason: str) -> None:
        self._peer.lost(reason)
        self._listener.remove_peer(self._peer)


class HttpProtocol:
    """A connection that speaks HTTP."""

    def __init__(self, listener: Listener, transport: asyncio.Transport) -> None:
        self._listener = listener
        self._transport = transport
        self._http = HttpConnection()
        self._scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"

    def receive(self, data: bytes) -> None:
        request = self._http.receive(data)
        while request is not None:
            try:
                response = self._answer(request)
                # What was changed is on disk before anybody hears of it.
                self._listener.core.turn()
            except StoreFailed:
                return
            request = self._http.respond(response)
        self._transport.write(self._http.output())
        if self._http.closing:
            self._transport.close()

    def _answer(self, request: HttpRequest) -> HttpResponse:
        try:
            return self._listener.admin(request, self._scheme)
        except StoreFailed:
            raise
        except Exception:  # a fault of ours, but an answer all the same
            logger.exception("%s %s failed", request.method, request.path[:200])
            return HttpResponse(status=500)

    def resume(self) -> None:
        """The client reads again."""
        self._transport.resume_reading()

    def lost(self, reason: str) -> None:
        """Nothing is left to do."""
