"""Session windows: queued frames, renewal, and the order of flows and transfers."""

import pytest

from pairbus.amqp.events import Delivery, Detached, Ended, FlowReceived, OutgoingDeliveriesUpdated
from pairbus.amqp.link import SenderLink
from pairbus.amqp.performatives import (
    Accepted,
    Begin,
    Detach,
    Disposition,
    Flow,
    Transfer,
)
from pairbus.amqp.settings import ConnectionSettings
from tests.unit.amqp.engines import (
    EnginePair,
    ScriptedPeer,
    WrittenFrame,
    events_of,
    only,
    payloads,
    receiver_attach,
)


def small_window(window: int = 4) -> ConnectionSettings:
    return ConnectionSettings(container_id="engine", incoming_window=window)


def sending_peer(window: int, credit: int = 100) -> tuple[ScriptedPeer, SenderLink]:
    """Return a peer with a window of `window` frames, and the sender of the engine."""
    peer = ScriptedPeer()
    peer.open(max_frame_size=512)
    peer.begin(window)
    link = peer.attach_receiver()
    peer.grant(0, credit, window)
    peer.frames()
    return peer, link


def transfers(reported: list[WrittenFrame]) -> list[bytes]:
    return [frame.payload for frame in reported if isinstance(frame.performative, Transfer)]


def test_sender_stops_at_the_window_and_continues_in_order() -> None:
    peer, link = sending_peer(window=2)
    for number in range(5):
        link.send(b"%d" % number)

    assert transfers(peer.frames()) == [b"0", b"1"]
    peer.deliver(Flow(2, 1, 0, 100))
    assert transfers(peer.frames()) == [b"2"]
    peer.deliver(Flow(3, 100, 0, 100))
    assert transfers(peer.frames()) == [b"3", b"4"]


def test_deliveries_are_queued_in_order() -> None:
    peer, link = sending_peer(window=1)
    link.send(b"0")
    link.send(b"1")
    peer.deliver(Flow(1, 1, 0, 100))
    link.send(b"2")
    peer.deliver(Flow(2, 100, 0, 100))
    link.send(b"3")

    assert transfers(peer.frames()) == [b"0", b"1", b"2", b"3"]


def test_frames_of_a_large_message_are_queued_separately() -> None:
    peer, link = sending_peer(window=2)
    link.send(b"a" * 416 + b"b" * 416 + b"c" * 100)

    assert transfers(peer.frames()) == [b"a" * 416, b"b" * 416]
    peer.deliver(Flow(2, 1, 0, 100))
    (last,) = peer.frames()
    assert last.payload == b"c" * 100
    assert not last.performative.more


def test_frames_in_transit_count_against_the_window() -> None:
    peer, link = sending_peer(window=10)
    for number in range(4):
        link.send(b"%d" % number)

    peer.deliver(Flow(1, 5, 0, 100))  # It has received one of four, and accepts five more.

    assert link.session.outgoing.window == 2


def test_window_below_the_frames_in_transit_is_closed() -> None:
    peer, link = sending_peer(window=10)
    for number in range(4):
        link.send(b"%d" % number)
    peer.frames()

    peer.deliver(Flow(1, 2, 0, 100))
    link.send(b"4")

    assert link.session.outgoing.window == 0
    assert peer.frames() == []


@pytest.mark.parametrize("window", [2**31, 2**32 - 1])
def test_maximum_windows_are_accepted(window: int) -> None:
    peer, link = sending_peer(window=window)
    link.send(b"0")

    peer.deliver(Flow(1, window, 0, 100))
    link.send(b"1")

    assert transfers(peer.frames()) == [b"0", b"1"]


def test_flow_without_next_incoming_id_counts_from_our_first_frame() -> None:
    peer, link = sending_peer(window=10)
    link.send(b"0")

    peer.deliver(Flow(None, 3, 0, 100))

    assert link.session.outgoing.window == 2


def test_transfer_ids_wrap_around() -> None:
    peer, link = sending_peer(window=10)
    outbound = link.session.outgoing
    outbound.next_id = 2**32 - 2
    peer.deliver(Flow(2**32 - 2, 3, 0, 100))
    for number in range(5):
        link.send(b"%d" % number)

    assert transfers(peer.frames()) == [b"0", b"1", b"2"]
    assert outbound.next_id == 1
    peer.deliver(Flow(0, 2, 0, 100))  # It has received two, and accepts two: one is in transit.
    assert transfers(peer.frames()) == [b"3"]


