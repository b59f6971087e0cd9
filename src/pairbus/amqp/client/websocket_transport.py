"""AMQP over WebSockets for the client: the upgrade of a connection, and reads and writes on it."""

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from pairbus.amqp.client.transport import Transport
from pairbus.amqp.websocket import MAX_SIZE, WebSocketStream, frame_logger
from pairbus.errors import ConnectionLost, OperationTimeout
from pairbus.servicebus.addresses import ascii_host
from pairbus.servicebus.proxy import status_phrase
from pairbus.servicebus.sockets import Clock
from pairbus.servicebus.websockets import SERVICE_SUBPROTOCOL, WEBSOCKET_PATH


class WebSocketTransport:
    """A connected WebSocket, with the methods of a `Transport`."""

    def __init__(self, transport: Transport, stream: WebSocketStream, clock: Clock) -> None:
        self._transport = transport
        self._stream = stream
        self._clock = clock
        self._unsent = b""  # Answers to the peer, which the next call writes.

    @classmethod
    def upgrade(
        cls,
        transport: Transport,
        host: str,
        port: int,
        *,
        tls: bool,
        server: str,
        deadline: float,
        clock: Clock,
    ) -> "WebSocketTransport":
        """Upgrade a connection. `host` and `port` are for the Host header; `server` names the
        server in errors. Raises ConnectionLost, OperationTimeout, or ConfigurationError for an
        invalid host name."""
        protocol = ClientProtocol(
            WebSocketURI(tls, ascii_host(host), port, WEBSOCKET_PATH, ""),
            subprotocols=[Subprotocol(SERVICE_SUBPROTOCOL)],
            max_size=MAX_SIZE,
            logger=frame_logger,
        )
        protocol.send_request(protocol.connect())
        output = b"".join(protocol.data_to_send())
        lost: ConnectionLost | None = None
        while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
            try:
                data = transport.exchange(output, deadline)
            except ConnectionLost as exc:
                lost = exc
                protocol.receive_eof()  # It may be the end of a response.
                break
            if not data:
                raise OperationTimeout(f"{server} did not answer the WebSocket upgrade in time")
            output = b""
            protocol.receive_data(data)
        error = protocol.handshake_exc
        if error is not None or protocol.state is State.CONNECTING:
            raise ConnectionLost(_refusal(server, error, lost)) from (error or lost)
        return cls(transport, WebSocketStream(protocol), clock)

    def exchange(self, data: bytes, deadline: float) -> bytes:
        """Write `data`, wait for data from the peer, and return it, or b"" at the deadline.

        Raises ConnectionLost if the connection ended.
        """
        stream = self._stream
        received = stream.pending()
        output = self._unsent + (stream.send(data) if data else stream.output())
        self._unsent = b""
        while not received:
            if stream.closed:
                raise ConnectionLost(f"the peer closed the WebSocket: {stream.close_reason}")
            chunk = self._transport.exchange(output, deadline)
            if not chunk:
                return b""
            received = stream.receive(chunk)
            output = stream.output()
            if self._clock() >= deadline:  # Also if the peer sends pings without pause.
                break
        self._unsent = output
        return received

    def flush(self, data: bytes, deadline: float) -> None:
        """Write `data` and the close frame, and wait for the peer's close frame before closing the
        socket, all as far as possible before the deadline."""
        stream = self._stream
        output = self._unsent + stream.send(data) + stream.close()
        self._unsent = b""
        self._transport.flush(output, deadline)
        try:
            while not stream.closed and self._clock() < deadline:
                if not (received := self._transport.exchange(b"", deadline)):
                    return
                stream.receive(received)
        except ConnectionLost:
            return

    def close(self) -> None:
        self._transport.close()


def _refusal(server: str, error: Exception | None, lost: ConnectionLost | None) -> str:
    if isinstance(error, InvalidStatus):
        status = error.response.status_code
        answer = f"{status} {status_phrase(status)}".strip()
        return (
            f"{server} refused the WebSocket upgrade: {answer}. Check that it is the address of a "
            "namespace, and that the network allows WebSockets."
        )
    if lost is not None:
        return f"the WebSocket upgrade of {server} failed: {lost.description}"
    return (
        f"{server} did not answer the WebSocket upgrade correctly: {error}. Check that it is the "
        "address of a namespace."
    )
