"""The engine: one end of an AMQP 1.0 connection, client or server. Bytes in, bytes and events out.

    conn = Connection(Settings("me"), sasl=SaslClient.anonymous(), now=clock())
    while not conn.closed:
        socket.sendall(conn.data_to_send())
        for event in conn.receive(socket.recv(65536), now=clock()):
            ...

It does no I/O and has no clock: `now`, in seconds, is passed in. Whatever bytes arrive, `receive`
does not raise: a peer that breaks the protocol gets a detach, end or close with the error, and the
program an event that says so.
"""

from dataclasses import dataclass, field
from typing import Any

from pairbus.amqp.composite import decode_composite, encode_composite
from pairbus.amqp.decode import decode
from pairbus.amqp.events import Authenticated, Closed, Event, Opened
from pairbus.amqp.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    EMPTY_FRAME,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    TRANSFER_PREFIX,
    encode_frame,
    frame_header,
)
from pairbus.amqp.performatives import (
    Begin,
    Close,
    Detach,
    Error,
    Open,
    Transfer,
)
from pairbus.amqp.sasl import ClientHandshake, SaslClient, SaslServer, ServerHandshake
from pairbus.amqp.session import Session, exception_from
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """What one end of a connection says of itself, and the limits that it holds the peer to."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int = 65536
    channel_max: int = 255
    handle_max: int = 255
    idle_timeout_s: float | None = None
    """Silence of the peer after which the connection is closed; the peer is told half of it."""
    incoming_window: int = 5000
    """Frames that the peer may send on a session before it hears from us."""
    outgoing_window: int = 5000
    max_buffered: int = 64 * 1024 * 1024
    """Bytes of messages whose last frame is still to come, all links together."""
    properties: dict[Any, Any] = field(default_factory=dict)
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not MIN_MAX_FRAME_SIZE <= self.max_frame_size <= 0xFFFFFFFF:
            raise ValueError(f"max_frame_size is 512 to 4294967295, not {self.max_frame_size}")
        if self.incoming_window < 2:
            raise ValueError(f"incoming_window is at least 2, not {self.incoming_window}")


class Connection:
    """One end of a connection.

    With a SaslClient or `client=True` it starts the talk; with a SaslServer or `client=False` it
    waits for the peer. Without SASL it speaks bare AMQP.
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
        """The peer's open, once it is here."""
        self.closed = False
        """Nothing more will be read; hang up once the output is written."""
        self.buffered = 0
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self._client = isinstance(sasl, SaslClient) if client is None else client
        self._opened = self._closing = False
        self._handshake: ClientHandshake | ServerHandshake | None = None
        if isinstance(sasl, SaslClient):
            self._handshake = ClientHandshake(sasl, settings.hostname)
        elif sasl is not None:
            self._handshake = ServerHandshake(sasl)
        self._header_sent: bytes | None = None
        self._awaiting_header = True
        self._input = bytearray()
        self._needed = 8
        self._output: list[bytes] = []
        self._sessions: dict[int, Session] = {}
        self._by_remote_channel: dict[int, Session] = {}
        self._ended_channels: set[int] = set()
        """Channels of sessions that the peer has ended, and not begun again."""
        self._last_received = self._last_sent = now
        self._remote_idle_s: float | None = None
        if self._client:
            self._send_header(AMQP_HEADER if sasl is None else SASL_HEADER)
            if sasl is None:
                self._open()

    def begin(self) -> Session:
        """Begin a session. A Begun event answers."""
        if self._closing or self.closed:
            raise StateError("the connection is closed")
        if not self._opened:
            raise StateError("the connection is not open yet")
        limit = self.settings.channel_max
        if self.remote is not None:
            limit = min(limit, self.remote.channel_max)
        for channel in range(limit + 1):
            if channel not in self._sessions:
                session = self._sessions[channel] = Session(self, channel)
                session.begin()
                return session
        raise StateError(f"all {limit + 1} channels of the connection are in use")

    def close(self, error: AmqpError | None = None) -> None:
        """Say that this is the end. The peer's answer comes as a Closed event."""
        if self._closing or self.closed:
            return
        if not self._opened and self._header_sent == AMQP_HEADER:
            self._open()  # a close needs an open before it
        self._closing = True
        if self._opened:
            self._write_close(error)
        else:
            self.closed = True
        self._mark_ended()

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take bytes from the peer; what they mean, in order."""
        events: list[Event] = []
        if self.closed or not data:
            return events
        self._last_received = now
        if self._input:
            self._input += data
            if len(self._input) < self._needed:
                return events
            data = bytes(self._input)
            self._input.clear()
        elif type(data) is not bytes:
            data = bytes(data)
        try:
            rest = self._take(data, events)
        except ProtocolError as exc:
            self._fail(exc, events)
        except EncodeError as exc:
            # Our answer does not fit the peer's frame size.
            self._fail(ProtocolError(str(exc), condition=conditions.FRAME_SIZE_TOO_SMALL), events)
        else:
            if rest < len(data) and not self.closed:
                self._input += data[rest:]
        return events

    def connection_lost(self, reason: str) -> list[Event]:
        """The transport has ended. A Closed event, unless there was one."""
        if self.closed:
            return []
        self.closed = True
        self._mark_ended()
        return [Closed(ConnectionLost(reason), by_peer=not self._closing)]

    def tick(self, now: float) -> list[Event]:
        """Let time pass: heartbeats are written, and a silent peer is given up."""
        events: list[Event] = []
        if self.closed or not self._opened:
            return events
        timeout = self.settings.idle_timeout_s
        if timeout is not None and now - self._last_received >= timeout:
            self._fail(
                ProtocolError(
                    f"nothing was heard for {timeout:g} seconds",
                    condition=conditions.RESOURCE_LIMIT_EXCEEDED,
                ),
                events,
            )
        elif self._closing or self._output:
            pass  # nothing may follow a close, and what is to be written does for a heartbeat
        elif self._remote_idle_s is not None and now - self._last_sent >= self._remote_idle_s / 2:
            self._output.append(EMPTY_FRAME)
        return events

    @property
    def deadline(self) -> float | None:
        """When `tick` is due next, if nothing happens before."""
        if self.closed or not self._opened:
            return None
        times = []
        if self.settings.idle_timeout_s is not None:
            times.append(self._last_received + self.settings.idle_timeout_s)
        if self._remote_idle_s is not None and not self._closing:
            times.append(self._last_sent + self._remote_idle_s / 2)
        return min(times, default=None)

    def data_to_send(self, now: float | None = None) -> bytes:
        """What is to be written to the peer; asking takes it. `now`: when it is written."""
        output = self._output
        if not output:
            return b""
        if now is not None:
            self._last_sent = now
        data = output[0] if len(output) == 1 else b"".join(output)
        self._output = []
        return data

    @property
    def has_data_to_send(self) -> bool:
        return bool(self._output)

    @property
    def sessions(self) -> list[Session]:
        """The sessions that have begun and not ended, and those that the end found open."""
        return list(self._sessions.values())

    # What follows is between the parts of the engine.

    def write(self, channel: int, performative: Any) -> None:
        if self._closing:
            return
        self._write_frame_of(channel, performative)

    def write_frame(self, data: bytes) -> None:
        if not self._closing:
            self._output.append(data)

    def forget(self, session: Session) -> None:
        self._sessions.pop(session.channel, None)
        if session.remote_channel is not None:
            self._by_remote_channel.pop(session.remote_channel, None)
            self._ended_channels.add(session.remote_channel)

    def _write_frame_of(self, channel: int, performative: Any) -> None:
        body = encode_composite(performative)
        if len(body) + 8 > self.remote_max_frame_size and self.remote is not None:
            raise EncodeError(
                f"{type(performative).__name__} takes {len(body) + 8} bytes, "
                f"the peer's frames hold {self.remote_max_frame_size}"
            )
        self._output.append(encode_frame(channel, body))

    def _send_header(self, header: bytes) -> None:
        self._header_sent = header
        self._output.append(header)

    def _open(self) -> None:
        settings = self.settings
        idle = settings.idle_timeout_s
        self._opened = True
        self._write_frame_of(
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
        try:
            self._write_frame_of(0, Close(None if error is None else Error.of(error)))
        except EncodeError:
            self._write_frame_of(
                0, Close(None if error is None else Error.of(error).without_description())
            )

    def _mark_ended(self) -> None:
        for session in {*self._sessions.values(), *self._by_remote_channel.values()}:
            session.mark_ended()

    def _fail(self, error: AmqpError, events: list[Event]) -> None:
        self.close(error)
        self.closed = True
        events.append(Closed(error, by_peer=False))

    def _take(self, data: bytes, events: list[Event]) -> int:
        """Work through the frames in `data`; the place where an unfinished one starts."""
        pos, size = 0, len(data)
        limit = self.settings.max_frame_size
        unpack = frame_header.unpack_from
        sessions = self._by_remote_channel
        while size - pos >= 8:
            if self._awaiting_header:
                self._on_header(data[pos : pos + 8], events)
                pos += 8
                if self.closed:
                    return size
                continue
            length, offset, kind, channel = unpack(data, pos)
            if length > limit or offset < 2 or length < offset * 4:
                raise ProtocolError(
                    f"a frame of {length} bytes with a header of {offset * 4}; at most {limit}",
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
                    and kind == 0
                    and self.remote is not None
                ):
                    session = sessions.get(channel)
                    if session is None:
                        raise _no_session(channel)
                    if not session.ended:
                        session.incoming.take(data, start + 3, end, events)
                elif start < end:
                    self._on_frame(kind, channel, data[start:end], events)
                    if self.closed:
                        return size
                elif kind != (AMQP_FRAME if self._handshake is None else SASL_FRAME):
                    raise _wrong_kind(kind)
            except LinkError as exc:
                exc.link.session.fail_link(exc, events)
            except SessionError as exc:
                sessions[channel].fail(exc, events)
            pos = end
        self._needed = 8
        return pos

    def _on_header(self, header: bytes, events: list[Event]) -> None:
        expected = AMQP_HEADER if self._handshake is None else SASL_HEADER
        if self._header_sent is None:
            self._send_header(expected)  # also the answer to a header that we do not speak
        if header != expected:
            self.closed = True
            said = "not AMQP" if header[:4] != b"AMQP" else f"protocol {list(header[4:])}"
            events.append(
                Closed(
                    ProtocolError(
                        f"the peer speaks {said}, expected {list(expected[4:])}",
                        condition=conditions.NOT_IMPLEMENTED,
                    ),
                    by_peer=False,
                )
            )
            return
        self._awaiting_header = False
        if self._handshake is not None:
            for performative in self._handshake.start():
                self._write_sasl(performative)

    def _write_sasl(self, performative: Any) -> None:
        self._output.append(encode_frame(0, encode_composite(performative), SASL_FRAME))

    def _on_frame(self, kind: int, channel: int, body: bytes, events: list[Event]) -> None:
        described, after = decode(body)
        performative = decode_composite(described) if isinstance(described, Described) else None
        if performative is None or isinstance(performative, Described):
            raise DecodeError("a frame holds no performative that AMQP knows")
        if after != len(body) and not isinstance(performative, Transfer):
            raise DecodeError(f"{type(performative).__name__} has bytes behind it")
        if self._handshake is not None:
            if kind != SASL_FRAME:
                raise ProtocolError("an AMQP frame came before SASL was over")
            self._on_sasl(performative, events)
        elif kind != AMQP_FRAME:
            raise _wrong_kind(kind)
        elif isinstance(performative, Close):
            self._on_close(performative, events)
        elif self._closing:
            pass
        elif isinstance(performative, Open):
            self._on_open(performative, events)
        elif self.remote is None:
            raise ProtocolError(f"{type(performative).__name__} came before open")
        elif isinstance(performative, Begin):
            self._on_begin(channel, performative, events)
        else:
            session = self._by_remote_channel.get(channel)
            if session is None:
                if isinstance(performative, Detach) and channel in self._ended_channels:
                    return  # the Azure SDK ends a session first, and then detaches its links
                raise _no_session(channel)
            if not isinstance(performative, Transfer):
                session.on_performative(performative, events)
            elif not session.ended:
                # Its descriptor is not spelled as all known peers spell it: spell it so.
                data = encode_composite(performative) + body[after:]
                session.incoming.take(data, len(TRANSFER_PREFIX), len(data), events)

    def _on_open(self, open_: Open, events: list[Event]) -> None:
        if self.remote is not None:
            raise ProtocolError("a second open")
        if open_.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise ProtocolError(
                f"a maximum frame size of {open_.max_frame_size}",
                condition=conditions.INVALID_FIELD,
            )
        if not self._opened:
            self._open()
        self.remote = open_
        self.remote_max_frame_size = open_.max_frame_size
        if open_.idle_time_out:
            self._remote_idle_s = open_.idle_time_out / 1000
        events.append(Opened(open_))

    def _on_close(self, close: Close, events: list[Event]) -> None:
        if not self._closing:
            if not self._opened:
                self._open()
            self._write_close(None)
            self._mark_ended()
        self.closed = True
        events.append(Closed(exception_from(close.error)))

    def _on_begin(self, channel: int, begin: Begin, events: list[Event]) -> None:
        if channel > self.settings.channel_max:
            raise ProtocolError(
                f"channel {channel} is above the maximum", condition=conditions.FRAMING_ERROR
            )
        if channel in self._by_remote_channel:
            raise ProtocolError(f"a second begin on channel {channel}")
        self._ended_channels.discard(channel)
        if begin.remote_channel is not None:
            session = self._sessions.get(begin.remote_channel)
            if session is None or session.begun:
                raise ProtocolError(f"nobody began a session on channel {begin.remote_channel}")
            self._by_remote_channel[channel] = session
            session.on_begin(begin, channel, events)
            return
        limit = min(self.settings.channel_max, self.remote.channel_max if self.remote else 0)
        free = next((n for n in range(limit + 1) if n not in self._sessions), None)
        if free is None:
            raise ProtocolError(
                "too many sessions on this connection", condition=conditions.RESOURCE_LIMIT_EXCEEDED
            )
        session = self._sessions[free] = self._by_remote_channel[channel] = Session(self, free)
        session.begin(channel)
        session.on_begin(begin, channel, events)

    def _on_sasl(self, performative: Any, events: list[Event]) -> None:
        assert self._handshake is not None
        answers, result = self._handshake.take(performative)
        for answer in answers:
            self._write_sasl(answer)
        if isinstance(result, Authenticated):
            # SASL is over; AMQP starts with headers of its own.
            self._handshake = None
            self._awaiting_header = True
            self._header_sent = None
            events.append(result)
            if self._client:
                self._send_header(AMQP_HEADER)
                self._open()
        elif result is not None:
            self.closed = True
            events.append(Closed(result, by_peer=self._client))


def _no_session(channel: int) -> ProtocolError:
    return ProtocolError(f"no session has begun on channel {channel}")


def _wrong_kind(kind: int) -> ProtocolError:
    return ProtocolError(f"a frame of type {kind}", condition=conditions.FRAMING_ERROR)
