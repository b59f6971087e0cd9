"""The protocol engine: a client or server endpoint of an AMQP 1.0 connection, without I/O.

    settings = ConnectionSettings(container_id="example")
    connection = Connection(settings, sasl=SaslClient.anonymous(), now=clock())
    while not connection.closed:
        socket.sendall(connection.data_to_send())
        for event in connection.receive(socket.recv(65536), now=clock()):
            ...

The engine has no clock: the caller passes `now` in seconds. `receive` never raises, whatever data
arrives. If the peer violates the protocol, the engine sends a detach, end or close with the error,
and returns an event that reports it.
"""

from typing import Any

from pairbus.amqp.channels import Channels
from pairbus.amqp.composite import decode_composite, encode_composite
from pairbus.amqp.decode import decode
from pairbus.amqp.events import Closed, Event, Opened
from pairbus.amqp.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    EMPTY_FRAME,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
    TRANSFER_PREFIX,
    encode_frame,
    frame_header,
)
from pairbus.amqp.idle import IdleTimer
from pairbus.amqp.negotiation import Negotiation
from pairbus.amqp.performatives import Attach, Begin, Close, Detach, Error, Open, Transfer
from pairbus.amqp.sasl import SaslClient, SaslServer
from pairbus.amqp.session import Session, exception_from
from pairbus.amqp.settings import ConnectionSettings
from pairbus.amqp.types import Described, Symbol
from pairbus.amqp.violations import LinkError, SessionError
from pairbus.errors import (
    AmqpError,
    ConnectionLost,
    DecodeError,
    EncodeError,
    ProtocolError,
    StateError,
)
from pairbus.servicebus import conditions