def test_window_is_renewed_when_half_of_it_is_used() -> None:
    peer, session = ScriptedPeer.in_session(small_window(4))
    peer.attach_sender().flow(100)
    peer.frames()

    peer.send(0)
    assert peer.frames() == []
    peer.send(1)

    (written,) = peer.performatives()
    assert written == Flow(2, 4, 0, 5000)
    assert session.incoming.window == 4


def test_flow_counts_received_frames_from_the_peers_first_id() -> None:
    peer = ScriptedPeer(small_window(100))
    peer.open()
    peer.deliver(Begin(None, 2**32 - 1, 100, 100))
    peer.attach_sender().flow(100)
    peer.send(0)
    peer.send(1)
    peer.frames()

    peer.deliver(Flow(0, 100, 1, 100, echo=True))

    assert peer.performatives() == [Flow(1, 98, 0, 5000)]


def test_long_stream_never_stalls_with_the_smallest_windows() -> None:
    pair = EnginePair(
        client=ConnectionSettings(container_id="client", incoming_window=2),
        server=ConnectionSettings(container_id="server", incoming_window=2, max_frame_size=512),
    )
    session, _ = pair.session()
    sender, receiver = pair.sender(session)
    receiver.flow(200)
    pair.run()

    sent = [bytes([number]) * (number * 40) for number in range(100)]
    for payload in sent:
        sender.send(payload)

    assert payloads(pair.run().server) == sent
    assert not session.outgoing.queued


def test_frame_beyond_the_window_ends_the_session() -> None:
    """The engine renews the window before it is used up, which this test prevents."""
    peer, session = ScriptedPeer.in_session(small_window(2))
    peer.attach_sender().flow(100)
    session.incoming._low_window = -1

    assert events_of(Ended, peer.send(0) + peer.send(1)) == []
    ended = only(Ended, peer.send(2))

    assert ended.error is not None
    assert ended.error.condition == "amqp:session:window-violation"


def test_session_flow_is_reported_and_echoed() -> None:
    peer, session = ScriptedPeer.in_session()

    assert peer.deliver(Flow(0, 7, 0, 7)) == [FlowReceived(session, None)]
    assert peer.frames() == []
    assert session.outgoing.window == 7
    peer.deliver(Flow(0, 7, 0, 7, echo=True))
    assert peer.performatives() == [Flow(0, 5000, 0, 5000)]


def test_no_transfer_follows_the_detach_of_its_link() -> None:
    peer, link = sending_peer(window=1)
    link.send(b"0")
    link.send(b"1")
    peer.frames()

    link.detach()
    peer.deliver(Flow(1, 100, 0, 100))

    assert [type(frame.performative) for frame in peer.frames()] == [Detach]


def waiting_on_two_links() -> tuple[ScriptedPeer, SenderLink, SenderLink]:
    """Return links a and b of one session: a0 is sent; a1, b0, a2 and b1 are queued."""
    peer, a = sending_peer(window=1)
    b = peer.attach_receiver("b", 1)
    peer.grant(1, 100, window=1)
    peer.frames()
    a.send(b"a0")
    for link, payload in ((a, b"a1"), (b, b"b0"), (a, b"a2"), (b, b"b1")):
        link.send(payload)
    assert transfers(peer.frames()) == [b"a0"]
    return peer, a, b


@pytest.mark.parametrize("by_peer", [True, False])
def test_detach_leaves_no_gap_in_queued_delivery_ids(by_peer: bool) -> None:
    """Proton and our engine end a session whose delivery ids have a gap."""
    peer, a, b = waiting_on_two_links()

    if by_peer:
        peer.deliver(Detach(0, True))
    else:
        a.detach()
    peer.deliver(Flow(1, 100, 0, 100))
    b.send(b"b2")

    sent = [frame for frame in peer.frames() if isinstance(frame.performative, Transfer)]
    assert [frame.payload for frame in sent] == [b"b0", b"b1", b"b2"]
    assert [frame.performative.delivery_id for frame in sent] == [1, 2, 3]


def test_delivery_id_is_assigned_with_the_first_frame() -> None:
    peer, a, b = waiting_on_two_links()
    late = b.send(b"b2")
    assert late.id is None
    a.detach()
    peer.deliver(Detach(0, True))

    peer.deliver(Flow(1, 100, 0, 100))

    assert late.id == 3
    events = peer.deliver(Disposition(True, 1, 3, False, Accepted()))
    updated = only(OutgoingDeliveriesUpdated, events)
    assert [sent.id for sent in updated.deliveries] == [1, 2, 3]
    assert updated.deliveries[-1] is late
    b.session.confirm(1, 2, Accepted())
    assert [sent.id for sent in b.session.outgoing.unsettled.values()] == [3]


