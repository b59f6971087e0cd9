"""AMQP over WebSockets, without I/O: the byte stream in the binary messages of a WebSocket.

The sans-I/O layer of `websockets` implements the protocol. The payload of each frame is passed on
at once, so no message is assembled in memory. The stream has no boundaries: frames of AMQP need not
align with messages of the WebSocket (OASIS AMQP WebSocket Binding 1.0, section 2.3).
"""

import logging

from websockets.frames import CloseCode, Opcode
from websockets.protocol import Protocol, State

MAX_SENT = 64 * 1024
"""The largest message that is sent. Clients may limit what they accept: aiohttp to 4 MiB."""
MAX_FRAME = 4 * 1024 * 1024
"""The largest frame that is accepted. It is in memory until it is complete."""
MAX_MESSAGE = 128 * 1024 * 1024
"""The largest message that is accepted, above the 100 MB of a message of Service Bus."""
MAX_SIZE = (MAX_MESSAGE, MAX_FRAME)

frame_logger = logging.getLogger(f"{__name__}.frames")
"""The logger of `websockets`. At level DEBUG it shows frames, which hold tokens and messages."""
frame_logger.setLevel(logging.WARNING)


class WebSocketStream:
    """The stream of one connection, after the handshake. Used by clients and servers.

    After each call of `receive` the `output` must be written, and then the connection closed if
    `closed` is True.
    """

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._refused_text = False

    def receive(self, data: bytes) -> bytes:
        """Return the bytes of AMQP in the input. Pings and close frames are answered in the
        `output`."""
        self._protocol.receive_data(data)
        return self.pending()

    def pending(self) -> bytes:
        """Return the bytes of AMQP that arrived together with the handshake."""
        chunks: list[bytes | bytearray | memoryview] = []
        for frame in self._protocol.events_received():
            opcode = getattr(frame, "opcode", None)  # None: the response to the handshake
            if opcode is Opcode.TEXT:
                self._refused_text = True
                self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "AMQP is sent in binary messages.")
                break
            if opcode is Opcode.BINARY or opcode is Opcode.CONT:
                chunks.append(frame.data)  # type: ignore[union-attr]
        return b"".join(chunks)

    def send(self, data: bytes) -> bytes:
        """Return the output with binary messages that carry these bytes. After the end of the
        WebSocket they are discarded."""
        if self._protocol.state is State.OPEN:
            view = memoryview(data)
            for start in range(0, len(view), MAX_SENT):
                self._protocol.send_binary(view[start : start + MAX_SENT])
        return self.output()

    def close(self) -> bytes:
        """Return the output with the close frame, if it was not sent before. The peer answers it,
        and then `closed` is True."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
        return self.output()

    def output(self) -> bytes:
        """Return the bytes to write, once."""
        return b"".join(self._protocol.data_to_send())

    @property
    def closed(self) -> bool:
        """True if the peer closed the WebSocket or violated its protocol: nothing more arrives."""
        protocol = self._protocol
        return (
            self._refused_text or protocol.close_rcvd is not None or protocol.parser_exc is not None
        )

    @property
    def close_reason(self) -> str:
        """The code and the reason with which the WebSocket was closed, for messages."""
        protocol = self._protocol
        return str(protocol.close_rcvd or protocol.close_sent or "unknown")
