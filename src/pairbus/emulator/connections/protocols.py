"""Detection of the protocol of a connection: AMQP or HTTP by its first byte, or a WebSocket."""

import asyncio
from typing import Protocol

from pairbus.emulator.connections.amqp_connection import HIGH_WATER, AmqpConnection
from pairbus.emulator.connections.http_protocol import HttpProtocol, RequestHandler
from pairbus.emulator.connections.transports import OpenTransports
from pairbus.emulator.connections.unauthenticated import UnauthenticatedConnection
from pairbus.emulator.connections.websocket import (
    AcceptedUpgrade,
    UpgradedTransport,
    WebSocketProtocol,
)
from pairbus.emulator.runtime import NamespaceRuntime

__all__ = ["DetectedProtocol", "ProtocolDetection", "RequestHandler"]


class DetectedProtocol(Protocol):
    """A connection whose protocol is known."""

    def receive(self, data: bytes) -> None: ...

    def resume(self) -> None:
        """The client has read its output: read from it again."""

    def tick(self) -> None:
        """Let time pass: end what has timed out."""

    def refuse(self, reason: str) -> None:
        """Close the connection with an error, because the client showed no token in time."""

    def lost(self, reason: str) -> None: ...


class ProtocolDetection(asyncio.Protocol):
    """A connection, after the TLS handshake if it has TLS. The first byte tells AMQP from HTTP."""

    def __init__(
        self,
        runtime: NamespaceRuntime,
        transports: OpenTransports,
        connections: set[DetectedProtocol],
        admin: RequestHandler,
        unauthenticated: UnauthenticatedConnection,
    ) -> None:
        self._runtime = runtime
        self._transports = transports
        self._connections = connections
        self._admin = admin
        self._unauthenticated = unauthenticated
        self._transport: asyncio.Transport | None = None
        self._protocol: DetectedProtocol | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER)
        self._transports.add(transport)
        self._unauthenticated.abort = transport.abort
        if self._has_failed:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._has_failed:
            return
        if self._protocol is None:
            assert self._transport is not None
            is_amqp = data.startswith(b"A")
            if is_amqp and self._runtime.faults.fire(("refuse-connections",)):
                self._transport.abort()
                return
            self._use(self._create_protocol(is_amqp, self._transport))
        assert self._protocol is not None
        self._protocol.receive(data)

    def _use(self, protocol: DetectedProtocol) -> None:
        if self._protocol is not None:
            self._connections.discard(self._protocol)
        self._protocol = protocol
        self._connections.add(protocol)
        self._unauthenticated.close = protocol.refuse

    def _create_protocol(self, is_amqp: bool, transport: asyncio.Transport) -> DetectedProtocol:
        loop, on_token = asyncio.get_running_loop(), self._unauthenticated.remove
        if is_amqp:
            return AmqpConnection(self._runtime, transport, loop, on_token)
        return HttpProtocol(
            self._runtime, transport, self._admin, self._open_websocket, loop, on_token
        )

    def _open_websocket(self, upgrade: AcceptedUpgrade, data: bytes) -> None:
        """Speak AMQP over a WebSocket from now on. `data` arrived after the request."""
        assert self._transport is not None
        self._transport.write(upgrade.response)
        loop = asyncio.get_running_loop()
        transport = UpgradedTransport(self._transport, upgrade.stream, loop)
        amqp = AmqpConnection(self._runtime, transport, loop, self._unauthenticated.remove)
        protocol = WebSocketProtocol(transport, upgrade.stream, amqp)
        self._use(protocol)
        protocol.receive(data)

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
        self._unauthenticated.remove()
        protocol = self._protocol
        if protocol is not None:
            self._connections.discard(protocol)
        if protocol is not None and not self._has_failed:
            protocol.lost("the client closed the connection" if exc is None else str(exc))

    @property
    def _has_failed(self) -> bool:
        return self._runtime.store.failure is not None
