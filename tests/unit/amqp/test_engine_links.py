"""Links: attach, refusal and detach, from both sides and in all states."""

from typing import Any

import pytest

from pairbus.amqp.composite import encode_composite
from pairbus.amqp.events import (
    Attached,
    AttachReceived,
    Closed,
    Delivery,
    Detached,
    Ended,
    FlowReceived,
)
from pairbus.amqp.frames import AMQP_HEADER, encode_frame
from pairbus.amqp.link import LinkState, ReceiverLink, SenderLink
from pairbus.amqp.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Detach,
    Error,
    Flow,
    Open,
    Source,
    Target,
)
from pairbus.amqp.session import Session
from pairbus.amqp.types import Described, Symbol, UInt
from pairbus.errors import AmqpError, EntityNotFound, StateError
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


def server_peer() -> tuple[ScriptedPeer, Session]:
    """Return a peer that is the server, and a client engine with a session."""
    peer = ScriptedPeer(client=True)
    peer.feed(AMQP_HEADER + framed(Open("peer")))
    session = peer.engine.begin()
    peer.deliver(Begin(0, 0, 1000, 1000))
    peer.frames()
    return peer, session


def test_both_sides_of_a_link_have_both_attaches() -> None:
    pair = EnginePair()
    session, _ = pair.session()
    properties = {Symbol("com.microsoft:timeout"): UInt(5000)}

    sender, receiver = pair.sender(session, "link", properties=properties, max_message_size=7)

    assert isinstance(sender, SenderLink)
    assert isinstance(receiver, ReceiverLink)
    assert sender.alive
    assert receiver.alive
    assert receiver.remote.target == Target("queue")
    assert receiver.remote.properties == properties
    assert receiver.remote_max_message_size == 7
    assert sender.remote.role == RECEIVER
    assert sender.remote == receiver.local
    assert sender.local == receiver.remote


def test_answer_repeats_the_requested_fields_by_default() -> None:
    peer, _ = ScriptedPeer.in_session()
    attach = sender_attach("s", 3, snd_settle_mode=1, rcv_settle_mode=1)
    only(AttachReceived, peer.deliver(attach)).link.accept()

    assert peer.performatives() == [
        Attach("s", 0, RECEIVER, 1, 1, attach.source, attach.target),
    ]

    only(AttachReceived, peer.deliver(receiver_attach("r", 4, snd_settle_mode=1))).link.accept(
        source=Source("elsewhere"),
        target=Target("there"),
        snd_settle_mode=0,
        rcv_settle_mode=1,
        initial_delivery_count=9,
        max_message_size=1000,
        properties={Symbol("a"): 1},
        offered_capabilities=(Symbol("c"),),
    )

    assert peer.performatives() == [
        Attach(
            "r",
            1,
            SENDER,
            0,
            1,
            Source("elsewhere"),
            Target("there"),
            initial_delivery_count=9,
            max_message_size=1000,
            properties={Symbol("a"): 1},
            offered_capabilities=(Symbol("c"),),
        )
    ]


def test_filters_are_repeated_unchanged_in_the_answer() -> None:
    peer, _ = ScriptedPeer.in_session()
    filters = {
        Symbol("apache.org:selector-filter:string"): Described(Symbol("x"), "a > 1"),
        Symbol("com.microsoft:session-filter"): None,
    }
    only(
        AttachReceived, peer.deliver(receiver_attach(source=Source("q", filter=filters)))
    ).link.accept()

    (written,) = peer.performatives()
    assert written.source == Source("q", filter=filters)


def test_unknown_terminus_stays_described() -> None:
    peer, _ = ScriptedPeer.in_session()
    coordinator = Described(Symbol("amqp:coordinator:list"), [])

    link = only(AttachReceived, peer.deliver(sender_attach(target=coordinator))).link

    assert link.remote is not None
    assert link.remote.target == coordinator
    link.accept()
    (written,) = peer.performatives()
    assert written.target == coordinator


REFUSED = Error("amqp:not-found", "no such queue", {Symbol("tracking"): "t1"})


def refusal() -> EntityNotFound:
    return EntityNotFound("no such queue", info={"tracking": "t1"})


@pytest.mark.parametrize("sends", [True, False], ids=["sender", "receiver"])
def test_refusal_is_an_attach_without_terminus_and_a_detach_with_the_error(
    sends: bool,
) -> None:
    """The Azure SDK needs this order and these bytes to recognize a refusal."""
    peer, _ = ScriptedPeer.in_session()
    attach = receiver_attach("link", 5) if sends else sender_attach("link", 5)
    link = only(AttachReceived, peer.deliver(attach)).link

    link.refuse(refusal())

    attach = Attach(
        "link",
        0,
        link.role,
        attach.snd_settle_mode,
        attach.rcv_settle_mode,
        source=None if sends else attach.source,
        target=attach.target if sends else None,
        initial_delivery_count=0 if sends else None,
    )
    assert peer.engine.data_to_send() == encode_frame(0, encode_composite(attach)) + encode_frame(
        0, encode_composite(Detach(0, True, REFUSED))
    )
    assert not link.alive
    assert peer.deliver(Detach(5, True)) == [Detached(link, None, True)]
    assert peer.frames() == []


