"""Limits of frames, channels and handles, in both directions."""

import pytest

from pairbus.amqp.events import Attached, AttachReceived, Begun, Closed, Delivery, Ended
from pairbus.amqp.frames import AMQP_HEADER, frame_header
from pairbus.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Error,
    Open,
    Rejected,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.settings import ConnectionSettings
from pairbus.amqp.types import Symbol
from pairbus.errors import AmqpError, EncodeError, EntityNotFound, StateError
from tests.unit.amqp.engines import (
    EnginePair,
    ScriptedPeer,
    events_of,
    framed,
    only,
    pair_with_sender,
    payloads,
    receiver_attach,
    sender_attach,
)


def sizes(data: bytes) -> list[int]:
    """Return the sizes of the frames in the data."""
    result = []
    while data:
        size = frame_header.unpack_from(data)[0]
        result.append(size)
        data = data[size:]
    return result


def test_frame_of_the_maximum_size_is_accepted_and_a_larger_one_is_not() -> None:
    settings = ConnectionSettings(container_id="engine", max_frame_size=512)
    for size, fits in ((512, True), (513, False)):
        peer, _ = ScriptedPeer.in_session(settings)
        link = peer.attach_sender()
        link.flow(1)
        room = size - len(framed_transfer(b""))

        events = peer.feed(framed_transfer(bytes(room)))

        assert len(events_of(Delivery, events)) == fits
        assert len(events_of(Closed, events)) == (not fits)


def framed_transfer(payload: bytes) -> bytes:
    return framed(Transfer(0, 0, b"tag", 0), payload=payload)


def test_oversized_frame_is_refused_before_it_has_arrived() -> None:
    peer, _ = ScriptedPeer.in_session(ConnectionSettings(container_id="engine", max_frame_size=512))

    closed = only(Closed, peer.feed((513).to_bytes(4, "big") + b"\x02\x00\x00\x00"))

    assert closed.error is not None
    assert closed.error.condition == "amqp:connection:framing-error"
    (written,) = peer.performatives()
    assert isinstance(written, Close)


def test_our_frames_do_not_exceed_the_peers_maximum() -> None:
    pair, sender, _ = pair_with_sender(
        server=ConnectionSettings(container_id="server", max_frame_size=512)
    )

    sender.send(b"x" * 5000)
    sender.send(b"y" * 416)
    data = pair.client.data_to_send()

    assert max(sizes(data)) <= 512
    events = pair.server.receive(data, 0.0)
    assert payloads(events) == [b"x" * 5000, b"y" * 416]


def test_frame_above_the_peers_maximum_is_an_error_and_is_not_sent() -> None:
    pair = EnginePair(server=ConnectionSettings(container_id="server", max_frame_size=512))
    session, _ = pair.session()

    with pytest.raises(EncodeError, match="the peer accepts at most 512"):
        session.attach_sender("x" * 600, target=Target("q"))

    assert not pair.client.has_data_to_send
    assert session.links == []
    sender, _ = pair.sender(session)
    assert sender.alive


def test_link_can_be_refused_if_its_attach_does_not_fit() -> None:
    peer, session = ScriptedPeer.in_session(max_frame_size=512)
    big = Source("q", filter={Symbol("f"): "x" * 600})
    link = only(AttachReceived, peer.deliver(receiver_attach(source=big))).link

    with pytest.raises(EncodeError):
        link.accept()
    assert peer.frames() == []
    link.refuse(EntityNotFound("no"))

    attach, detach = peer.performatives()
    assert isinstance(attach, Attach)
    assert attach.source is None
    assert isinstance(detach, Detach)
    assert not session.ended


def test_refusal_that_does_not_fit_ends_the_session() -> None:
    peer, session = ScriptedPeer.in_session(max_frame_size=512)
    link = only(AttachReceived, peer.deliver(receiver_attach("n" * 600))).link

    link.refuse(EntityNotFound("no"))

    (written,) = peer.performatives()
    assert isinstance(written, End)
    assert written.error is not None
    assert written.error.condition == "amqp:frame-size-too-small"
    assert session.ended


def test_link_detached_unanswered_with_an_oversized_name_ends_the_session() -> None:
    peer, session = ScriptedPeer.in_session(max_frame_size=512)

    events = peer.deliver(receiver_attach("n" * 600), Detach(0))

    assert events_of(Closed, events) == []
    assert session.ended


@pytest.mark.parametrize("ending", ["detach", "end", "close", "refuse"])
def test_error_above_the_peers_frame_size_is_reduced_to_its_condition(ending: str) -> None:
    error = AmqpError("long " * 200, condition="amqp:not-found", info={"why": "x" * 300})
    peer, session = ScriptedPeer.in_session(max_frame_size=512)
    if ending == "refuse":
        only(AttachReceived, peer.deliver(receiver_attach())).link.refuse(error)
    elif ending == "detach":
        peer.attach_receiver().detach(error)
    elif ending == "end":
        session.end(error)
    else:
        peer.engine.close(error)

    written = peer.performatives()[-1]

    assert written.error == Error("amqp:not-found", None, {Symbol("condition"): "amqp:not-found"})


