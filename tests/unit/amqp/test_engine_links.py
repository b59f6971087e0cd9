"""Links: attached, refused, detached, from both sides and at awkward moments."""

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
from tests.unit.amqp.pump import (
    Peer,
    Talk,
    framed,
    of,
    only,
    receiver_attach,
    sender_attach,
    talk_with_sender,
)


def asking_peer() -> tuple[Peer, Session]:
    """A peer that serves; the engine is a client with a session."""
    peer = Peer(client=True)
    peer.feed(AMQP_HEADER + framed(Open("peer")))
    session = peer.engine.begin()
    peer.say(Begin(0, 0, 1000, 1000))
    peer.heard()
    return peer, session


def test_link_is_attached_and_both_sides_know_both_attaches() -> None:
    talk = Talk()
    session, _ = talk.session()
    properties = {Symbol("com.microsoft:timeout"): UInt(5000)}

    sender, receiver = talk.sender(session, "link", properties=properties, max_message_size=7)

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
    peer, _ = Peer.in_session()
    asked = sender_attach("s", 3, snd_settle_mode=1, rcv_settle_mode=1)
    only(AttachReceived, peer.say(asked)).link.accept()

    assert peer.told() == [
        Attach("s", 0, RECEIVER, 1, 1, asked.source, asked.target),
    ]

    only(AttachReceived, peer.say(receiver_attach("r", 4, snd_settle_mode=1))).link.accept(
        source=Source("elsewhere"),
        target=Target("there"),
        snd_settle_mode=0,
        rcv_settle_mode=1,
        initial_delivery_count=9,
        max_message_size=1000,
        properties={Symbol("a"): 1},
        offered_capabilities=(Symbol("c"),),
    )

    assert peer.told() == [
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
    peer, _ = Peer.in_session()
    filters = {
        Symbol("apache.org:selector-filter:string"): Described(Symbol("x"), "a > 1"),
        Symbol("com.microsoft:session-filter"): None,
    }
    only(
        AttachReceived, peer.say(receiver_attach(source=Source("q", filter=filters)))
    ).link.accept()

    (said,) = peer.told()
    assert said.source == Source("q", filter=filters)


def test_unknown_terminus_stays_described() -> None:
    peer, _ = Peer.in_session()
    coordinator = Described(Symbol("amqp:coordinator:list"), [])

    link = only(AttachReceived, peer.say(sender_attach(target=coordinator))).link

    assert link.remote is not None
    assert link.remote.target == coordinator
    link.accept()
    (said,) = peer.told()
    assert said.target == coordinator


REFUSED = Error("amqp:not-found", "no such queue", {Symbol("tracking"): "t1"})


def refusal() -> EntityNotFound:
    return EntityNotFound("no such queue", info={"tracking": "t1"})


@pytest.mark.parametrize("sends", [True, False], ids=["sender", "receiver"])
def test_refusal_is_an_attach_without_terminus_and_a_detach_with_the_error(
    sends: bool,
) -> None:
    """The order and the bytes are what the Azure SDK needs to tell it from a broken connection."""
    peer, _ = Peer.in_session()
    asked = receiver_attach("link", 5) if sends else sender_attach("link", 5)
    link = only(AttachReceived, peer.say(asked)).link

    link.refuse(refusal())

    attach = Attach(
        "link",
        0,
        link.role,
        asked.snd_settle_mode,
        asked.rcv_settle_mode,
        source=None if sends else asked.source,
        target=asked.target if sends else None,
        initial_delivery_count=0 if sends else None,
    )
    assert peer.engine.data_to_send() == encode_frame(0, encode_composite(attach)) + encode_frame(
        0, encode_composite(Detach(0, True, REFUSED))
    )
    assert not link.alive
    assert peer.say(Detach(5, True)) == [Detached(link, None, True)]
    assert peer.heard() == []


@pytest.mark.parametrize("sends", [True, False], ids=["sender", "receiver"])
def test_refused_link_is_never_attached_and_ends_with_its_error(sends: bool) -> None:
    talk = Talk(on_attaching=lambda link: link.refuse(refusal()))
    session, _ = talk.session()
    if sends:
        link: Any = session.attach_sender("link", target=Target("q"))
    else:
        link = session.attach_receiver("link", source=Source("q"))

    heard = talk.run()

    assert of(Attached, heard.client) == []
    detached = only(Detached, heard.client)
    assert detached.link is link
    assert detached.closed
    assert detached.error is not None
    assert detached.error.condition == "amqp:not-found"
    assert detached.error.description == "no such queue"
    assert detached.error.info == {"tracking": "t1"}
    assert only(Detached, heard.server).error is None
    talk.on_attaching = lambda link: link.accept()
    assert talk.sender(session, "link")[0].alive


def test_between_the_two_frames_of_a_refusal_the_link_is_not_alive() -> None:
    peer, session = asking_peer()
    link = session.attach_sender("link", target=Target("q"))

    assert peer.say(Attach("link", 0, RECEIVER, source=Source(), target=None)) == []

    assert link.refused
    assert not link.alive
    with pytest.raises(StateError):
        link.send(b"x")
    only(Detached, peer.say(Detach(0, True, REFUSED)))


def test_link_can_be_refused_or_accepted_once() -> None:
    peer, _ = Peer.in_session()
    link = only(AttachReceived, peer.say(sender_attach())).link
    link.accept()
    peer.heard()

    link.accept()
    link.refuse(refusal())

    assert peer.heard() == []
    assert link.alive


@pytest.mark.parametrize("closed", [True, False])
def test_either_side_can_detach_and_the_other_answers_alike(closed: bool) -> None:
    for index in (0, 1):
        talk = Talk()
        session, _ = talk.session()
        ends = talk.sender(session)

        ends[index].detach(closed=closed)
        heard = talk.run()

        assert heard.client == [Detached(ends[0], None, closed)]
        assert heard.server == [Detached(ends[1], None, closed)]
        assert [end.state for end in ends] == [LinkState.DETACHED] * 2
        assert session.links == []
        assert talk.sender(session)[0].alive  # the name is free again


def test_two_detaches_that_cross_are_one() -> None:
    talk = Talk()
    session, _ = talk.session()
    sender, receiver = talk.sender(session)

    sender.detach(AmqpError("ours", condition="a:ours"))
    receiver.detach(AmqpError("theirs", condition="a:theirs"))
    heard = talk.run()

    ours, theirs = only(Detached, heard.client), only(Detached, heard.server)
    assert ours.error is not None
    assert ours.error.condition == "a:theirs"
    assert theirs.error is not None
    assert theirs.error.condition == "a:ours"
    assert not talk.client.has_data_to_send
    assert not talk.server.has_data_to_send


def test_link_detached_before_it_was_answered_is_answered_and_ends() -> None:
    peer, session = asking_peer()
    link = session.attach_sender("link", target=Target("q"))
    link.detach()
    peer.heard()

    assert peer.say(Attach("link", 7, RECEIVER, source=Source(), target=Target("q"))) == []
    assert peer.say(Flow(0, 10, 0, 10, 7, 0, 10)) == []
    assert not link.alive
    assert peer.say(Detach(7, True)) == [Detached(link, None, True)]
    assert peer.heard() == []


def test_link_detached_by_the_peer_before_we_answered_is_answered_and_ends() -> None:
    peer, session = Peer.in_session()

    asked, detached = peer.say(sender_attach("link", 2), Detach(2, True))

    assert isinstance(asked, AttachReceived)
    assert detached == Detached(asked.link, None, True)
    attach, detach = peer.told()
    assert isinstance(attach, Attach)
    assert attach.target is None
    assert isinstance(detach, Detach)
    # The program comes late, and need not know.
    asked.link.accept()
    assert peer.heard() == []
    assert session.links == []


def test_detach_of_a_link_that_the_peer_never_attached_ends_the_session() -> None:
    peer, session = asking_peer()
    session.attach_sender("link", target=Target("q"))

    ended = only(Ended, peer.say(Detach(0, True)))

    assert ended.error is not None
    assert ended.error.condition == "amqp:session:unattached-handle"


def test_link_name_in_use_cannot_be_attached_again() -> None:
    talk = Talk()
    session, _ = talk.session()
    talk.sender(session, "link")

    with pytest.raises(StateError, match="'link' is already attached"):
        session.attach_sender("link", target=Target("q"))


def test_messages_in_flight_when_we_detach_are_dropped_but_counted() -> None:
    peer, session = Peer.in_session()
    first = peer.attach_sender("first", 0)
    second = peer.attach_sender("second", 1)
    first.flow(10)
    second.flow(10)
    peer.send(0)
    first.detach()
    peer.heard()

    assert peer.send(1) == []
    assert of(Delivery, peer.send(2, handle=1)) != []
    assert not session.ended
    assert session.incoming.next_id == 3


def test_large_message_in_flight_when_we_detach_is_dropped() -> None:
    peer, session = Peer.in_session()
    first = peer.attach_sender("first", 0)
    second = peer.attach_sender("second", 1)
    first.flow(10)
    second.flow(10)
    first.detach()

    assert peer.send(0, more=True) == []
    assert peer.send(None, more=True) == []
    assert peer.send(None) == []
    assert len(of(Delivery, peer.send(1, handle=1))) == 1
    assert not session.ended


def test_large_message_half_of_which_came_before_our_detach_is_dropped() -> None:
    peer, session = Peer.in_session()
    first = peer.attach_sender("first", 0)
    second = peer.attach_sender("second", 1)
    first.flow(10)
    second.flow(10)
    peer.send(0, more=True)
    peer.send(1, more=True, handle=1)
    first.detach()
    assert peer.engine.buffered == 5

    assert peer.send(0, more=True) == []  # the id may be repeated
    assert peer.send(0) == []
    assert len(of(Delivery, peer.send(None, handle=1))) == 1
    assert len(of(Delivery, peer.send(2, handle=1))) == 1
    assert not session.ended
    assert peer.engine.buffered == 0


def test_unsettled_deliveries_are_dropped_with_their_link() -> None:
    talk, sender, receiver = talk_with_sender()
    other, on_other = talk.sender(sender.session, "other")
    on_other.flow(10)
    talk.run()
    sender.send(b"in doubt")
    other.send(b"kept")
    talk.run()

    sender.detach()
    talk.run()

    assert [sent.link for sent in sender.session.outgoing.unsettled.values()] == [other]
    assert [each.link for each in receiver.session.incoming.unsettled.values()] == [on_other]
    on_other.session.settle(0, 1, Accepted())
    talk.run()
    assert sender.session.outgoing.unsettled == {}


def test_detach_is_idempotent() -> None:
    peer, _ = Peer.in_session()
    link = peer.attach_sender()

    link.detach()
    link.detach(AmqpError("again"))

    assert peer.told() == [Detach(0, True)]


def test_handles_are_reused() -> None:
    talk = Talk()
    session, _ = talk.session()
    links = [talk.sender(session, f"link {number}")[0] for number in range(5)]
    assert [link.handle for link in links] == [0, 1, 2, 3, 4]

    links[1].detach()
    links[3].detach()
    talk.run()

    assert {talk.sender(session, name)[0].handle for name in ("a", "b")} == {1, 3}


def test_peer_may_use_any_handles() -> None:
    peer, session = Peer.in_session()
    for number, handle in enumerate((255, 0, 17)):
        link = peer.attach_sender(f"link {number}", handle)
        assert link.handle == number
        assert link.remote_handle == handle
        link.flow(1)
    peer.heard()

    assert only(Delivery, peer.send(0, handle=17)).link.name == "link 2"
    assert len(session.links) == 3


def test_credit_may_be_granted_before_our_answer() -> None:
    peer, _ = Peer.in_session()

    asked, flowed = peer.say(receiver_attach("r", 3), Flow(0, 100, 0, 100, 3, link_credit=5))

    assert isinstance(asked, AttachReceived)
    assert flowed == FlowReceived(asked.link.session, asked.link)
    asked.link.accept(initial_delivery_count=2**32 - 1)
    assert asked.link.credit == 5
    assert isinstance(asked.link, SenderLink)
    asked.link.send(b"x")


def test_link_has_a_context_for_the_application() -> None:
    talk, sender, _ = talk_with_sender()
    sender.context = {"my": "thing"}
    sender.session.context = "mine"

    assert "'s'" in repr(sender)
    assert "channel=0" in repr(sender.session)
    assert of(Closed, talk.run().client) == []
