"""Settlement: modes, ranges and unsettled deliveries."""

import pytest

from pairbus.amqp.events import Delivery, IncomingDeliveriesUpdated, OutgoingDeliveriesUpdated
from pairbus.amqp.performatives import (
    SETTLE_FIRST,
    SETTLE_MIXED,
    SETTLE_SECOND,
    SETTLE_SETTLED,
    SETTLE_UNSETTLED,
    Accepted,
    Disposition,
    Error,
    Modified,
    Received,
    Rejected,
    Released,
)
from pairbus.amqp.types import Described, Symbol
from pairbus.errors import StateError
from tests.unit.amqp.engines import EnginePair, ScriptedPeer, events_of, only, pair_with_sender

STATES = [
    Accepted(),
    Released(),
    Rejected(),
    Rejected(Error("amqp:not-allowed", "no", {Symbol("a"): 1})),
    Modified(),
    Modified(True, True, {Symbol("x"): "y"}),
    Received(1, 2),
    Described(Symbol("com.example:state"), ["x"]),
    None,
]


@pytest.mark.parametrize("state", STATES, ids=repr)
def test_settled_delivery_is_dropped_on_both_sides(state: object) -> None:
    pair, sender, receiver = pair_with_sender()
    sender.send(b"x", tag=b"t")
    delivery = only(Delivery, pair.run().server)
    assert list(receiver.session.incoming.unsettled.values()) == [delivery]

    receiver.session.settle(delivery.id, delivery.id, state)
    updated = only(OutgoingDeliveriesUpdated, pair.run().client)

    assert updated.state == state
    assert updated.settled
    assert updated.session is sender.session
    assert [(sent.link, sent.id, sent.tag) for sent in updated.deliveries] == [(sender, 0, b"t")]
    assert sender.session.outgoing.unsettled == {}
    assert receiver.session.incoming.unsettled == {}


def test_disposition_has_last_only_for_a_range() -> None:
    peer, session = ScriptedPeer.in_session()
    session.settle(7, 7, Accepted())
    session.settle(7, 9, Released(), settled=False)

    assert peer.performatives() == [
        Disposition(True, 7, None, True, Accepted()),
        Disposition(True, 7, 9, False, Released()),
    ]


def test_range_settles_exactly_its_deliveries() -> None:
    pair, sender, receiver = pair_with_sender()
    for _ in range(10):
        sender.send(b"x")
    pair.run()

    receiver.session.settle(3, 6, Accepted())
    updated = only(OutgoingDeliveriesUpdated, pair.run().client)

    assert [sent.id for sent in updated.deliveries] == [3, 4, 5, 6]
    assert list(sender.session.outgoing.unsettled) == [0, 1, 2, 7, 8, 9]
    assert list(receiver.session.incoming.unsettled) == [0, 1, 2, 7, 8, 9]


def test_range_covers_all_links_of_its_session() -> None:
    pair, first, receiver = pair_with_sender()
    second, on_second = pair.sender(first.session, "second")
    on_second.flow(10)
    pair.run()
    for link in (first, second, first, second):
        link.send(b"x")
    pair.run()

    receiver.session.settle(0, 3, Accepted())

    updated = only(OutgoingDeliveriesUpdated, pair.run().client)
    assert [sent.link for sent in updated.deliveries] == [first, second, first, second]


def test_range_with_settled_deliveries_reports_the_others() -> None:
    pair, sender, receiver = pair_with_sender()
    for _ in range(5):
        sender.send(b"x")
    pair.run()
    receiver.session.settle(1, 1, Accepted())
    receiver.session.settle(3, 3, Accepted())
    pair.run()

    receiver.session.settle(0, 4, Released())

    updated = only(OutgoingDeliveriesUpdated, pair.run().client)
    assert [delivery.id for delivery in updated.deliveries] == [0, 2, 4]


def test_range_may_wrap_around() -> None:
    pair, sender, receiver = pair_with_sender()
    sender.session.outgoing.next_delivery_id = 2**32 - 3
    for _ in range(6):
        sender.send(b"x")
    pair.run()

    receiver.session.settle(2**32 - 2, 1, Accepted())

    updated = only(OutgoingDeliveriesUpdated, pair.run().client)
    assert [sent.id for sent in updated.deliveries] == [2**32 - 2, 2**32 - 1, 0, 1]
    assert list(sender.session.outgoing.unsettled) == [2**32 - 3, 2]
    assert list(receiver.session.incoming.unsettled) == [2**32 - 3, 2]


def test_wide_range_costs_little() -> None:
    """Iterating over two thousand ranges of two thousand million ids would take days."""
    peer, _ = ScriptedPeer.in_session()
    link = peer.attach_receiver()
    peer.grant(0, 100)
    for _ in range(5):
        link.send(b"x")

    for _ in range(2000):
        events = peer.deliver(Disposition(True, 0, 2**31 - 1, False, Accepted()))
        updated = only(OutgoingDeliveriesUpdated, events)
        assert len(updated.deliveries) == 5
    (updated,) = peer.deliver(Disposition(True, 2**32 - 1, 2**31 - 2, True, Accepted()))

    assert [sent.id for sent in updated.deliveries] == [0, 1, 2, 3, 4]
    assert peer.deliver(Disposition(True, 0, 2**31 - 1, True, Accepted())) == []


def test_disposition_of_unknown_deliveries_is_ignored() -> None:
    peer, session = ScriptedPeer.in_session()

    assert peer.deliver(Disposition(True, 5, 9, True, Accepted())) == []
    assert peer.deliver(Disposition(False, 5, 9, True, Accepted())) == []
    assert not session.ended
    assert peer.frames() == []


