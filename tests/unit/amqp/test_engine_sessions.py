"""Sessions: begin and end by both sides, and violations by the peer."""

import pytest

from pairbus.amqp.events import AttachReceived, Begun, Closed, Delivery, Ended
from pairbus.amqp.frames import AMQP_HEADER
from pairbus.amqp.performatives import (
    Accepted,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.settings import ConnectionSettings
from pairbus.errors import AmqpError, StateError
from tests.unit.amqp.engines import (
    EnginePair,
    ScriptedPeer,
    events_of,
    framed,
    only,
    pair_with_sender,
    receiver_attach,
    sender_attach,
)


def test_either_side_can_begin_a_session() -> None:
    pair = EnginePair()
    in_client = pair.client.begin()
    reported = pair.run()
    in_server = only(Begun, reported.server).session
    assert only(Begun, reported.client).session is in_client
    assert in_client.begun
    assert in_server.begun

    second = pair.server.begin()
    reported = pair.run()

    assert only(Begun, reported.server).session is second
    assert only(Begun, reported.client).session is not in_client


def test_channels_of_the_two_sides_need_not_be_the_same() -> None:
    peer = ScriptedPeer(client=True)
    session = peer.engine.begin()
    peer.feed(AMQP_HEADER + framed(Open("peer")))
    peer.deliver(Begin(0, 100, 10, 10), channel=42)
    peer.frames()

    assert session.channel == 0
    assert session.remote_channel == 42
    link = only(AttachReceived, peer.deliver(sender_attach(), channel=42)).link
    link.accept()

    assert [frame.channel for frame in peer.frames()] == [0]


def test_begin_contains_the_windows_and_handle_max_of_the_settings() -> None:
    settings = ConnectionSettings(
        container_id="engine", incoming_window=11, outgoing_window=12, handle_max=13
    )
    peer = ScriptedPeer(settings)
    peer.open()
    peer.frames()

    peer.deliver(Begin(None, 7, 1, 1), channel=3)

    assert peer.performatives() == [Begin(3, 0, 11, 12, 13)]


def test_both_sides_can_end_a_session_and_the_connection_continues() -> None:
    for ending in (0, 1):
        pair = EnginePair()
        sessions = pair.session()

        sessions[ending].end()
        reported = pair.run()

        assert [event.session for event in events_of(Ended, reported.client)] == [sessions[0]]
        assert [event.session for event in events_of(Ended, reported.server)] == [sessions[1]]
        assert only(Ended, reported.client).by_peer
        assert pair.session()[0] is not sessions[0]


def test_two_ends_that_cross_are_one_end() -> None:
    pair = EnginePair()
    in_client, in_server = pair.session()

    in_client.end()
    in_server.end()
    reported = pair.run()

    assert only(Ended, reported.client).session is in_client
    assert only(Ended, reported.server).session is in_server
    assert not pair.client.has_data_to_send


def test_end_is_idempotent() -> None:
    peer, session = ScriptedPeer.in_session()

    session.end()
    session.end(AmqpError("again"))

    assert peer.performatives() == [End()]


def test_ended_session_ends_its_links() -> None:
    pair, sender, receiver = pair_with_sender()
    sender.send(b"in flight")

    sender.session.end()

    assert not sender.alive
    with pytest.raises(StateError):
        sender.send(b"late")
    with pytest.raises(StateError, match="has ended"):
        sender.session.attach_sender("b", target=Target("q"))
    reported = pair.run()
    assert [type(event) for event in reported.server] == [Delivery, Ended]
    assert not receiver.alive


def test_calls_on_an_ended_session_and_its_links_do_nothing() -> None:
    """An application can process events although a later one ended the session."""
    pair, sender, receiver = pair_with_sender()
    sender.send(b"one")
    sender.session.end()
    delivery, _ = pair.run().server
    assert isinstance(delivery, Delivery)

    receiver.session.settle(delivery.id, delivery.id, Accepted())
    receiver.flow(10)
    receiver.detach()
    receiver.accept()
    receiver.refuse(AmqpError("no"))
    receiver.session.end()
    sender.session.confirm(0, 0, Accepted())
    sender.write_flow()
    sender.drained()
    sender.abort()

    assert not pair.server.has_data_to_send
    assert not pair.client.has_data_to_send


def test_frames_in_transit_when_we_end_a_session_are_ignored() -> None:
    peer, session = ScriptedPeer.in_session()
    link = peer.attach_sender()
    link.flow(10)
    session.end()
    peer.frames()

    events = peer.send(0) + peer.deliver(
        Flow(0, 10, 0, 10),
        Disposition(True, 0),
        sender_attach("new", 1),
        Detach(0),
    )

    assert events == []
    assert peer.frames() == []
    assert peer.deliver(End()) == [Ended(session, None)]
    assert peer.frames() == []


def test_frames_after_the_peers_end_close_the_connection() -> None:
    peer, _ = ScriptedPeer.in_session()

    events = peer.deliver(End(), Flow(0, 10, 0, 10))

    assert [type(event) for event in events] == [Ended, Closed]


def test_session_ended_before_it_was_answered_is_answered_and_ends() -> None:
    peer = ScriptedPeer(client=True)
    peer.feed(AMQP_HEADER + framed(Open("peer")))
    session = peer.engine.begin()
    session.end()
    assert [type(performative) for performative in peer.performatives()] == [Open, Begin, End]

    assert peer.deliver(Begin(0, 0, 1, 1), channel=7) == []
    assert peer.deliver(End(), channel=7) == [Ended(session, None)]
    assert peer.frames() == []
    assert peer.engine.begin().channel == session.channel


def test_links_can_be_attached_before_the_session_is_answered() -> None:
    pair = EnginePair()
    session = pair.client.begin()
    sender = session.attach_sender("s", target=Target("q"))
    receiver = session.attach_receiver("r", source=Source("q"))
    receiver.flow(5)

    reported = pair.run()

    assert sender.alive
    assert receiver.alive
    server_links = [event.link for event in events_of(AttachReceived, reported.server)]
    assert [link.credit for link in server_links] == [0, 5]


@pytest.mark.parametrize(
    ("frame", "condition"),
    [
        (Transfer(5, 0, b"t"), "amqp:session:unattached-handle"),
        (Transfer(5, 0, b"t", settled=True), "amqp:session:unattached-handle"),
        (Flow(0, 1, 0, 1, handle=5), "amqp:session:unattached-handle"),
        (Detach(5), "amqp:session:unattached-handle"),
        (Transfer(1, 0, b"t"), "amqp:session:errant-link"),
        (Transfer(0), "amqp:invalid-field"),
        (Transfer(0, 0), "amqp:invalid-field"),
        (Transfer(0, None, b"t"), "amqp:invalid-field"),
        (Transfer(0, 0, None, more=True), "amqp:invalid-field"),
        (Transfer(0, 0, b"t", aborted=True), "amqp:invalid-field"),
        (sender_attach("x", 2, source=Target("q")), "amqp:invalid-field"),
        (sender_attach("x", 2, target=Source("q")), "amqp:invalid-field"),
        (sender_attach("x", 2, initial_delivery_count=None), "amqp:invalid-field"),
        (sender_attach("x", 2, snd_settle_mode=3), "amqp:invalid-field"),
        (receiver_attach("x", 2, rcv_settle_mode=2), "amqp:invalid-field"),
        (sender_attach("s", 2), "amqp:session:errant-link"),
        (Disposition(True, 1, 0), "amqp:invalid-field"),
        (Disposition(True, 0, 2**31), "amqp:invalid-field"),
    ],
    ids=repr,
)
def test_violation_ends_the_session_with_its_condition(frame: object, condition: str) -> None:
    peer, session = ScriptedPeer.in_session()
    peer.attach_sender("s", 0).flow(10)
    peer.attach_receiver("r", 1)
    peer.frames()

    ended = only(Ended, peer.deliver(frame))

    assert ended.error is not None
    assert ended.error.condition == condition
    assert not ended.by_peer
    (written,) = peer.performatives()
    assert isinstance(written, End)
    assert written.error is not None
    assert written.error.condition == condition
    assert session.ended
    assert not peer.engine.closed


def test_violation_in_a_session_does_not_affect_others() -> None:
    peer, first = ScriptedPeer.in_session()
    second = only(Begun, peer.deliver(Begin(None, 0, 100, 100), channel=1)).session
    peer.deliver(sender_attach(), channel=1)

    peer.deliver(Flow(0, 1, 0, 1, handle=9))

    assert first.ended
    assert not second.ended
    assert len(second.links) == 1
    assert peer.deliver(End()) == [Ended(first, None)]
    assert only(Begun, peer.deliver(Begin(None, 0, 1, 1))).session is not first


def test_delivery_ids_are_consecutive_from_any_start() -> None:
    for start in (0, 77, 2**32 - 2):
        peer, session = ScriptedPeer.in_session()
        peer.attach_sender().flow(10)

        events = [event for step in range(4) for event in peer.send((start + step) & 0xFFFFFFFF)]

        assert [delivery.id for delivery in events_of(Delivery, events)] == [
            (start + step) & 0xFFFFFFFF for step in range(4)
        ]
        assert not session.ended


@pytest.mark.parametrize("ids", [[4, 6, 5], [4, 3], [4, 2**32 - 1, 5], [4, 4, 6]])
@pytest.mark.parametrize("parts", [1, 2])
def test_delivery_ids_may_arrive_out_of_sequence(ids: list[int], parts: int) -> None:
    """The Azure SDK sends such ids, also the same one twice, if several threads send at once."""
    peer, session = ScriptedPeer.in_session()
    link = peer.attach_sender()
    link.flow(10)
    peer.frames()

    events = []
    for delivery_id in ids:
        if parts == 2:
            events += peer.send(delivery_id, b"he", more=True)
            events += peer.send(delivery_id, b"llo")
        else:
            events += peer.send(delivery_id, b"hello")

    deliveries = events_of(Delivery, events)
    assert [delivery.id for delivery in deliveries] == ids
    assert {delivery.payload for delivery in deliveries} == {b"hello"}
    assert not session.ended
    for delivery_id in ids:
        session.settle(delivery_id, delivery_id, Accepted())
    assert [frame.first for frame in peer.performatives()] == ids
    assert session.incoming.unsettled == {}
