"""Engines without sockets: two of them joined in memory, or one that talks to a hand-made peer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pairbus.amqp.composite import decode_composite, encode_composite
from pairbus.amqp.connection import Connection, ConnectionSettings
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

Kind = TypeVar("Kind")
HEADERS = (AMQP_HEADER, SASL_HEADER)


def of(kind: type[Kind], events: Sequence[Any]) -> list[Kind]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def only(kind: type[Kind], events: Sequence[Any]) -> Kind:
    """The one event of its kind."""
    found = of(kind, events)
    assert len(found) == 1, f"expected one {kind.__name__} in {events}"
    return found[0]


@dataclass(frozen=True)
class Heard:
    """What a run of the pump told each side."""

    client: list[Event]
    server: list[Event]


class Talk:
    """A client and a server engine. `run` carries bytes both ways until neither has more to say."""

    def __init__(
        self,
        *,
        client: ConnectionSettings | None = None,
        server: ConnectionSettings | None = None,
        client_sasl: SaslClient | None = None,
        server_sasl: SaslServer | None = None,
        on_attaching: Callable[[Any], None] | None = lambda link: link.accept(),
    ) -> None:
        self.now = 0.0
        self.on_attaching = on_attaching
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

    def run(self) -> Heard:
        heard = Heard([], [])
        while self.client.has_data_to_send or self.server.has_data_to_send:
            self._carry(self.client, self.server, heard.server)
            self._carry(self.server, self.client, heard.client)
        return heard

    def _carry(self, source: Connection, to: Connection, events: list[Event]) -> None:
        for event in to.receive(source.data_to_send(self.now), self.now):
            events.append(event)
            if isinstance(event, AttachReceived) and self.on_attaching is not None:
                self.on_attaching(event.link)

    def session(self) -> tuple[Session, Session]:
        """A session that the client began: its end, and the server's."""
        ours = self.client.begin()
        return ours, only(Begun, self.run().server).session

    def sender(self, session: Session, name: str = "s", **options: Any) -> tuple[Any, Any]:
        """A link on which the client sends: its end, and the server's."""
        ours = session.attach_sender(name, target=Target("queue"), **options)
        return ours, self._attached(ours)

    def receiver(self, session: Session, name: str = "r", **options: Any) -> tuple[Any, Any]:
        """A link on which the server sends: the client's end, and the server's."""
        ours = session.attach_receiver(name, source=Source("queue"), **options)
        return ours, self._attached(ours)

    def _attached(self, link: Link) -> Link:
        heard = self.run()
        assert only(Attached, heard.client).link is link
        return only(AttachReceived, heard.server).link


def talk_with_sender(
    credit: int = 100, link_options: dict[str, Any] | None = None, **options: Any
) -> tuple[Talk, SenderLink, ReceiverLink]:
    """Client sends to server, with credit."""
    talk = Talk(**options)
    session, _ = talk.session()
    sender, receiver = talk.sender(session, **(link_options or {}))
    receiver.flow(credit)
    talk.run()
    return talk, sender, receiver


@dataclass(frozen=True)
class Said:
    """One frame that the engine wrote."""

    channel: int
    performative: Any
    payload: bytes


def frames_of(data: bytes) -> list[Any]:
    """Headers as bytes, empty frames as None, all other frames as Said."""
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
        result.append(Said(channel, decode_composite(described), body[after:]))
    assert pos == len(data), "the engine wrote half a frame"
    return result


class Peer:
    """A hand-made peer: says what it is told to, and nothing of its own accord."""

    def __init__(self, settings: ConnectionSettings | None = None, *, client: bool = False) -> None:
        """`client`: whether the engine is one; the peer is the other."""
        settings = settings or ConnectionSettings(container_id="engine")
        self.engine = Connection(settings, client=client, now=0.0)

    def feed(self, data: bytes, now: float = 0.0) -> list[Event]:
        return self.engine.receive(data, now)

    def say(self, *performatives: Any, channel: int = 0, payload: bytes = b"") -> list[Event]:
        """Frames, one for each performative; what the engine makes of them."""
        data = b"".join(framed(each, channel, payload) for each in performatives)
        return self.feed(data)

    def heard(self) -> list[Any]:
        """All frames that the engine has written since it was asked last."""
        return frames_of(self.engine.data_to_send())

    def told(self) -> list[Any]:
        """The performatives of these frames."""
        return [each.performative for each in self.heard() if isinstance(each, Said)]

    def open(self, **fields: Any) -> list[Event]:
        return self.feed(AMQP_HEADER + framed(Open("peer", **fields)))

    def begin(self, window: int = 1000, **fields: Any) -> Session:
        """A session that the peer begins on its channel 0."""
        session = only(Begun, self.say(Begin(None, 0, window, 1000, **fields))).session
        self.heard()
        return session

    @classmethod
    def in_session(
        cls, settings: ConnectionSettings | None = None, **fields: Any
    ) -> "tuple[Peer, Session]":
        """A peer that has opened and begun a session with a serving engine."""
        peer = cls(settings)
        peer.open(**fields)
        return peer, peer.begin()

    def attach_sender(self, name: str = "s", handle: int = 0, **accept: Any) -> ReceiverLink:
        """A link on which the peer sends; the engine's end, accepted."""
        asked = self.say(sender_attach(name, handle))
        link = only(AttachReceived, asked).link
        assert isinstance(link, ReceiverLink)
        link.accept(**accept)
        self.heard()
        return link

    def attach_receiver(self, name: str = "r", handle: int = 0, **accept: Any) -> SenderLink:
        """A link on which the peer receives; the engine's end, accepted."""
        asked = self.say(receiver_attach(name, handle))
        link = only(AttachReceived, asked).link
        assert isinstance(link, SenderLink)
        link.accept(**accept)
        self.heard()
        return link

    def grant(self, handle: int, credit: int, window: int = 1000, **fields: Any) -> list[Event]:
        """A flow that gives the engine credit to send."""
        return self.say(Flow(0, window, 0, 1000, handle, link_credit=credit, **fields))

    def send(
        self, delivery_id: int | None, payload: bytes = b"hello", handle: int = 0, **fields: Any
    ) -> list[Event]:
        """One transfer frame."""
        tag = None if delivery_id is None else delivery_id.to_bytes(4, "big")
        return self.say(Transfer(handle, delivery_id, tag, 0, **fields), payload=payload)


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
    """The messages among the events."""
    return [delivery.payload for delivery in of(Delivery, events)]