def test_state_above_the_peers_frame_size_is_an_error_and_is_not_sent() -> None:
    peer, session = ScriptedPeer.in_session(max_frame_size=512)
    link = peer.attach_sender()
    link.flow(5)
    delivery = only(Delivery, peer.send(0))
    peer.frames()

    with pytest.raises(EncodeError):
        session.settle(delivery.id, delivery.id, Rejected(Error("a:b", "x" * 600)))
    assert peer.frames() == []


def test_violation_is_reported_even_if_its_description_does_not_fit() -> None:
    peer, session = ScriptedPeer.in_session(max_frame_size=512)
    name = "x" * 400  # It fits, but not together with the error.
    link = only(AttachReceived, peer.deliver(sender_attach(name))).link
    assert link.name == name

    events = peer.deliver(sender_attach(name, 1))

    assert only(Ended, events).by_peer is False
    assert events_of(Closed, events) == []
    assert session.ended


def test_sessions_are_begun_up_to_the_channels_that_the_peer_allows() -> None:
    pair = EnginePair(server=ConnectionSettings(container_id="server", channel_max=1))
    pair.run()
    sessions = [pair.client.begin(), pair.client.begin()]
    reported = pair.run()

    assert [event.session for event in events_of(Begun, reported.client)] == sessions
    with pytest.raises(StateError, match="all 2 channels"):
        pair.client.begin()


def test_sessions_are_begun_up_to_the_channels_that_we_allow() -> None:
    pair = EnginePair(client=ConnectionSettings(container_id="client", channel_max=0))
    pair.session()

    with pytest.raises(StateError, match="all 1 channels"):
        pair.client.begin()


def test_channel_can_be_reused_after_its_session_ended() -> None:
    pair = EnginePair(server=ConnectionSettings(container_id="server", channel_max=0))
    session, _ = pair.session()

    session.end()
    pair.run()

    again, _ = pair.session()
    assert again.channel == session.channel


def test_begin_on_a_channel_above_our_maximum_closes_the_connection() -> None:
    peer = ScriptedPeer(ConnectionSettings(container_id="engine", channel_max=3))
    peer.open()

    assert only(Begun, peer.deliver(Begin(None, 0, 1, 1), channel=3))
    closed = only(Closed, peer.deliver(Begin(None, 0, 1, 1), channel=4))

    assert closed.error is not None
    assert closed.error.condition == "amqp:connection:framing-error"


def test_second_begin_on_a_channel_closes_the_connection() -> None:
    peer, _ = ScriptedPeer.in_session()

    closed = only(Closed, peer.deliver(Begin(None, 0, 1, 1)))

    assert "second begin" in str(closed.error)


def test_more_sessions_than_the_peer_itself_allows_close_the_connection() -> None:
    peer = ScriptedPeer()
    peer.open(channel_max=0)
    peer.begin()

    closed = only(Closed, peer.deliver(Begin(None, 0, 1, 1), channel=1))

    assert closed.error is not None
    assert closed.error.condition == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize("remote_channel", [0, 7, 65535])
def test_answer_to_an_unknown_begin_closes_the_connection(remote_channel: int) -> None:
    peer = ScriptedPeer()
    peer.open()

    closed = only(Closed, peer.deliver(Begin(remote_channel, 0, 1, 1), channel=1))

    assert "did not begin a session" in str(closed.error)


def test_session_can_be_answered_once() -> None:
    peer = ScriptedPeer(client=True)
    peer.engine.begin()
    peer.feed(AMQP_HEADER + framed(Open("peer")))
    assert only(Begun, peer.deliver(Begin(0, 0, 1, 1), channel=4))

    closed = only(Closed, peer.deliver(Begin(0, 0, 1, 1), channel=5))

    assert "did not begin a session" in str(closed.error)


def test_links_are_attached_up_to_the_handles_that_the_peer_allows() -> None:
    pair = EnginePair(server=ConnectionSettings(container_id="server", handle_max=1))
    session, _ = pair.session()
    pair.sender(session, "a")
    first, _ = pair.receiver(session, "a")

    with pytest.raises(StateError, match="all 2 links"):
        session.attach_sender("b", target=Target("q"))

    first.detach()
    pair.run()
    again, _ = pair.sender(session, "b")
    assert again.handle == first.handle


def test_attach_above_our_maximum_handle_closes_the_connection() -> None:
    peer, _ = ScriptedPeer.in_session(ConnectionSettings(container_id="engine", handle_max=3))

    assert only(AttachReceived, peer.deliver(sender_attach("a", 3)))
    closed = only(Closed, peer.deliver(sender_attach("b", 4)))

    assert closed.error is not None
    assert closed.error.condition == "amqp:connection:framing-error"