def test_delivery_is_settled_once() -> None:
    pair, sender, receiver = pair_with_sender()
    sender.send(b"x")
    pair.run()

    receiver.session.settle(0, 0, Accepted())
    receiver.session.settle(0, 0, Released())

    assert only(OutgoingDeliveriesUpdated, pair.run().client).state == Accepted()


def test_state_without_settlement_is_reported_and_delivery_kept() -> None:
    pair, sender, receiver = pair_with_sender()
    sender.send(b"x")
    pair.run()

    receiver.session.settle(0, 0, Accepted(), settled=False)
    updated = only(OutgoingDeliveriesUpdated, pair.run().client)

    assert not updated.settled
    assert updated.state == Accepted()
    assert list(sender.session.outgoing.unsettled) == [0]
    assert list(receiver.session.incoming.unsettled) == [0]


def test_receiver_that_settles_second_waits_for_the_sender() -> None:
    pair, sender, receiver = pair_with_sender(link_options={"rcv_settle_mode": SETTLE_SECOND})
    assert sender.remote is not None
    assert sender.remote.rcv_settle_mode == SETTLE_SECOND
    for _ in range(3):
        sender.send(b"x")
    deliveries = events_of(Delivery, pair.run().server)

    receiver.session.settle(0, 2, Accepted(), settled=False)
    updated = only(OutgoingDeliveriesUpdated, pair.run().client)
    assert not updated.settled
    sender.session.confirm(updated.deliveries[0].id, updated.deliveries[-1].id, Accepted())
    resolved = only(IncomingDeliveriesUpdated, pair.run().server)

    assert resolved.deliveries == deliveries
    assert resolved.state == Accepted()
    assert resolved.settled
    assert resolved.session is receiver.session
    assert sender.session.outgoing.unsettled == {}
    assert receiver.session.incoming.unsettled == {}


def test_sender_may_send_states_before_it_settles() -> None:
    peer, session = ScriptedPeer.in_session()
    peer.attach_sender().flow(10)
    delivery = only(Delivery, peer.send(0))

    resolved = only(
        IncomingDeliveriesUpdated, peer.deliver(Disposition(False, 0, None, False, Released()))
    )

    assert resolved.deliveries == [delivery]
    assert not resolved.settled
    assert list(session.incoming.unsettled) == [0]
    assert only(IncomingDeliveriesUpdated, peer.deliver(Disposition(False, 0, None, True))).settled
    assert session.incoming.unsettled == {}


def test_equal_delivery_ids_of_both_roles_are_independent() -> None:
    pair, sender, receiver = pair_with_sender()
    back, on_back = pair.receiver(sender.session)
    back.flow(10)
    pair.run()
    sender.send(b"there")
    on_back.send(b"back")
    pair.run()

    receiver.session.settle(0, 0, Accepted())
    pair.run()

    assert sender.session.outgoing.unsettled == {}
    assert list(sender.session.incoming.unsettled) == [0]
    assert list(on_back.session.outgoing.unsettled) == [0]


@pytest.mark.parametrize("mode", [SETTLE_SETTLED, SETTLE_UNSETTLED, SETTLE_MIXED])
def test_sender_settles_according_to_its_mode(mode: int) -> None:
    pair, sender, receiver = pair_with_sender(link_options={"snd_settle_mode": mode})
    settled = mode == SETTLE_SETTLED

    sender.send(b"x")
    delivery = only(Delivery, pair.run().server)

    assert delivery.settled is settled
    assert len(sender.session.outgoing.unsettled) == (not settled)
    assert len(receiver.session.incoming.unsettled) == (not settled)


def test_sender_of_mixed_mode_chooses_for_each() -> None:
    pair, sender, receiver = pair_with_sender(link_options={"snd_settle_mode": SETTLE_MIXED})

    for settled in (True, False, True):
        sender.send(b"x" * 200_000, settled=settled)

    assert [delivery.settled for delivery in events_of(Delivery, pair.run().server)] == [
        True,
        False,
        True,
    ]
    assert list(sender.session.outgoing.unsettled) == [1]
    assert list(receiver.session.incoming.unsettled) == [1]


@pytest.mark.parametrize(("mode", "settled"), [(SETTLE_SETTLED, False), (SETTLE_UNSETTLED, True)])
def test_sender_cannot_contradict_its_mode(mode: int, settled: bool) -> None:
    _, sender, _ = pair_with_sender(link_options={"snd_settle_mode": mode})

    with pytest.raises(StateError, match="settle mode"):
        sender.send(b"x", settled=settled)
    assert sender.credit == 100
    sender.send(b"x", settled=not settled)


def test_server_can_choose_the_settle_modes() -> None:
    pair = EnginePair(on_attach=lambda link: link.accept(snd_settle_mode=SETTLE_SETTLED))
    session, _ = pair.session()
    receiver, sender = pair.receiver(session, snd_settle_mode=SETTLE_MIXED)
    receiver.flow(5)
    pair.run()

    sender.send(b"x")

    assert receiver.presettled
    assert only(Delivery, pair.run().client).settled
    assert session.incoming.unsettled == {}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_delivery_is_settled_if_any_of_its_frames_is(first: bool, last: bool) -> None:
    peer, session = ScriptedPeer.in_session()
    peer.attach_sender().flow(10)
    peer.send(0, more=True, settled=first)

    delivery = only(Delivery, peer.send(None, settled=last))

    assert delivery.settled is (first or last)
    assert len(session.incoming.unsettled) == (not delivery.settled)


def test_default_settle_modes_are_mixed_and_first() -> None:
    peer, _ = ScriptedPeer.in_session()
    link = peer.attach_sender()

    assert link.remote is not None
    assert link.remote.snd_settle_mode == SETTLE_MIXED
    assert link.remote.rcv_settle_mode == SETTLE_FIRST
    assert not link.presettled
