"""The protocols of a connection: AMQP or HTTP, detected from the first byte, or a WebSocket."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from pairbus.emulator.connections.amqp_connection import HIGH_WATER, AmqpConnection
from pairbus.emulator.connections.http import HttpConnection, HttpRequest, HttpResponse
from pairbus.emulator.connections.transports import OpenTransports
from pairbus.emulator.connections.websocket import (
    AcceptedUpgrade,
    UpgradedTransport,
    WebSocketProtocol,
    accept_upgrade,
    is_websocket_request,
)
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.emulator.storage.database import StoreFailed

logger = logging.getLogger(__name__)

RequestHandler = Callable[[HttpRequest, str], HttpResponse]
"""Responds to a request that was received over `http` or `https`."""


class DetectedProtocol(Protocol):
    """A connection whose protocol is known."""

    def receive(self, data: bytes) -> None: ...

    def resume(self) -> None:
        """The client has read its output: read from it again."""

    def lost(self, reason: str) -> None: ...


class ProtocolDetection(asyncio.Protocol):
    """A connection, after the TLS handshake if it has TLS. The first byte tells AMQP from HTTP."""

    def __init__(
        self,
        runtime: NamespaceRuntime,
        transports: OpenTransports,
        amqp_connections: set[AmqpConnection],
        admin: RequestHandler,
    ) -> None:
        self._runtime = runtime
        self._transports = transports
        self._amqp_connections = amqp_connections
        self._admin = admin
        self._transport: asyncio.Transport | None = None
        self._protocol: DetectedProtocol | None = None
        self._amqp: AmqpConnection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER)
        self._transports.add(transport)
        if self._has_failed:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._has_failed:
            return
        if self._protocol is None:
            assert self._transport is not None
            self._protocol = self._detect(data, self._transport)
        self._protocol.receive(data)

    def _detect(self, data: bytes, transport: asyncio.Transport) -> DetectedProtocol:
        if not data.startswith(b"A"):
            return HttpProtocol(self._runtime, transport, self._admin, self._open_websocket)
        return self._open_amqp(transport)

    def _open_amqp(self, transport: asyncio.Transport) -> AmqpConnection:
        self._amqp = AmqpConnection(self._runtime, transport, asyncio.get_running_loop())
        self._amqp_connections.add(self._amqp)
        return self._amqp

    def _open_websocket(self, upgrade: AcceptedUpgrade, data: bytes) -> None:
        """Speak AMQP over a WebSocket from now on. `data` arrived after the request."""
        assert self._transport is not None
        self._transport.write(upgrade.response)
        loop = asyncio.get_running_loop()
        transport = UpgradedTransport(self._transport, upgrade.stream, loop)
        amqp = self._open_amqp(transport)
        self._protocol = WebSocketProtocol(transport, upgrade.stream, amqp)
        self._protocol.receive(data)

    def pause_writing(self) -> None:
        """Read no further requests from a client that does not read its replies."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transports.remove(self._transport)
        if self._amqp is not None:
            self._amqp_connections.discard(self._amqp)
        if self._protocol is not None and not self._has_failed:
            self._protocol.lost("the client closed the connection" if exc is None else str(exc))

    @property
    def _has_failed(self) -> bool:
        return self._runtime.store.failure is not None


class HttpProtocol:
    """A connection on which a client speaks HTTP."""

    def __init__(
        self,
        runtime: NamespaceRuntime,
        transport: asyncio.Transport,
        admin: RequestHandler,
        open_websocket: Callable[[AcceptedUpgrade, bytes], None],
    ) -> None:
        self._runtime = runtime
        self._transport = transport
        self._admin = admin
        self._open_websocket = open_websocket
        self._http = HttpConnection()
        self._scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"

    def receive(self, data: bytes) -> None:
        request = self._http.receive(data)
        while request is not None:
            upgrade = accept_upgrade(request) if is_websocket_request(request) else None
            if isinstance(upgrade, AcceptedUpgrade):
                self._transport.write(self._http.output())  # responses to earlier requests
                self._open_websocket(upgrade, self._http.trailing_data())
                return
            try:
                response = self._respond(request) if upgrade is None else upgrade
                self._runtime.turn()  # changes are on disk before the client knows of them
            except StoreFailed:
                return
            request = self._http.respond(response)
        self._transport.write(self._http.output())
        if self._http.closing:
            self._transport.close()

    def _respond(self, request: HttpRequest) -> HttpResponse:
        try:
            return self._admin(request, self._scheme)
        except StoreFailed:
            raise
        except Exception:  # a defect of the emulator costs this request, and no other
            logger.exception("%s %s failed.", request.method, request.path[:200])
            return HttpResponse(status=500)

    def resume(self) -> None:
        self._transport.resume_reading()

    def lost(self, reason: str) -> None:
        pass
