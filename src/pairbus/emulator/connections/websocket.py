"""AMQP over WebSockets: the upgrade of an HTTP connection, and the AMQP connection inside it."""

import asyncio
from dataclasses import dataclass

from websockets.datastructures import Headers
from websockets.http11 import Request
from websockets.protocol import Protocol, Side
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from pairbus.amqp.websocket import MAX_SIZE, WebSocketStream, frame_logger
from pairbus.emulator.connections.amqp_connection import AmqpConnection
from pairbus.emulator.connections.http import HttpRequest, HttpResponse
from pairbus.emulator.connections.transports import CLOSE_TIMEOUT_S
from pairbus.servicebus.websockets import (
    SERVICE_SUBPROTOCOL,
    STANDARD_SUBPROTOCOL,
    WEBSOCKET_PATH,
)

SUBPROTOCOLS = (Subprotocol(SERVICE_SUBPROTOCOL), Subprotocol(STANDARD_SUBPROTOCOL))
SWITCHING_PROTOCOLS = 101


@dataclass(frozen=True, slots=True)
class AcceptedUpgrade:
    """The stream of a WebSocket, and the response to write before its first output."""

    response: bytes
    stream: WebSocketStream


def is_websocket_request(request: HttpRequest) -> bool:
    """Return True if a request asks for AMQP over a WebSocket."""
    upgrade = request.header("Upgrade")
    return upgrade is not None and request.path.lower() == WEBSOCKET_PATH.strip("/")


def accept_upgrade(request: HttpRequest) -> AcceptedUpgrade | HttpResponse:
    """Return the upgraded stream, or the response to a request that is not valid."""
    handshake = ServerProtocol(subprotocols=SUBPROTOCOLS, logger=frame_logger)
    response = handshake.accept(Request(request.target, Headers(request.headers), request.method))
    if response.status_code == SWITCHING_PROTOCOLS:
        protocol = Protocol(Side.SERVER, max_size=MAX_SIZE, logger=frame_logger)
        return AcceptedUpgrade(response.serialize(), WebSocketStream(protocol))
    # The length is added when the response is written, and the connection stays open.
    left_out = ("content-length", "content-type", "connection", "date")
    return HttpResponse(
        status=response.status_code,
        body=bytes(response.body),
        content_type="text/plain",
        headers=tuple(
            (name, value)
            for name, value in response.headers.raw_items()
            if name.lower() not in left_out
        ),
    )


class UpgradedTransport(asyncio.Transport):
    """The transport that an AMQP connection writes to: puts its bytes in messages of the stream."""

    def __init__(
        self,
        inner: asyncio.Transport,
        stream: WebSocketStream,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__()
        self._inner = inner
        self._stream = stream
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._write(self._stream.send(bytes(data)))

    def flush(self) -> None:
        """Write answers of the stream, and close the connection if the stream is closed."""
        self._write(self._stream.output())
        if self._stream.closed and not self._ended:
            self._ended = True
            self._close_within_timeout()
            if self._inner.can_write_eof():
                # The client closes. If the server did while input arrives, the client would get a
                # reset instead of the close frame.
                self._inner.write_eof()
            else:
                self._inner.close()

    def close(self) -> None:
        """Send a close frame. The connection is closed when the client answers, or at the latest
        after a timeout."""
        self._write(self._stream.close())
        self._close_within_timeout()

    def stop_timer(self) -> None:
        """The connection was lost."""
        if self._timer is not None:
            self._timer.cancel()

    def _write(self, data: bytes) -> None:
        if data:
            self._inner.write(data)

    def _close_within_timeout(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(CLOSE_TIMEOUT_S, self._inner.abort)

    def is_closing(self) -> bool:
        return self._timer is not None or self._inner.is_closing()

    def abort(self) -> None:
        self._inner.abort()

    def get_write_buffer_size(self) -> int:
        return self._inner.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()


class WebSocketProtocol:
    """A connection on which a client speaks AMQP over a WebSocket."""

    def __init__(
        self, transport: UpgradedTransport, stream: WebSocketStream, amqp: AmqpConnection
    ) -> None:
        self._transport = transport
        self._stream = stream
        self._amqp = amqp

    def receive(self, data: bytes) -> None:
        was_closing = self._transport.is_closing()
        payload = self._stream.receive(data)
        if payload and not was_closing:
            self._amqp.receive(payload)
        self._transport.flush()

    def resume(self) -> None:
        self._amqp.resume()

    def tick(self) -> None:
        self._amqp.tick()

    def refuse(self, reason: str) -> None:
        self._amqp.refuse(reason)

    def lost(self, reason: str) -> None:
        self._transport.stop_timer()
        self._amqp.lost(reason)