class Connection:
    """An endpoint of a connection.

    With a SaslClient or `client=True` it is the client, which sends the first header. With a
    SaslServer or `client=False` it is the server. If `sasl` is None there is no SASL layer.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        sasl: SaslClient | SaslServer | None = None,
        client: bool | None = None,
        now: float,
    ) -> None:
        self.settings = settings
        self.remote: Open | None = None
        """The peer's open, or None before it arrives."""
        self.closed = False
        """True once no more data is processed. Close the socket when the output is written."""
        self.closed_by_peer = False
        """True once the peer has sent a close, which may be the answer to ours."""
        self.buffered = 0
        self.link_count = 0
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self._opened = self._closing = False
        self._input = bytearray()
        self._needed = 8
        self._output: list[bytes] = []
        self._channels = Channels(self)
        self._idle = IdleTimer(settings.idle_timeout_s, now)
        if client is None:
            client = isinstance(sasl, SaslClient)
        self._negotiation = Negotiation(sasl, client, settings.hostname, self._write)
        if client:
            self._negotiation.send_header()
            if sasl is None:
                self._open()

    def begin(self) -> Session:
        """Begin a session. A Begun event reports the peer's answer."""
        if self._closing or self.closed:
            raise StateError("the connection is closed")
        if not self._opened:
            raise StateError("the connection is not open")
        session = self._channels.new_session()
        if session is None:
            raise StateError(
                f"all {self._channels.channel_max + 1} channels of the connection are in use"
            )
        session.begin()
        return session

    def close(self, error: AmqpError | None = None) -> None:
        """Send a close. A Closed event reports the peer's answer."""
        if self._closing or self.closed:
            return
        if not self._opened and self._negotiation.header_sent == AMQP_HEADER:
            self._open()  # A close must follow an open.
        self._closing = True
        if self._opened:
            self._write_close(error)
        else:
            self.closed = True
        self._channels.mark_ended()

    @property
    def last_received(self) -> float:
        """The time at which the peer last sent something."""
        return self._idle.last_received

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Process data from the peer, and return its events in order."""
        events: list[Event] = []
        if self.closed or not data:
            return events
        self._idle.last_received = now
        if self._input:
            self._input += data
            if len(self._input) < self._needed:
                return events
            data = bytes(self._input)
            self._input.clear()
        elif type(data) is not bytes:
            data = bytes(data)
        try:
            rest = self._process(data, events)
        except ProtocolError as exc:
            self._fail(exc, events)
        except EncodeError as exc:
            # Our answer does not fit into the peer's frames.
            self._fail(ProtocolError(str(exc), condition=conditions.FRAME_SIZE_TOO_SMALL), events)
        else:
            if rest < len(data) and not self.closed:
                self._input += data[rest:]
        return events

    def connection_lost(self, reason: str) -> list[Event]:
        """Report that the transport was closed. Return a Closed event unless there was one."""
        if self.closed:
            return []
        self.closed = True
        self._channels.mark_ended()
        return [Closed(ConnectionLost(reason), by_peer=not self._closing)]

    def tick(self, now: float) -> list[Event]:
        """Write a heartbeat if one is due, and close the connection if the idle timeout expired."""
        events: list[Event] = []
        if self.closed or not self._opened:
            return events
        if self._idle.expired(now):
            self._fail(
                ProtocolError(
                    f"the peer sent nothing for {self._idle.timeout_s:g} seconds",
                    condition=conditions.RESOURCE_LIMIT_EXCEEDED,
                ),
                events,
            )
        elif self._closing or self._output:
            pass  # No frame may follow a close, and pending output serves as a heartbeat.
        elif self._idle.heartbeat_due(now):
            self._output.append(EMPTY_FRAME)
        return events

    @property
    def deadline(self) -> float | None:
        """The time of the next call of `tick` that is needed, or None."""
        if self.closed or not self._opened:
            return None
        return self._idle.deadline(heartbeats=not self._closing)

    def data_to_send(self, now: float | None = None) -> bytes:
        """Return and remove the output for the peer. `now` is the time at which it is written."""
        output = self._output
        if not output:
            return b""
        if now is not None:
            self._idle.last_sent = now
        data = output[0] if len(output) == 1 else b"".join(output)
        self._output = []
        return data

    @property
    def has_data_to_send(self) -> bool:
        return bool(self._output)

    @property
    def sessions(self) -> list[Session]:
        """The sessions that did not end before the connection."""
        return list(self._channels.local.values())

    # The following methods are internal to the engine.

    def write(self, channel: int, performative: Any) -> None:
        if self._closing:
            return
        self._write_performative(channel, performative)

    def write_frame(self, data: bytes) -> None:
        if not self._closing:
            self._output.append(data)

    def write_parts(self, parts: list[bytes]) -> None:
        """Write frames that consist of several parts each."""
        if not self._closing:
            self._output += parts

    def forget(self, session: Session) -> None:
        self._channels.remove(session)

    def _write(self, data: bytes) -> None:
        self._output.append(data)

    def _write_performative(self, channel: int, performative: Any) -> None:
        body = encode_composite(performative)
        if len(body) + 8 > self.remote_max_frame_size and self.remote is not None:
            raise EncodeError(
                f"{type(performative).__name__} needs a frame of {len(body) + 8} bytes, "
                f"but the peer accepts at most {self.remote_max_frame_size}"
            )
        self._output.append(encode_frame(channel, body))

    def _open(self) -> None:
        settings = self.settings
        idle = settings.idle_timeout_s
        self._opened = True
        self._write_performative(
            0,
            Open(
                settings.container_id,
                settings.hostname,
                settings.max_frame_size,
                settings.channel_max,
                None if idle is None else int(idle * 500),
                properties=settings.properties or None,
                offered_capabilities=tuple(map(Symbol, settings.offered_capabilities)),
                desired_capabilities=tuple(map(Symbol, settings.desired_capabilities)),
            ),
        )

    def _write_close(self, error: AmqpError | None) -> None:
        reason = None if error is None else Error.of(error)
        try:
            self._write_performative(0, Close(reason))
        except EncodeError:
            self._write_performative(0, Close(reason and reason.without_description()))

    def _fail(self, error: AmqpError, events: list[Event]) -> None:
        self.close(error)
        self.closed = True
        events.append(Closed(error, by_peer=False))

    def _process(self, data: bytes, events: list[Event]) -> int:
        """Process the complete frames in `data`, and return the start of an incomplete one."""
        pos, size = 0, len(data)
        limit = self.settings.max_frame_size
        unpack = frame_header.unpack_from
        sessions = self._channels.remote
        negotiation = self._negotiation
        while size - pos >= 8:
            if negotiation.awaiting_header:
                rejected = negotiation.on_header(data[pos : pos + 8])
                pos += 8
                if rejected is not None:
                    self.closed = True
                    events.append(rejected)
                    return size
                continue
            length, offset, frame_type, channel = unpack(data, pos)
            if length > limit or offset < 2 or length < offset * 4:
                raise ProtocolError(
                    f"a frame has {length} bytes and a header of {offset * 4} bytes; the maximum "
                    f"frame size is {limit}",
                    condition=conditions.FRAMING_ERROR,
                )
            end = pos + length
            if end > size:
                self._needed = length
                return pos
            start = pos + offset * 4
            try:
                if (
                    data[start : start + 3] == TRANSFER_PREFIX
                    and frame_type == 0
                    and self.remote is not None
                ):
                    session = sessions.get(channel)
                    if session is None:
                        raise _no_session(channel)
                    if not session.ended:
                        session.incoming.on_transfer(data, start + 3, end, events)
                elif start < end:
                    self._on_frame(frame_type, channel, data[start:end], events)
                    if self.closed:
                        return size
                elif frame_type != negotiation.frame_type:
                    raise _wrong_frame_type(frame_type)
            except LinkError as exc:
                exc.link.session.fail_link(exc, events)
            except SessionError as exc:
                sessions[channel].fail(exc, events)
            pos = end
        self._needed = 8
        return pos

    def _on_frame(self, frame_type: int, channel: int, body: bytes, events: list[Event]) -> None:
        described, after = decode(body)
        performative = decode_composite(described) if isinstance(described, Described) else None
        if performative is None or isinstance(performative, Described):
            raise DecodeError("a frame does not contain a known performative")
        if after != len(body) and not isinstance(performative, Transfer):
            raise DecodeError(f"{type(performative).__name__} is followed by unexpected data")
        if self._negotiation.in_handshake:
            if frame_type != SASL_FRAME:
                raise ProtocolError("an AMQP frame arrived during the SASL handshake")
            self._on_sasl(performative, events)
        elif frame_type != AMQP_FRAME:
            raise _wrong_frame_type(frame_type)
        elif isinstance(performative, Close):
            self._on_close(performative, events)
        elif self._closing:
            pass
        elif isinstance(performative, Open):
            self._on_open(performative, events)
        elif self.remote is None:
            raise ProtocolError(f"{type(performative).__name__} arrived before open")
        elif isinstance(performative, Begin):
            self._channels.on_begin(channel, performative, events)
        else:
            session = self._channels.remote.get(channel)
            if session is None:
                if isinstance(performative, Detach) and self._channels.has_ended(channel):
                    return  # The Azure SDK ends a session before it detaches its links.
                raise _no_session(channel)
            if not isinstance(performative, Transfer):
                is_attach = isinstance(performative, Attach) and not session.ended
                if is_attach and len(body) > self.settings.max_attach_size:
                    raise SessionError(
                        conditions.RESOURCE_LIMIT_EXCEEDED, "the attach of a link is too large"
                    )
                session.on_performative(performative, events)
            elif not session.ended:
                # The descriptor has an unusual encoding. Encode it the usual way.
                data = encode_composite(performative) + body[after:]
                session.incoming.on_transfer(data, len(TRANSFER_PREFIX), len(data), events)

    def _on_open(self, open_: Open, events: list[Event]) -> None:
        if self.remote is not None:
            raise ProtocolError("a second open arrived")
        if open_.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise ProtocolError(
                f"the peer's maximum frame size of {open_.max_frame_size} is less than "
                f"{MIN_MAX_FRAME_SIZE}",
                condition=conditions.INVALID_FIELD,
            )
        if not self._opened:
            self._open()
        self.remote = open_
        self.remote_max_frame_size = open_.max_frame_size
        if open_.idle_time_out:
            self._idle.remote_timeout_s = open_.idle_time_out / 1000
        events.append(Opened(open_))

    def _on_close(self, close: Close, events: list[Event]) -> None:
        if not self._closing:
            if not self._opened:
                self._open()
            self._write_close(None)
            self._channels.mark_ended()
        self.closed = self.closed_by_peer = True
        events.append(Closed(exception_from(close.error)))

    def _on_sasl(self, performative: Any, events: list[Event]) -> None:
        result = self._negotiation.on_frame(performative)
        if result is None:
            return
        events.append(result)
        if isinstance(result, Closed):
            self.closed = True
        elif self._negotiation.client:
            self._negotiation.send_header()
            self._open()


def _no_session(channel: int) -> ProtocolError:
    return ProtocolError(f"channel {channel} has no session")


def _wrong_frame_type(frame_type: int) -> ProtocolError:
    return ProtocolError(
        f"a frame has the unexpected type {frame_type}", condition=conditions.FRAMING_ERROR
    )
