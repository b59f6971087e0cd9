"""Events that a Connection returns: actions of the peer, and the end of links, sessions and the
connection.

`by_peer` is False if our engine ended the endpoint because the peer violated the protocol.
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
    """SASL succeeded. On a server, `identity` is the value that the mechanism's check returned."""

    mechanism: str
    identity: Any


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer's open arrived."""

    open: Open


@dataclass(frozen=True, slots=True)
class Begun:
    """A session was begun by both peers, whichever of them began it first."""

    session: "Session"


@dataclass(frozen=True, slots=True)
class AttachReceived:
    """The peer wants to attach a link. Answer with `link.accept()` or `link.refuse()`."""

    link: "Link"


@dataclass(frozen=True, slots=True)
class Attached:
    """The peer accepted a link that we wanted to attach."""

    link: "Link"


@dataclass(slots=True, eq=False, repr=False)
class Delivery:
    """A complete message arrived. Treat it as immutable: it is not frozen only for speed."""

    link: "ReceiverLink"
    id: int
    tag: bytes
    payload: bytes
    message_format: int
    settled: bool
    state: Any = None

    def __repr__(self) -> str:
        return f"Delivery(id={self.id}, tag={self.tag!r}, {len(self.payload)} bytes)"


@dataclass(frozen=True, slots=True)
class DeliveryAborted:
    """The peer aborted a delivery after some of its frames had arrived."""

    link: "ReceiverLink"
    id: int


@dataclass(slots=True, eq=False, repr=False)
class OutgoingDelivery:
    """A delivery that we send. Its id is assigned when its first frame is written."""

    link: "SenderLink"
    tag: bytes | None
    settled: bool
    id: int | None = None
    context: Any = None
    """Free for use by the application."""

    def __repr__(self) -> str:
        return f"OutgoingDelivery(id={self.id}, tag={self.tag!r})"


@dataclass(frozen=True, slots=True)
class OutgoingDeliveriesUpdated:
    """The receiving peer reported the state of deliveries that we sent.

    If `settled` is set, the peer and our engine no longer track the deliveries.
    """

    session: "Session"
    deliveries: list[OutgoingDelivery]
    state: Any
    settled: bool


@dataclass(frozen=True, slots=True)
class IncomingDeliveriesUpdated:
    """The sending peer settled deliveries that we received, or changed their state."""

    session: "Session"
    deliveries: list[Delivery]
    state: Any
    settled: bool


@dataclass(frozen=True, slots=True)
class FlowReceived:
    """The peer changed link credit, drain or its session window. `link` is None for a flow that
    carries only the window."""

    session: "Session"
    link: "Link | None"


@dataclass(frozen=True, slots=True)
class Detached:
    """A link ended. The outcome of its unsettled outgoing deliveries is unknown."""

    link: "Link"
    error: AmqpError | None
    closed: bool
    by_peer: bool = True


@dataclass(frozen=True, slots=True)
class Ended:
    """A session ended, and its links with it."""

    session: "Session"
    error: AmqpError | None
    by_peer: bool = True


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection ended, and all its sessions and links with it. Write the remaining output,
    then close the socket."""

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
