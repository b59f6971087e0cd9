"""Apache Qpid proton as a peer: what its client and broker have in common, and the client.

Both take deliveries as bytes, as they came, and keep what they saw.
"""

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from proton import (
    Condition,
    Connection,
    Delivery,
    Endpoint,
    Event,
    Link,
    Message,
    Receiver,
    Sender,
    Session,
    Transport,
)
from proton.handlers import EndpointStateHandler, MessagingHandler
from proton.reactor import Container

T = TypeVar("T")
DEADLINE_S = 20.0
TURN_S = 0.02
"""How long a turn of proton's loop waits for its sockets."""


class Arrived(NamedTuple):
    """A delivery that came, and whether it came settled."""

    address: str | None
    payload: bytes
    settled: bool
    delivery: Delivery

    @property
    def message(self) -> Message:
        message = Message()
        message.decode(self.payload)
        return message


class Outcome(NamedTuple):
    """What became of a delivery that proton sent."""

    tag: str
    state: Any
    settled: bool
    condition: Condition | None
    failed: bool
    undeliverable: bool
    annotations: Any


class Fault(NamedTuple):
    """What a peer said when it ended something, or why proton's transport broke."""

    where: str
    condition: Condition | None


class ProtonPeer(MessagingHandler):
    """What client and server have in common."""

    def __init__(self) -> None:
        super().__init__(prefetch=0)
        # The stock handler for incoming messages decodes what it reads; the tests want the bytes.
        self.handlers = [h for h in self.handlers if isinstance(h, EndpointStateHandler)]
        self.container = Container(self)
        self.container.timeout = TURN_S
        self.transports: list[Transport] = []
        self.arrived: list[Arrived] = []
        self.outcomes: list[Outcome] = []
        self.aborted = 0
        self.faults: list[Fault] = []
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
            # Reading what is there, though more is to come, opens the session's window again.
            self._parts[link.name].append(link.recv(delivery.pending))
            if not delivery.partial:
                payload = b"".join(self._parts.pop(link.name))
                address = link.source.address or link.target.address
                arrived = Arrived(address, payload, delivery.settled, delivery)
                link.advance()
                self.on_arrived(arrived, link)
        elif delivery.updated:
            self.on_confirmed(delivery)

    def on_arrived(self, arrived: Arrived, link: Receiver) -> None:
        self.arrived.append(arrived)

    def on_confirmed(self, delivery: Delivery) -> None:
        """The sender has settled what this end received."""

    def on_outcome(self, delivery: Delivery, link: Sender) -> None:
        state = delivery.remote
        self.outcomes.append(
            Outcome(
                delivery.tag,
                state.type,
                delivery.settled,
                state.condition,
                state.failed,
                state.undeliverable,
                state.annotations,
            )
        )
        if delivery.settled:
            delivery.settle()

    def on_transport_error(self, event: Event) -> None:
        self.faults.append(Fault("transport", event.transport.condition))

    def on_connection_error(self, event: Event) -> None:
        self.faults.append(Fault("connection", event.connection.remote_condition))

    def on_session_error(self, event: Event) -> None:
        self.faults.append(Fault("session", event.session.remote_condition))

    def on_link_error(self, event: Event) -> None:
        self.faults.append(Fault("link", event.link.remote_condition))


def post(link: Sender, message: Message | bytes, tag: str | None = None) -> Delivery:
    """Send a message, or the bytes of one, as proton's own Message.send does."""
    delivery = link.delivery(link.delivery_tag() if tag is None else tag)
    link.stream(message.encode() if isinstance(message, Message) else message)
    if link.snd_settle_mode == Link.SND_SETTLED:
        delivery.settle()
    link.advance()
    return delivery


def settle(delivery: Delivery, state: int = Delivery.ACCEPTED) -> None:
    delivery.update(state)
    delivery.settle()


class ProtonClient(ProtonPeer):
    """A client. Its loop turns only while the test waits in `until`: in between it is frozen."""

    def __init__(self, port: int, *, scheme: str = "amqp", **options: Any) -> None:
        super().__init__()
        self.confirmed: list[Delivery] = []
        # Left to itself, proton names all links to one address on one connection the same.
        self._names = map("link-{}".format, itertools.count())
        self.container.start()
        options = {"reconnect": False, **options}
        url = f"{scheme}://127.0.0.1:{port}"
        self.connection: Connection = self.container.connect(url, **options)

    def __enter__(self) -> "ProtonClient":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def until(self, condition: Callable[[], T], timeout: float = DEADLINE_S) -> T:
        """Turn the loop until the condition holds, and give what it gave."""
        deadline = time.monotonic() + timeout
        while not (result := condition()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"proton's client did not come to that in {timeout:g} seconds")
            self.container.process()
        return result

    def close(self) -> None:
        """Close the connection where it is open, and hang up. May be called again."""
        connection = self.connection
        if connection.state & Endpoint.LOCAL_ACTIVE:
            connection.close()
        if connection.state & Endpoint.REMOTE_ACTIVE:
            self.until(lambda: connection.state & Endpoint.REMOTE_CLOSED or self._is_cut_off)
        if connection.state & Endpoint.REMOTE_CLOSED:
            self.until(lambda: self._is_cut_off)
        hang_up(self.transports)
        self.until(lambda: not self.container.process())

    @property
    def _is_cut_off(self) -> bool:
        return all(transport.closed for transport in self.transports)

    def on_confirmed(self, delivery: Delivery) -> None:
        self.confirmed.append(delivery)
        delivery.settle()

    def session(self) -> Session:
        session = self.connection.session()
        session.open()
        return session

    def sender(self, address: str, *, on: Session | None = None, options: Any = None) -> Sender:
        """A link to send on, open and with credit."""
        context = self.connection if on is None else on
        link = self.container.create_sender(
            context, address, name=next(self._names), options=options
        )
        self.until(lambda: link.state & Endpoint.REMOTE_ACTIVE and link.credit > 0)
        return link

    def receiver(
        self, address: str, *, credit: int = 0, on: Session | None = None, options: Any = None
    ) -> Receiver:
        """A link to receive on, open."""
        context = self.connection if on is None else on
        link = self.container.create_receiver(
            context, address, name=next(self._names), options=options
        )
        if credit:
            link.flow(credit)
        self.until(lambda: link.state & Endpoint.REMOTE_ACTIVE)
        return link

    def send(self, link: Sender, *messages: Message | bytes) -> list[Outcome]:
        """Send, and wait for what becomes of each message, unless it was sent settled."""
        before = len(self.outcomes)
        for message in messages:
            self.until(lambda: link.credit > 0)
            post(link, message)
        if link.snd_settle_mode == Link.SND_SETTLED:
            return []
        self.until(lambda: len(self.outcomes) >= before + len(messages))
        return self.outcomes[before:]

    def receive(self, count: int = 1) -> list[Arrived]:
        """The next deliveries, on whatever link they come."""
        self.until(lambda: len(self.arrived) >= count)
        taken, self.arrived = self.arrived[:count], self.arrived[count:]
        return taken


def hang_up(transports: Iterable[Transport]) -> None:
    """End proton's side of the sockets; its loop closes them then."""
    for transport in transports:
        if not transport.closed:
            transport.close_tail()
            transport.close_head()