@pytest.mark.parametrize("sends", [True, False], ids=["sender", "receiver"])
def test_refused_link_is_never_attached_and_ends_with_its_error(sends: bool) -> None:
    pair = EnginePair(on_attach=lambda link: link.refuse(refusal()))
    session, _ = pair.session()
    if sends:
        link: Any = session.attach_sender("link", target=Target("q"))
    else:
        link = session.attach_receiver("link", source=Source("q"))

    reported = pair.run()

    assert events_of(Attached, reported.client) == []
    detached = only(Detached, reported.client)
    assert detached.link is link
    assert detached.closed
    assert detached.error is not None
    assert detached.error.condition == "amqp:not-found"
    assert detached.error.description == "no such queue"
    assert detached.error.info == {"tracking": "t1"}
    assert only(Detached, reported.server).error is None
    pair.on_attach = lambda link: link.accept()
    assert pair.sender(session, "link")[0].alive


def test_link_is_not_alive_between_the_two_frames_of_a_refusal() -> None:
    peer, session = server_peer()
    link = session.attach_sender("link", target=Target("q"))

    assert peer.deliver(Attach("link", 0, RECEIVER, source=Source(), target=None)) == []

    assert link.refused
    assert not link.alive
    with pytest.raises(StateError):
        link.send(b"x")
    only(Detached, peer.deliver(Detach(0, True, REFUSED)))


def test_link_can_be_refused_or_accepted_once() -> None:
    peer, _ = ScriptedPeer.in_session()
    link = only(AttachReceived, peer.deliver(sender_attach())).link
    link.accept()
    peer.frames()

    link.accept()
    link.refuse(refusal())

    assert peer.frames() == []
    assert link.alive


@pytest.mark.parametrize("closed", [True, False])
def test_either_side_can_detach_and_the_other_answers_alike(closed: bool) -> None:
    for index in (0, 1):
        pair = EnginePair()
        session, _ = pair.session()
        ends = pair.sender(session)

        ends[index].detach(closed=closed)
        reported = pair.run()

        assert reported.client == [Detached(ends[0], None, closed)]
        assert reported.server == [Detached(ends[1], None, closed)]
        assert [end.state for end in ends] == [LinkState.DETACHED] * 2
        assert session.links == []
        assert pair.sender(session)[0].alive  # The name can be used again.


def test_two_detaches_that_cross_are_one() -> None:
    pair = EnginePair()
    session, _ = pair.session()
    sender, receiver = pair.sender(session)

    sender.detach(AmqpError("from client", condition="a:client"))
    receiver.detach(AmqpError("from server", condition="a:server"))
    reported = pair.run()

    at_client, at_server = only(Detached, reported.client), only(Detached, reported.server)
    assert at_client.error is not None
    assert at_client.error.condition == "a:server"
    assert at_server.error is not None
    assert at_server.error.condition == "a:client"
    assert not pair.client.has_data_to_send
    assert not pair.server.has_data_to_send


def test_link_detached_before_it_was_answered_is_answered_and_ends() -> None:
    peer, session = server_peer()
    link = session.attach_sender("link", target=Target("q"))
    link.detach()
    peer.frames()

    assert peer.deliver(Attach("link", 7, RECEIVER, source=Source(), target=Target("q"))) == []
    assert peer.deliver(Flow(0, 10, 0, 10, 7, 0, 10)) == []
    assert not link.alive
    assert peer.deliver(Detach(7, True)) == [Detached(link, None, True)]
    assert peer.frames() == []


def test_link_detached_by_the_peer_before_we_answered_is_answered_and_ends() -> None:
    peer, session = ScriptedPeer.in_session()

    attached, detached = peer.deliver(sender_attach("link", 2), Detach(2, True))

    assert isinstance(attached, AttachReceived)
    assert detached == Detached(attached.link, None, True)
    attach, detach = peer.performatives()
    assert isinstance(attach, Attach)
    assert attach.target is None
    assert isinstance(detach, Detach)
    # The application may answer later.
    attached.link.accept()
    assert peer.frames() == []
    assert session.links == []


def test_detach_of_a_link_that_the_peer_never_attached_ends_the_session() -> None:
    peer, session = server_peer()
    session.attach_sender("link", target=Target("q"))

    ended = only(Ended, peer.deliver(Detach(0, True)))

    assert ended.error is not None
    assert ended.error.condition == "amqp:session:unattached-handle"


