"""What the engine tells: each event is something that a peer did, or that ended a part of the talk.

`by_peer` is False where our own side ended it because the peer broke the protocol.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pairbus.amqp.performatives import Open
from pairbus.errors import AmqpError

if TYPE_CHECKING:
    from pairbus.amqp.link import Link, ReceiverLink, SenderLink
    from pairbus.amqp.session import Session


@dataclass(frozen=True, slots=True)
class Authenticated:
    """SASL is over. On a server, `identity` is what its check made of the client."""

    mechanism: str
    identity: Any


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer's open has arrived."""

    open: Open


@dataclass(frozen=True, slots=True)
class Begun:
    """A session is there: one that we asked for, or one that the peer began."""

    session: "Session"


@dataclass(frozen=True, slots=True)
class AttachReceived:
    """The peer asks for a link. Answer with `link.accept()` or `link.refuse()`."""

    link: "Link"


@dataclass(frozen=True, slots=True)
class Attached:
    """A link that we asked for is there."""

    link: "Link"


class Delivery:
    """A message has arrived whole. Not frozen, for speed; treat it as if it were."""

    __slots__ = ("id", "link", "message_format", "payload", "settled", "state", "tag")

    def __init__(
        self,
        link: "ReceiverLink",
        id: int,
        tag: bytes,
        payload: bytes,
        message_format: int,
        settled: bool,
        state: Any = None,
    ) -> None:
        self.link = link
        self.id = id
        self.tag = tag
        self.payload = payload
        self.message_format = message_format
        self.settled = settled
        self.state = state

    def __repr__(self) -> str:
        return f"Delivery(id={self.id}, tag={self.tag!r}, {len(self.payload)} bytes)"


@dataclass(frozen=True, slots=True)
class DeliveryAborted:
    """The peer took back a delivery whose first frames had arrived."""

    link: "ReceiverLink"
    id: int


class OutgoingDelivery:
    """A delivery of ours. It has an id once its first frame is written."""

    __slots__ = ("context", "id", "link", "settled", "tag")

    def __init__(self, link: "SenderLink", tag: bytes | None, settled: bool) -> None:
        self.link = link
        self.tag = tag
        self.settled = settled
        self.id: int | None = None
        self.context: Any = None
        """Free for the program that uses the engine."""

    def __repr__(self) -> str:
        return f"Sent(id={self.id}, tag={self.tag!r})"


@dataclass(frozen=True, slots=True)
class OutgoingDeliveriesUpdated:
    """The peer says how deliveries of ours fared. `settled`: it has forgotten them, and so have
    we."""

    session: "Session"
    deliveries: list[OutgoingDelivery]
    state: Any
    settled: bool


@dataclass(frozen=True, slots=True)
class IncomingDeliveriesUpdated:
    """The peer has settled deliveries that it sent, or says more of their state."""

    session: "Session"
    deliveries: list[Delivery]
    state: Any
    settled: bool


@dataclass(frozen=True, slots=True)
class FlowReceived:
    """Credit, drain or the session's window has changed. Without a link: the window alone."""

    session: "Session"
    link: "Link | None"


@dataclass(frozen=True, slots=True)
class Detached:
    """A link has ended. What was sent on it and not settled is in doubt."""

    link: "Link"
    error: AmqpError | None
    closed: bool
    by_peer: bool = True


@dataclass(frozen=True, slots=True)
class Ended:
    """A session has ended, and its links with it."""

    session: "Session"
    error: AmqpError | None
    by_peer: bool = True


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection has ended, and all that was on it. Write what is left to write, and hang
    up."""

    error: AmqpError | None
    by_peer: bool = True


Event = (
    Authenticated
    | Opened
    | Begun
    | AttachReceived
    | Attached
    | Delivery
    | DeliveryAborted
    | OutgoingDeliveriesUpdated
    | IncomingDeliveriesUpdated
    | FlowReceived
    | Detached
    | Ended
    | Closed
)