def test_attach_with_a_handle_in_use_ends_the_session() -> None:
    peer, session = ScriptedPeer.in_session()
    peer.attach_sender("a", 0)

    ended = only(Ended, peer.deliver(sender_attach("b", 0)))

    assert ended.error is not None
    assert ended.error.condition == "amqp:session:handle-in-use"
    assert session.ended


def test_more_links_than_the_peer_itself_allows_end_the_session() -> None:
    peer = ScriptedPeer()
    peer.open()
    session = peer.begin(handle_max=0)
    peer.attach_sender("a", 0)

    ended = only(Ended, peer.deliver(sender_attach("b", 1)))

    assert ended.error is not None
    assert ended.error.condition == "amqp:resource-limit-exceeded"
    assert session.ended


def test_many_sessions_with_many_links_work_concurrently() -> None:
    pair = EnginePair()
    pairs = []
    for _ in range(20):
        session, _ = pair.session()
        pairs += [pair.sender(session, f"s{number}") for number in range(20)]
    for _, receiver in pairs:
        receiver.flow(1)
    pair.run()

    for number, (sender, _) in enumerate(pairs):
        sender.send(b"%d" % number)
    deliveries = events_of(Delivery, pair.run().server)

    assert [(delivery.link, delivery.payload) for delivery in deliveries] == [
        (receiver, b"%d" % number) for number, (_, receiver) in enumerate(pairs)
    ]
    for delivery in deliveries:
        delivery.link.session.settle(delivery.id, delivery.id, Accepted())
    pair.run()
    assert not any(sender.session.outgoing.unsettled for sender, _ in pairs)


def test_links_of_one_name_in_both_directions_are_two_links() -> None:
    pair = EnginePair()
    session, _ = pair.session()
    sender = session.attach_sender("same", target=Target("q"))
    receiver = session.attach_receiver("same", source=Source("q"))

    reported = pair.run()

    assert [event.link for event in events_of(Attached, reported.client)] == [sender, receiver]
    assert sender.handle != receiver.handle


def test_links_of_all_sessions_are_limited() -> None:
    settings = ConnectionSettings(container_id="engine", max_links=3)
    peer = ScriptedPeer(settings)
    peer.open()
    first, second = peer.begin(), only(Begun, peer.deliver(BEGIN, channel=1)).session
    peer.deliver(sender_attach("a", 0), receiver_attach("b", 1))
    peer.deliver(sender_attach("c", 0), channel=1)
    assert peer.engine.link_count == 3

    ended = only(Ended, peer.deliver(sender_attach("d", 1), channel=1))

    assert ended.session is second
    assert ended.error is not None
    assert ended.error.condition == "amqp:resource-limit-exceeded"
    assert not first.ended
    # The links of the session count until the peer has ended it, too.
    assert peer.engine.link_count == 3
    peer.deliver(End(), channel=1)
    assert peer.engine.link_count == 2
    assert only(AttachReceived, peer.deliver(sender_attach("e", 2)))


def test_detached_link_does_not_count() -> None:
    peer, session = ScriptedPeer.in_session(ConnectionSettings(container_id="engine", max_links=1))

    for number in range(3):
        peer.attach_sender(f"link {number}")
        peer.deliver(Detach(0, True))

    assert peer.engine.link_count == 0
    session.attach_receiver("ours", source=Source("q"))
    assert peer.engine.link_count == 1


def test_attach_beyond_the_maximum_size_ends_the_session() -> None:
    peer, session = ScriptedPeer.in_session(
        ConnectionSettings(container_id="engine", max_attach_size=1000)
    )
    peer.deliver(sender_attach("a", 0, properties={Symbol("x"): "y" * 500}))

    ended = only(Ended, peer.deliver(sender_attach("b", 1, properties={Symbol("x"): "y" * 1000})))

    assert ended.session is session
    assert ended.error is not None
    assert ended.error.condition == "amqp:resource-limit-exceeded"
    # The session has ended, so what is in transit is dropped.
    assert peer.deliver(sender_attach("c", 2, properties={Symbol("x"): "y" * 1000})) == []


def test_lowest_free_channel_is_used() -> None:
    peer = ScriptedPeer()
    peer.open()
    for channel in range(4):
        peer.deliver(BEGIN, channel=channel)
    peer.deliver(End(), channel=1)
    peer.frames()

    session = only(Begun, peer.deliver(BEGIN, channel=9)).session

    assert session.channel == 1
    assert [other.channel for other in peer.engine.sessions] == [0, 2, 3, 1]
    assert only(Begun, peer.deliver(BEGIN, channel=10)).session.channel == 4


BEGIN = Begin(None, 0, 1000, 1000)
