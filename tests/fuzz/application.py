"""A deterministic application that reacts to the events of an engine as the protocol requires."""

from collections.abc import Sequence
from typing import Any

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import (
    Attached,
    AttachReceived,
    Begun,
    Delivery,
    Detached,
    Event,
    FlowReceived,
    Opened,
    OutgoingDeliveriesUpdated,
)
from pairbus.amqp.link import ReceiverLink, SenderLink
from pairbus.amqp.performatives import (
    SETTLE_SECOND,
    SETTLE_SETTLED,
    Accepted,
    Error,
    Modified,
    Rejected,
    Source,
    Target,
)
from pairbus.amqp.types import Symbol
from pairbus.errors import AmqpError, EncodeError, EntityNotFound, StateError

SIZES = (0, 10, 700, 3000)
MAX_MESSAGES = 200
"""The maximum number of messages that an application sends, regardless of its credit."""


class Application:
    """Reacts to events. A client attaches links, uses them, and closes them and the connection."""

    def __init__(self, engine: Connection, *, client: bool) -> None:
        self.engine = engine
        self.client = client
        self.sent = 0
        self.received = 0
        self.ended = 0

    def react(self, events: Sequence[Event]) -> None:
        for event in events:
            try:
                self._react(event)
            except (StateError, EncodeError):
                # Documented errors: no handle or channel is free, or the peer's limits are too low.
                continue

    def _react(self, event: Event) -> None:
        if isinstance(event, Opened) and self.client:
            self.engine.begin()
        elif isinstance(event, Begun) and self.client:
            self._attach_links(event.session)
        elif isinstance(event, AttachReceived):
            self._answer(event.link)
        elif isinstance(event, Attached) and isinstance(event.link, ReceiverLink):
            event.link.flow(4, echo=True)
        elif isinstance(event, Delivery):
            self._on_delivery(event)
        elif isinstance(event, FlowReceived) and isinstance(event.link, SenderLink):
            self._send(event.link)
        elif isinstance(event, OutgoingDeliveriesUpdated):
            if not event.settled:
                event.session.confirm(event.deliveries[0].id, event.deliveries[-1].id, event.state)
            self._send(event.deliveries[0].link)
        elif isinstance(event, Detached) and self.client and event.by_peer:
            self._on_detached(event.link)

    def _attach_links(self, session: Any) -> None:
        properties = {Symbol("com.microsoft:timeout"): 5000}
        session.attach_sender("sender", target=Target("queue"), properties=properties)
        session.attach_receiver(
            "receiver", source=Source("queue"), rcv_settle_mode=SETTLE_SECOND, max_message_size=5000
        )
        session.attach_receiver("settled", source=Source("q"), snd_settle_mode=SETTLE_SETTLED)
        session.attach_sender("refused", target=Target("refused"))

    def _answer(self, link: Any) -> None:
        terminus = link.remote.target if isinstance(link, ReceiverLink) else link.remote.source
        if isinstance(terminus, Source | Target) and terminus.address == "refused":
            link.refuse(EntityNotFound("no such queue"))
            return
        try:
            link.accept(max_message_size=10_000)
        except EncodeError:
            link.refuse(AmqpError("the attach does not fit into a frame"))
            return
        if isinstance(link, ReceiverLink):
            link.flow(5)

    def _on_delivery(self, delivery: Delivery) -> None:
        self.received += 1
        link = delivery.link
        if not delivery.settled:
            states = (Accepted(), Rejected(Error("a:b", "no", {Symbol("k"): 1})), Modified(True))
            second = link.local is not None and link.local.rcv_settle_mode == SETTLE_SECOND
            state = states[self.received % 3]
            link.session.settle(delivery.id, delivery.id, state, settled=not second)
        if self.received % 4 == 0:
            link.flow(4, drain=self.received % 8 == 0)
        if self.received == 10:
            link.detach(AmqpError("enough", condition="a:enough"))

    def _send(self, link: SenderLink) -> None:
        for _ in range(3):
            if not link.alive or link.credit <= 0 or self.sent >= MAX_MESSAGES:
                break
            self.sent += 1
            size = SIZES[self.sent % len(SIZES)]
            more = self.sent % 5 == 0
            link.send(b"x" * size, message_format=self.sent % 3, more=more)
            if more and self.sent % 2:
                link.send(b"y")
            else:
                link.abort()
        link.drained()

    def _on_detached(self, link: Any) -> None:
        self.ended += 1
        if self.ended == 3:
            for other in link.session.links:
                other.detach(closed=False)
        elif self.ended == 4:
            link.session.end()
            self.engine.begin().end(AmqpError("not needed"))
            self.engine.close()
