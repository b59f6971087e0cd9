"""Engines without sockets: a pair that is connected in memory, or one with a scripted peer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pairbus.amqp.composite import decode_composite, encode_composite
from pairbus.amqp.connection import Connection
from pairbus.amqp.decode import decode
from pairbus.amqp.events import Attached, AttachReceived, Begun, Delivery, Event
from pairbus.amqp.frames import AMQP_FRAME, AMQP_HEADER, SASL_HEADER, encode_frame, frame_header
from pairbus.amqp.link import Link, ReceiverLink, SenderLink
from pairbus.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.sasl import SaslClient, SaslServer
from pairbus.amqp.session import Session
from pairbus.amqp.settings import ConnectionSettings

Kind = TypeVar("Kind")
HEADERS = (AMQP_HEADER, SASL_HEADER)


def events_of(kind: type[Kind], events: Sequence[Any]) -> list[Kind]:
    """Return the events of one type."""
    return [event for event in events if isinstance(event, kind)]


def only(kind: type[Kind], events: Sequence[Any]) -> Kind:
    """Return the only event of its type."""
    matching = events_of(kind, events)
    assert len(matching) == 1, f"expected one {kind.__name__} in {events}"
    return matching[0]


@dataclass(frozen=True)
class PairEvents:
    """The events of both engines."""

    client: list[Event]
    server: list[Event]


class EnginePair:
    """A client and a server engine. `run` exchanges data until neither has more output."""

    def __init__(
        self,
        *,
        client: ConnectionSettings | None = None,
        server: ConnectionSettings | None = None,
        client_sasl: SaslClient | None = None,
        server_sasl: SaslServer | None = None,
        on_attach: Callable[[Any], None] | None = lambda link: link.accept(),
    ) -> None:
        self.now = 0.0
        self.on_attach = on_attach
        self.client = Connection(
            client or ConnectionSettings(container_id="client"),
            sasl=client_sasl,
            client=True,
            now=0.0,
        )
        self.server = Connection(
            server or ConnectionSettings(container_id="server"),
            sasl=server_sasl,
            client=False,
            now=0.0,
        )

    def run(self) -> PairEvents:
        reported = PairEvents([], [])
        while self.client.has_data_to_send or self.server.has_data_to_send:
            self._carry(self.client, self.server, reported.server)
            self._carry(self.server, self.client, reported.client)
        return reported

    def _carry(self, source: Connection, to: Connection, events: list[Event]) -> None:
        for event in to.receive(source.data_to_send(self.now), self.now):
            events.append(event)
            if isinstance(event, AttachReceived) and self.on_attach is not None:
                self.on_attach(event.link)

    def session(self) -> tuple[Session, Session]:
        """Begin a session. Return the session of the client and that of the server."""
        client_session = self.client.begin()
        return client_session, only(Begun, self.run().server).session

    def sender(self, session: Session, name: str = "s", **options: Any) -> tuple[Any, Any]:
        """Attach a link on which the client sends. Return its endpoints at client and server."""
        client_link = session.attach_sender(name, target=Target("queue"), **options)
        return client_link, self._attached(client_link)

    def receiver(self, session: Session, name: str = "r", **options: Any) -> tuple[Any, Any]:
        """Attach a link on which the server sends. Return its endpoints at client and server."""
        client_link = session.attach_receiver(name, source=Source("queue"), **options)
        return client_link, self._attached(client_link)

    def _attached(self, link: Link) -> Link:
        reported = self.run()
        assert only(Attached, reported.client).link is link
        return only(AttachReceived, reported.server).link


def pair_with_sender(
    credit: int = 100, link_options: dict[str, Any] | None = None, **options: Any
) -> tuple[EnginePair, SenderLink, ReceiverLink]:
    """Return a pair with a link that has credit, and the endpoints of the link."""
    pair = EnginePair(**options)
    session, _ = pair.session()
    sender, receiver = pair.sender(session, **(link_options or {}))
    receiver.flow(credit)
    pair.run()
    return pair, sender, receiver


@dataclass(frozen=True)
class WrittenFrame:
    """A frame that the engine wrote."""

    channel: int
    performative: Any
    payload: bytes


def frames_of(data: bytes) -> list[Any]:
    """Return headers as bytes, empty frames as None, and other frames as WrittenFrame."""
    result: list[Any] = []
    pos = 0
    while pos < len(data):
        if data[pos : pos + 8] in HEADERS:
            result.append(data[pos : pos + 8])
            pos += 8
            continue
        size, offset, _, channel = frame_header.unpack_from(data, pos)
        body = data[pos + 4 * offset : pos + size]
        pos += size
        if not body:
            result.append(None)
            continue
        described, after = decode(body)
        result.append(WrittenFrame(channel, decode_composite(described), body[after:]))
    assert pos == len(data), "the engine wrote an incomplete frame"
    return result


class ScriptedPeer:
    """A peer that sends exactly the frames of the test to an engine."""

    def __init__(self, settings: ConnectionSettings | None = None, *, client: bool = False) -> None:
        """Create an engine. `client` is the role of the engine, not of the peer."""
        settings = settings or ConnectionSettings(container_id="engine")
        self.engine = Connection(settings, client=client, now=0.0)

    def feed(self, data: bytes, now: float = 0.0) -> list[Event]:
        return self.engine.receive(data, now)

    def deliver(self, *performatives: Any, channel: int = 0, payload: bytes = b"") -> list[Event]:
        """Send a frame for each performative, and return the events of the engine."""
        data = b"".join(framed(performative, channel, payload) for performative in performatives)
        return self.feed(data)

    def frames(self) -> list[Any]:
        """Return the frames that the engine has written since the last call."""
        return frames_of(self.engine.data_to_send())

    def performatives(self) -> list[Any]:
        """Return the performatives that the engine has written since the last call."""
        return [frame.performative for frame in self.frames() if isinstance(frame, WrittenFrame)]

    def open(self, **fields: Any) -> list[Event]:
        return self.feed(AMQP_HEADER + framed(Open("peer", **fields)))

    def begin(self, window: int = 1000, **fields: Any) -> Session:
        """Begin a session on channel 0 of the peer."""
        session = only(Begun, self.deliver(Begin(None, 0, window, 1000, **fields))).session
        self.frames()
        return session

    @classmethod
    def in_session(
        cls, settings: ConnectionSettings | None = None, **fields: Any
    ) -> "tuple[ScriptedPeer, Session]":
        """Return a peer with a session at a server engine."""
        peer = cls(settings)
        peer.open(**fields)
        return peer, peer.begin()

    def attach_sender(self, name: str = "s", handle: int = 0, **accept: Any) -> ReceiverLink:
        """Attach a link on which the peer sends. Return the endpoint of the engine."""
        events = self.deliver(sender_attach(name, handle))
        link = only(AttachReceived, events).link
        assert isinstance(link, ReceiverLink)
        link.accept(**accept)
        self.frames()
        return link

    def attach_receiver(self, name: str = "r", handle: int = 0, **accept: Any) -> SenderLink:
        """Attach a link on which the peer receives. Return the endpoint of the engine."""
        events = self.deliver(receiver_attach(name, handle))
        link = only(AttachReceived, events).link
        assert isinstance(link, SenderLink)
        link.accept(**accept)
        self.frames()
        return link

    def grant(self, handle: int, credit: int, window: int = 1000, **fields: Any) -> list[Event]:
        """Send a flow that grants credit to the engine."""
        return self.deliver(Flow(0, window, 0, 1000, handle, link_credit=credit, **fields))

    def send(
        self, delivery_id: int | None, payload: bytes = b"hello", handle: int = 0, **fields: Any
    ) -> list[Event]:
        """Send one transfer frame."""
        tag = None if delivery_id is None else delivery_id.to_bytes(4, "big")
        return self.deliver(Transfer(handle, delivery_id, tag, 0, **fields), payload=payload)


def framed(
    performative: Any, channel: int = 0, payload: bytes = b"", kind: int = AMQP_FRAME
) -> bytes:
    return encode_frame(channel, encode_composite(performative) + payload, kind)


def sender_attach(name: str = "s", handle: int = 0, **fields: Any) -> Attach:
    return Attach(
        name,
        handle,
        SENDER,
        **{"source": Source(), "target": Target("q"), "initial_delivery_count": 0, **fields},
    )


def receiver_attach(name: str = "r", handle: int = 0, **fields: Any) -> Attach:
    return Attach(name, handle, RECEIVER, **{"source": Source("q"), "target": Target(), **fields})


def payloads(events: Sequence[Event]) -> list[bytes]:
    """Return the payloads of the deliveries among the events."""
    return [delivery.payload for delivery in events_of(Delivery, events)]
