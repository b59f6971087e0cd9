"""The start of a connection: protocol headers (part 2, 2.2) and the SASL handshake (part 5, 5.3).

With SASL, the peers exchange SASL headers, complete the handshake, and then exchange AMQP headers.
"""

from collections.abc import Callable
from typing import Any

from pairbus.amqp.composite import encode_composite
from pairbus.amqp.events import Authenticated, Closed
from pairbus.amqp.frames import AMQP_FRAME, AMQP_HEADER, SASL_FRAME, SASL_HEADER, encode_frame
from pairbus.amqp.sasl import ClientHandshake, SaslClient, SaslServer, ServerHandshake
from pairbus.errors import ProtocolError
from pairbus.servicebus import conditions


class Negotiation:
    """The headers and the SASL handshake of one connection. `write` takes the output."""

    def __init__(
        self,
        sasl: SaslClient | SaslServer | None,
        client: bool,
        hostname: str | None,
        write: Callable[[bytes], None],
    ) -> None:
        self.client = client
        self.awaiting_header = True
        """True while the next 8 bytes of the peer are a header."""
        self.header_sent: bytes | None = None
        self._write = write
        self._handshake: ClientHandshake | ServerHandshake | None = None
        if isinstance(sasl, SaslClient):
            self._handshake = ClientHandshake(sasl, hostname)
        elif sasl is not None:
            self._handshake = ServerHandshake(sasl)

    @property
    def in_handshake(self) -> bool:
        """True before and during the SASL handshake."""
        return self._handshake is not None

    @property
    def frame_type(self) -> int:
        """The type of the frames that the peer may send now."""
        return AMQP_FRAME if self._handshake is None else SASL_FRAME

    def send_header(self) -> None:
        """Write the header of the protocol that comes next."""
        self.header_sent = AMQP_HEADER if self._handshake is None else SASL_HEADER
        self._write(self.header_sent)

    def on_header(self, header: bytes) -> Closed | None:
        """Process the peer's header. Return an event if its protocol is not supported."""
        expected = AMQP_HEADER if self._handshake is None else SASL_HEADER
        if self.header_sent is None:
            self.send_header()  # Also the answer to a header that we do not support.
        if header != expected:
            protocol = "not AMQP" if header[:4] != b"AMQP" else f"AMQP {list(header[4:])}"
            return Closed(
                ProtocolError(
                    f"the protocol of the peer is {protocol}, but AMQP {list(expected[4:])} "
                    "is required",
                    condition=conditions.NOT_IMPLEMENTED,
                ),
                by_peer=False,
            )
        self.awaiting_header = False
        if self._handshake is not None:
            self._write_frames(self._handshake.start())
        return None

    def on_frame(self, performative: Any) -> Authenticated | Closed | None:
        """Process a SASL frame. Return an event if the handshake ended."""
        assert self._handshake is not None
        answers, result = self._handshake.receive(performative)
        self._write_frames(answers)
        if isinstance(result, Authenticated):
            # AMQP starts with another exchange of headers.
            self._handshake = None
            self.awaiting_header = True
            self.header_sent = None
            return result
        return None if result is None else Closed(result, by_peer=self.client)

    def _write_frames(self, performatives: list[Any]) -> None:
        for performative in performatives:
            self._write(encode_frame(0, encode_composite(performative), SASL_FRAME))
