"""The port of a namespace: AMQP, AMQP over TLS, and HTTP with and without TLS on one socket.

The protocol of a connection is detected from its first byte: a TLS hello, `A` for AMQP, or the name
of an HTTP method. Everything runs in one event loop.
"""

import asyncio
import contextlib
import logging
import socket
import ssl

from pairbus.emulator.connections.protocols import (
    DetectedProtocol,
    ProtocolDetection,
    RequestHandler,
)
from pairbus.emulator.connections.transports import CLOSE_TIMEOUT_S, OpenTransports
from pairbus.emulator.connections.unauthenticated import (
    UnauthenticatedConnection,
    UnauthenticatedConnections,
)
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.emulator.storage.database import StoreFailed

logger = logging.getLogger(__name__)

TICK_S = 0.05
FIRST_BYTE_TIMEOUT_S = 30.0
TLS_HANDSHAKE_TIMEOUT_S = 30.0
_TLS_HELLO = 0x16


class Listener:
    """Accepts the connections of one namespace, and lets its time pass."""

    def __init__(
        self,
        runtime: NamespaceRuntime,
        listening: socket.socket,
        transports: OpenTransports,
        tls: ssl.SSLContext,
        admin: RequestHandler,
        *,
        tls_only: bool = False,
    ) -> None:
        self._runtime = runtime
        self._socket = listening
        self._transports = transports
        self._tls = tls
        self._admin = admin
        self._tls_only = tls_only
        self._loop = asyncio.get_running_loop()
        self._connections: set[DetectedProtocol] = set()
        self._unauthenticated = UnauthenticatedConnections()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticker: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._socket.setblocking(False)
        self._spawn(self._accept())
        self._tick()

    async def stop(self) -> None:
        """Stop accepting connections, and abort those that are open."""
        if self._ticker is not None:
            self._ticker.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._socket.close()
        self._transports.abort()
        await self._transports.wait_closed(CLOSE_TIMEOUT_S)

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        with contextlib.suppress(StoreFailed):
            self._runtime.tick()
            for connection in list(self._connections):
                connection.tick()
            self._unauthenticated.tick(self._loop.time())

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(self._socket)
            except OSError as exc:
                logger.warning("A connection could not be accepted: %s", exc)
                await asyncio.sleep(0.1)
                continue
            if self._runtime.store.failure is not None:
                accepted.close()
                continue
            self._spawn(self._open(accepted))

    async def _open(self, accepted: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        unauthenticated = self._unauthenticated.add(self._loop.time(), task.cancel)
        try:
            opened = await self._hand_over(accepted, unauthenticated)
        except (TimeoutError, OSError, ssl.SSLError) as exc:
            logger.info("Connection failed during protocol detection or the TLS handshake: %s", exc)
            opened = False
        except asyncio.CancelledError:  # the namespace stops, or there are too many connections
            unauthenticated.remove()
            accepted.close()
            raise
        if not opened:
            unauthenticated.remove()
            accepted.close()

    async def _hand_over(
        self, accepted: socket.socket, unauthenticated: UnauthenticatedConnection
    ) -> bool:
        """Detect TLS without consuming the first byte, then hand over to ProtocolDetection.

        Return False if the connection is to be closed.
        """
        accepted.setblocking(False)
        with contextlib.suppress(OSError):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(FIRST_BYTE_TIMEOUT_S):
            first = await self._peek(accepted)
        if not first:
            return False
        secure = first[0] == _TLS_HELLO
        if not secure and self._tls_only:
            logger.warning("A connection without TLS was closed: this address requires TLS.")
            return False
        await self._loop.connect_accepted_socket(
            lambda: ProtocolDetection(
                self._runtime, self._transports, self._connections, self._admin, unauthenticated
            ),
            accepted,
            ssl=self._tls if secure else None,
            ssl_handshake_timeout=TLS_HANDSHAKE_TIMEOUT_S if secure else None,
            ssl_shutdown_timeout=CLOSE_TIMEOUT_S if secure else None,
        )
        return True

    async def _peek(self, accepted: socket.socket) -> bytes:
        readable = asyncio.Event()
        self._loop.add_reader(accepted, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(accepted)
        return accepted.recv(1, socket.MSG_PEEK)
