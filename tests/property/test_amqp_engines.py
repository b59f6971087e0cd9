"""Two engines exchange random actions over pipes that keep the order, and stay consistent.

Data travels in chunks of any size, so that frames of both sides cross: credit and deliveries,
drains and revoked credit, detaches and deliveries in transit. No engine violates the protocol,
messages of a link arrive in order, and both sides agree when all data has arrived.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import (
    Attached,
    AttachReceived,
    Begun,
    Closed,
    Delivery,
    DeliveryAborted,
    Detached,
    Ended,
    Event,
    OutgoingDeliveriesUpdated,
)
from pairbus.amqp.link import Link, ReceiverLink, SenderLink
from pairbus.amqp.performatives import Accepted, Released, Source, Target
from pairbus.amqp.serial import SERIAL_MASK
from pairbus.amqp.session import Session
from pairbus.amqp.settings import ConnectionSettings

SIDES = (0, 1)
picks = st.integers(0, 2**16)
amounts = st.integers(0, 12)


class EnginePair(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.engines: list[Connection] = []
        self.pipes = [bytearray(), bytearray()]
        """The data that each side has written and the other has not received."""
        self.sessions: list[Session] = []
        self.links: list[dict[str, Link]] = [{}, {}]
        self.names = 0
        self.sent: dict[str, list[bytes]] = {}
        self.received: dict[str, list[bytes]] = {}
        self.unfinished: dict[str, bytes] = {}

    @initialize(
        windows=st.tuples(st.integers(2, 9), st.integers(2, 9)),
        frames=st.tuples(st.sampled_from([512, 600, 4096]), st.sampled_from([512, 4096])),
        start=st.sampled_from([0, 2**32 - 3]),
        credits_=st.tuples(amounts, amounts, amounts, amounts),
    )
    def open(
        self,
        windows: tuple[int, int],
        frames: tuple[int, int],
        start: int,
        credits_: tuple[int, ...],
    ) -> None:
        self.engines = [
            Connection(
                ConnectionSettings(
                    container_id=str(side),
                    incoming_window=windows[side],
                    max_frame_size=frames[side],
                ),
                client=side == 0,
                now=0.0,
            )
            for side in SIDES
        ]
        self.sessions = [self.engines[0].begin()]
        self.flush()
        assert len(self.sessions) == 2
        for session in self.sessions:
            session.outgoing.next_delivery_id = start
        for side in SIDES:
            self.attach(side, True)
            self.attach(side, False)
        self.flush()
        for number, credit in enumerate(credits_):
            self.flow(number, credit, False, False)
        self.flush()

    # Actions of both sides.

    @rule(side=st.sampled_from(SIDES), sends=st.booleans())
    def attach(self, side: int, sends: bool) -> None:
        if len(self.links[side]) >= 6:
            return
        name = f"link {self.names}"
        self.names += 1
        session = self.sessions[side]
        self.links[side][name] = (
            session.attach_sender(name, target=Target("q"))
            if sends
            else session.attach_receiver(name, source=Source("q"))
        )
        self.sent[name], self.received[name] = [], []

    @rule(pick=picks, credit=amounts, drain=st.booleans(), echo=st.booleans())
    def flow(self, pick: int, credit: int, drain: bool, echo: bool) -> None:
        link = self.pick(ReceiverLink, pick)
        if link is not None:
            link.flow(credit, drain=drain, echo=echo)

    @rule(
        pick=picks,
        size=st.sampled_from([0, 1, 100, 500, 3000]),
        settled=st.booleans(),
        more=st.sampled_from([False, False, True]),
        times=st.integers(1, 6),
    )
    def send(self, pick: int, size: int, settled: bool, more: bool, times: int) -> None:
        link = self.pick(SenderLink, pick, self.can_send)
        while link is not None and times and self.can_send(link):
            times -= 1
            number = len(self.sent[link.name])
            payload = bytes((number % 251,)) * size
            link.send(payload, settled=settled, more=more)
            whole = self.unfinished.pop(link.name, b"") + payload
            if more:
                self.unfinished[link.name] = whole
            else:
                self.sent[link.name].append(whole)

    @rule(pick=picks)
    def abort(self, pick: int) -> None:
        link = self.pick(SenderLink, pick)
        if link is not None:
            link.abort()
            self.unfinished.pop(link.name, None)

    @rule(pick=picks)
    def drained(self, pick: int) -> None:
        link = self.pick(SenderLink, pick)
        if link is not None:
            link.drained()

    @rule(pick=picks, echo=st.booleans())
    def send_flow(self, pick: int, echo: bool) -> None:
        link = self.pick(SenderLink, pick)
        if link is not None:
            link.write_flow(echo=echo)

    @rule(side=st.sampled_from(SIDES), pick=picks, width=st.integers(0, 4), settled=st.booleans())
    def settle(self, side: int, pick: int, width: int, settled: bool) -> None:
        if not self.sessions[side].incoming.unsettled:
            side = 1 - side
        inbound = self.sessions[side].incoming
        known = list(inbound.unsettled)
        if not known:
            return
        place = pick % len(known)
        first, last = known[place], known[min(place + width, len(known) - 1)]
        if (
            last - first
        ) & SERIAL_MASK > SERIAL_MASK >> 1:  # A large message can arrive after later ones.
            first, last = last, first
        # An application settles complete deliveries only.
        wide = (last - first) & SERIAL_MASK
        if any((half.id - first) & SERIAL_MASK <= wide for half in inbound._partials.values()):
            last = first
        state = Accepted() if settled else Released()
        self.sessions[side].settle(first, last, state, settled=settled)

    @rule(side=st.sampled_from(SIDES), pick=picks)
    def confirm(self, side: int, pick: int) -> None:
        if not self.sessions[side].outgoing.unsettled:
            side = 1 - side
        unsettled = self.sessions[side].outgoing.unsettled.values()
        known = [sent.id for sent in unsettled if not self.half_sent(sent)]
        waiting = self.sessions[side].outgoing.queued
        if known and not waiting:
            first = known[pick % len(known)]
            self.sessions[side].confirm(first, first, Accepted())

    @rule(pick=picks, closed=st.booleans())
    def detach(self, pick: int, closed: bool) -> None:
        link = self.pick(Link, pick)
        if link is not None:
            link.detach(closed=closed)
            self.unfinished.pop(link.name, None)

    @rule(side=st.sampled_from(SIDES), size=st.sampled_from([1, 10, 50, 300, 5000]))
    def transmit(self, side: int, size: int) -> None:
        """Deliver some of the data to the other side."""
        self.pipes[side] += self.engines[side].data_to_send()
        chunk = bytes(self.pipes[side][:size])
        del self.pipes[side][:size]
        for event in self.engines[1 - side].receive(chunk, 0.0):
            self.record_event(1 - side, event)

    @precondition(lambda self: bool(self.engines))
    @rule()
    def check_agreement(self) -> None:
        """Deliver all data, and check that both sides agree."""
        self.flush()
        for side in SIDES:
            assert not self.sessions[side].outgoing.queued
        assert self.links[0].keys() == self.links[1].keys()
        for name, link in self.links[0].items():
            other = self.links[1][name]
            sender, receiver = (link, other) if isinstance(link, SenderLink) else (other, link)
            assert isinstance(receiver, ReceiverLink)
            assert sender.alive
            assert receiver.alive
            assert sender.credit == receiver.credit
            assert sender.delivery_count == receiver.delivery_count
            assert self.received[name] == self.sent[name]
        for side in SIDES:
            sending, receiving = self.sessions[side], self.sessions[1 - side]
            half = {sent for sent in sending.outgoing.unsettled.values() if self.half_sent(sent)}
            assert {
                key: sent.tag
                for key, sent in sending.outgoing.unsettled.items()
                if sent not in half
            } == {key: delivery.tag for key, delivery in receiving.incoming.unsettled.items()}
        buffered = sum(len(payload) for payload in self.unfinished.values())
        assert sum(engine.buffered for engine in self.engines) == buffered

    # Invariants.

    @invariant()
    def credit_is_never_negative(self) -> None:
        for links in self.links:
            for link in links.values():
                assert link.credit >= 0
                assert not isinstance(link, ReceiverLink) or link.revoked_credit >= 0

    @invariant()
    def messages_arrive_in_order(self) -> None:
        for name, received in self.received.items():
            assert received == self.sent[name][: len(received)]

    def teardown(self) -> None:
        if self.engines:
            self.check_agreement()

    # Helpers.

    def pick(self, kind: Any, number: int, wanted: Callable[[Any], bool] = bool) -> Any:
        candidates = [
            link
            for links in self.links
            for link in links.values()
            if isinstance(link, kind) and wanted(link)
        ]
        return candidates[number % len(candidates)] if candidates else None

    def can_send(self, link: SenderLink) -> bool:
        return link.alive and (link.credit > 0 or link.name in self.unfinished)

    def half_sent(self, sent: Any) -> bool:
        """Return whether the last frame of a delivery was not sent."""
        unfinished = sent.link._unfinished
        return unfinished is not None and unfinished[0] is sent

    def flush(self) -> None:
        while any(self.pipes) or any(engine.has_data_to_send for engine in self.engines):
            for side in SIDES:
                self.transmit(side, 1 << 30)

    def record_event(self, side: int, event: Event) -> None:
        assert not isinstance(event, Closed | Ended), f"{event} on side {side}"
        if isinstance(event, Begun):
            if event.session not in self.sessions:
                self.sessions.append(event.session)
        elif isinstance(event, AttachReceived):
            self.links[side][event.link.name] = event.link
            event.link.accept(initial_delivery_count=2**32 - 2)
        elif isinstance(event, Delivery):
            self.received[event.link.name].append(event.payload)
        elif isinstance(event, Detached):
            assert event.by_peer, f"{event} on side {side}"
            assert event.error is None or "before its attach was answered" in str(event.error)
            assert self.links[side].pop(event.link.name) is event.link
            self.unfinished.pop(event.link.name, None)
        elif isinstance(event, OutgoingDeliveriesUpdated):
            assert event.deliveries
        else:
            assert isinstance(event, DeliveryAborted | Attached) or type(event).__name__ in (
                "Opened",
                "FlowReceived",
                "IncomingDeliveriesUpdated",
            )


class TestEngines(EnginePair.TestCase):  # type: ignore[name-defined, misc]
    settings = settings(stateful_step_count=40)
