"""The part of proton's event loop that its client and server share."""

from collections import defaultdict
from collections.abc import Iterable

from proton import (
    Condition,
    Delivery,
    Event,
    Link,
    Sender,
    Transport,
)
from proton.handlers import EndpointStateHandler, MessagingHandler
from proton.reactor import Container

from tests.interop.messages import PeerMessage
from tests.interop.peers import (
    PeerError,
)
from tests.interop.proton_values import (
    error_from_proton,
    message_to_proton,
)

POLL_S = 0.02
"""The time for which a turn of proton's loop waits for its sockets."""


class ProtonHandler(MessagingHandler):
    """The part that client and server share: it reads deliveries as bytes."""

    def __init__(self) -> None:
        super().__init__(prefetch=0)
        # The default handler for incoming messages decodes them; the tests need the payload.
        self.handlers = [h for h in self.handlers if isinstance(h, EndpointStateHandler)]
        self.container = Container(self)
        self.container.timeout = POLL_S
        self.transports: list[Transport] = []
        self.errors: list[PeerError] = []
        self.aborted = 0
        self._parts: dict[str, list[bytes]] = defaultdict(list)

    def on_connection_bound(self, event: Event) -> None:
        self.transports.append(event.transport)

    def on_delivery(self, event: Event) -> None:
        delivery, link = event.delivery, event.link
        if link.is_sender:
            if delivery.updated:
                self.on_outcome(delivery, link)
        elif delivery.aborted:
            self.aborted += 1
            self._parts.pop(link.name, None)
            delivery.settle()
        elif delivery.readable:
            # Reading incomplete deliveries renews the window of the session.
            self._parts[link.name].append(link.recv(delivery.pending))
            if not delivery.partial:
                payload = b"".join(self._parts.pop(link.name))
                settled = delivery.settled
                link.advance()
                self.on_payload(payload, settled, delivery, link)
        elif delivery.updated:
            self.on_confirmed(delivery)

    def on_payload(self, payload: bytes, settled: bool, delivery: Delivery, link: Link) -> None:
        raise NotImplementedError

    def on_outcome(self, delivery: Delivery, link: Sender) -> None:
        raise NotImplementedError

    def on_confirmed(self, delivery: Delivery) -> None:
        """Called when the sender settled a delivery that this peer received."""

    def on_transport_error(self, event: Event) -> None:
        self._add_error("transport", event.transport.condition)

    def on_connection_error(self, event: Event) -> None:
        self._add_error("connection", event.connection.remote_condition)

    def on_session_error(self, event: Event) -> None:
        self._add_error("session", event.session.remote_condition)

    def on_link_error(self, event: Event) -> None:
        self._add_error("link", event.link.remote_condition)

    def _add_error(self, endpoint: str, condition: Condition | None) -> None:
        self.errors.append(PeerError(endpoint, error_from_proton(condition)))


def send(link: Sender, payload: bytes) -> Delivery:
    delivery = link.delivery(link.delivery_tag())
    link.stream(payload)
    if link.snd_settle_mode == Link.SND_SETTLED:
        delivery.settle()
    link.advance()
    return delivery


def encode(message: PeerMessage | bytes) -> bytes:
    return message if isinstance(message, bytes) else bytes(message_to_proton(message).encode())


def cut(transports: Iterable[Transport]) -> None:
    """Close proton's side of the sockets without a close frame."""
    for transport in transports:
        if not transport.closed:
            transport.close_tail()
            transport.close_head()