def test_link_name_in_use_cannot_be_attached_again() -> None:
    pair = EnginePair()
    session, _ = pair.session()
    pair.sender(session, "link")

    with pytest.raises(StateError, match="'link' is already attached"):
        session.attach_sender("link", target=Target("q"))


def test_messages_in_flight_when_we_detach_are_dropped_but_counted() -> None:
    peer, session = ScriptedPeer.in_session()
    first = peer.attach_sender("first", 0)
    second = peer.attach_sender("second", 1)
    first.flow(10)
    second.flow(10)
    peer.send(0)
    first.detach()
    peer.frames()

    assert peer.send(1) == []
    assert events_of(Delivery, peer.send(2, handle=1)) != []
    assert not session.ended
    assert session.incoming.next_id == 3


def test_large_message_in_flight_when_we_detach_is_dropped() -> None:
    peer, session = ScriptedPeer.in_session()
    first = peer.attach_sender("first", 0)
    second = peer.attach_sender("second", 1)
    first.flow(10)
    second.flow(10)
    first.detach()

    assert peer.send(0, more=True) == []
    assert peer.send(None, more=True) == []
    assert peer.send(None) == []
    assert len(events_of(Delivery, peer.send(1, handle=1))) == 1
    assert not session.ended


def test_large_message_received_in_part_before_our_detach_is_dropped() -> None:
    peer, session = ScriptedPeer.in_session()
    first = peer.attach_sender("first", 0)
    second = peer.attach_sender("second", 1)
    first.flow(10)
    second.flow(10)
    peer.send(0, more=True)
    peer.send(1, more=True, handle=1)
    first.detach()
    assert peer.engine.buffered == 5

    assert peer.send(0, more=True) == []  # The id may be repeated.
    assert peer.send(0) == []
    assert len(events_of(Delivery, peer.send(None, handle=1))) == 1
    assert len(events_of(Delivery, peer.send(2, handle=1))) == 1
    assert not session.ended
    assert peer.engine.buffered == 0


def test_unsettled_deliveries_are_dropped_with_their_link() -> None:
    pair, sender, receiver = pair_with_sender()
    other, on_other = pair.sender(sender.session, "other")
    on_other.flow(10)
    pair.run()
    sender.send(b"in doubt")
    other.send(b"kept")
    pair.run()

    sender.detach()
    pair.run()

    assert [sent.link for sent in sender.session.outgoing.unsettled.values()] == [other]
    assert [delivery.link for delivery in receiver.session.incoming.unsettled.values()] == [
        on_other
    ]
    on_other.session.settle(0, 1, Accepted())
    pair.run()
    assert sender.session.outgoing.unsettled == {}


def test_detach_is_idempotent() -> None:
    peer, _ = ScriptedPeer.in_session()
    link = peer.attach_sender()

    link.detach()
    link.detach(AmqpError("again"))

    assert peer.performatives() == [Detach(0, True)]


def test_handles_are_reused() -> None:
    pair = EnginePair()
    session, _ = pair.session()
    links = [pair.sender(session, f"link {number}")[0] for number in range(5)]
    assert [link.handle for link in links] == [0, 1, 2, 3, 4]

    links[1].detach()
    links[3].detach()
    pair.run()

    assert {pair.sender(session, name)[0].handle for name in ("a", "b")} == {1, 3}


def test_peer_may_use_any_handles() -> None:
    peer, session = ScriptedPeer.in_session()
    for number, handle in enumerate((255, 0, 17)):
        link = peer.attach_sender(f"link {number}", handle)
        assert link.handle == number
        assert link.remote_handle == handle
        link.flow(1)
    peer.frames()

    assert only(Delivery, peer.send(0, handle=17)).link.name == "link 2"
    assert len(session.links) == 3


def test_credit_may_be_granted_before_our_answer() -> None:
    peer, _ = ScriptedPeer.in_session()

    attached, flow_event = peer.deliver(
        receiver_attach("r", 3), Flow(0, 100, 0, 100, 3, link_credit=5)
    )

    assert isinstance(attached, AttachReceived)
    assert flow_event == FlowReceived(attached.link.session, attached.link)
    attached.link.accept(initial_delivery_count=2**32 - 1)
    assert attached.link.credit == 5
    assert isinstance(attached.link, SenderLink)
    attached.link.send(b"x")


def test_link_has_a_context_for_the_application() -> None:
    pair, sender, _ = pair_with_sender()
    sender.context = {"key": "value"}
    sender.session.context = "session context"

    assert "'s'" in repr(sender)
    assert "channel=0" in repr(sender.session)
    assert events_of(Closed, pair.run().client) == []