def test_receiving_engine_continues_after_a_detach_with_queued_deliveries() -> None:
    pair = EnginePair(server=ConnectionSettings(container_id="server", incoming_window=2))
    session, _ = pair.session()
    a, on_a = pair.sender(session, "a")
    b, on_b = pair.sender(session, "b")
    on_a.flow(100)
    on_b.flow(100)
    pair.run()
    for _ in range(10):
        a.send(b"a")
        b.send(b"b")
    large = b.send(b"B" * 200_000)
    a.detach()

    reported = pair.run()

    assert events_of(Ended, reported.server) == []
    assert payloads(reported.server).count(b"b") == 10
    assert payloads(reported.server)[-1] == b"B" * 200_000
    on_b.session.settle(0, 100, Accepted())
    updated = only(OutgoingDeliveriesUpdated, pair.run().client)
    assert updated.deliveries[-1] is large
    assert session.outgoing.unsettled == {}


def test_queued_incomplete_delivery_can_be_aborted() -> None:
    peer, a, b = waiting_on_two_links()
    b.send(b"b2", more=True)
    a.detach()

    b.abort()
    peer.deliver(Flow(1, 100, 0, 100))

    written = [frame.performative for frame in peer.frames()][1:]
    assert [performative.delivery_id for performative in written] == [1, 2, 3, None]
    assert written[-1].aborted
    assert [sent.id for sent in b.session.outgoing.unsettled.values()] == [0, 1, 2]


@pytest.mark.parametrize("flow_request", ["echo", "drain"])
def test_flow_does_not_overtake_queued_deliveries(flow_request: str) -> None:
    """A receiver treats counted deliveries that have not arrived as returned credit."""
    peer, link = sending_peer(window=1, credit=10)
    link.send(b"0")
    link.send(b"1")
    link.send(b"2")
    peer.frames()

    peer.deliver(
        Flow(1, 0, 0, 100, 0, 1, 9, drain=flow_request == "drain", echo=flow_request == "echo")
    )
    link.drained()
    assert peer.frames() == []
    peer.deliver(Flow(1, 100, 0, 100))

    first, second, flow = peer.performatives()
    assert [first.delivery_id, second.delivery_id] == [1, 2]
    assert flow.handle == 0
    assert flow.next_outgoing_id == 3
    assert (flow.delivery_count, flow.link_credit) == (
        (10, 0) if flow_request == "drain" else (3, 7)
    )


def test_drain_during_a_closed_window_loses_no_message() -> None:
    pair = EnginePair(server=ConnectionSettings(container_id="server", incoming_window=2))
    session, _ = pair.session()
    sender, receiver = pair.sender(session)
    receiver.flow(10)
    pair.run()
    for number in range(6):
        sender.send(b"%d" % number)
    receiver.flow(10, drain=True)
    # Only the drain has arrived; no transfer was received, and the window is full.
    pair.client.receive(pair.server.data_to_send(), 0.0)
    sender.drained()

    reported = pair.run()

    assert len(events_of(Delivery, reported.server)) == 6
    assert events_of(Detached, reported.server) == []
    assert receiver.credit == 0
    assert receiver.delivery_count == sender.delivery_count == 10


def test_queued_flow_is_sent_when_the_frames_before_it_are_dropped() -> None:
    peer, link = sending_peer(window=1)
    other = peer.attach_receiver("other", 1)
    peer.grant(1, 10, window=1)
    peer.frames()
    link.send(b"0")
    link.send(b"1")
    other.write_flow()
    assert transfers(peer.frames()) == [b"0"]

    link.detach()

    written = peer.performatives()
    assert [type(performative) for performative in written] == [Flow, Detach]


def test_new_link_does_not_disturb_queued_frames() -> None:
    peer, link = sending_peer(window=1)
    link.send(b"0")
    link.send(b"1")
    peer.deliver(receiver_attach("new", 1))[0].link.accept()
    peer.deliver(Flow(1, 10, 0, 10))

    frames = [frame for frame in peer.frames() if isinstance(frame, WrittenFrame)]
    assert transfers(frames) == [b"0", b"1"]
