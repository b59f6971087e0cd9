"""Credit: given, used, taken back, drained, echoed, and counted across the wrap."""

from typing import Any

import pytest

from pairbus.amqp.events import Delivery, Detached, FlowReceived
from pairbus.amqp.performatives import Flow
from pairbus.amqp.types import Symbol
from pairbus.errors import StateError
from tests.unit.amqp.pump import Peer, Talk, of, only, receiver_attach, talk_with_sender


def sending(credit: int = 10, **accept: Any) -> tuple[Peer, Any]:
    """A peer that receives, and the engine's sender."""
    peer, _ = Peer.in_session()
    link = peer.attach_receiver(**accept)
    peer.grant(0, credit)
    return peer, link


def test_credit_is_sent_and_decreases_on_both_sides() -> None:
    talk, sender, receiver = talk_with_sender(credit=0)
    assert sender.credit == 0

    receiver.flow(3)
    assert only(FlowReceived, talk.run().client).link is sender
    assert sender.credit == receiver.credit == 3
    sender.send(b"x")
    assert sender.credit == 2
    talk.run()
    assert receiver.credit == 2
    assert receiver.delivery_count == sender.delivery_count == 1


def test_flow_sets_the_credit() -> None:
    talk, sender, receiver = talk_with_sender(credit=3)

    receiver.flow(5)
    talk.run()

    assert sender.credit == receiver.credit == 5


def test_deliveries_in_transit_count_against_new_credit() -> None:
    peer, link = sending(credit=10)
    for _ in range(3):
        link.send(b"x")

    peer.say(Flow(0, 1000, 0, 1000, 0, delivery_count=1, link_credit=5))  # saw one of three

    assert link.credit == 3


def test_flow_without_delivery_count_counts_from_the_initial_count() -> None:
    _, link = sending(credit=5, initial_delivery_count=100)

    assert link.credit == 5
    link.send(b"x")
    assert link.credit == 4
    assert link.delivery_count == 101


def test_repeated_flow_without_delivery_count_counts_from_the_initial_count() -> None:
    peer, link = sending(credit=3, initial_delivery_count=100)
    link.send(b"x")
    link.send(b"y")

    peer.grant(0, 3)  # the same as before: the two crossed our attach

    assert link.credit == 1


@pytest.mark.parametrize("credit", [2**31 - 1, 2**31, 2**32 - 1])
def test_maximum_credit_is_accepted(credit: int) -> None:
    peer, link = sending(credit=10)
    link.send(b"x")

    peer.say(Flow(1, 1000, 0, 1000, 0, delivery_count=1, link_credit=credit))

    assert link.credit == credit
    link.send(b"y")


def test_flow_without_credit_changes_no_credit() -> None:
    peer, link = sending(credit=10)

    peer.say(Flow(0, 1000, 0, 1000, 0))

    assert link.credit == 10


@pytest.mark.parametrize("start", [0, 2**32 - 2])
def test_delivery_counts_wrap_around(start: int) -> None:
    talk = Talk(on_attaching=lambda link: link.accept(initial_delivery_count=start))
    session, _ = talk.session()
    receiver, sender = talk.receiver(session)
    assert receiver.delivery_count == sender.delivery_count == start
    for _ in range(5):
        receiver.flow(2)
        talk.run()
        assert sender.credit == 2
        sender.send(b"x")
        sender.send(b"y")
        assert len(of(Delivery, talk.run().client)) == 2

    assert receiver.delivery_count == sender.delivery_count == (start + 10) & 0xFFFFFFFF
    receiver.flow(7, drain=True)
    talk.run()
    sender.drained()
    talk.run()
    assert receiver.delivery_count == sender.delivery_count == (start + 17) & 0xFFFFFFFF
    assert receiver.credit == 0


def test_echo_is_answered_with_the_flow_state() -> None:
    peer, link = sending(credit=10)
    link.send(b"x")
    link.available = 42
    peer.heard()

    peer.say(Flow(1, 1000, 0, 1000, 0, 1, 9, echo=True))

    assert peer.told() == [Flow(0, 5000, 1, 5000, 0, 1, 9, 42)]


def test_echo_is_answered_by_a_receiver_too() -> None:
    peer, _ = Peer.in_session()
    link = peer.attach_sender()
    link.flow(5)
    peer.send(0)
    peer.heard()

    peer.say(Flow(0, 1000, 1, 1000, 0, 1, 4, 17, echo=True))

    assert peer.told() == [Flow(1, 4999, 0, 5000, 0, 1, 4)]
    assert link.available == 17


def test_echo_before_our_attach_is_answered_for_the_session() -> None:
    peer, _ = Peer.in_session()
    peer.say(receiver_attach())

    peer.say(Flow(0, 1000, 0, 1000, 0, link_credit=5, echo=True))

    assert peer.told() == [Flow(0, 5000, 0, 5000)]


def test_echo_can_be_requested() -> None:
    talk, _, receiver = talk_with_sender(credit=5)

    receiver.flow(5, echo=True)

    assert only(FlowReceived, talk.run().server).link is receiver


def test_drain_uses_the_remaining_credit() -> None:
    talk, sender, receiver = talk_with_sender(credit=10)
    receiver.flow(10, drain=True)
    talk.run()
    assert sender.drain
    sender.send(b"x")
    sender.send(b"y")

    sender.drained()
    assert sender.credit == 0
    assert not sender.drain
    heard = talk.run().server

    assert [type(event) for event in heard] == [Delivery, Delivery, FlowReceived]
    assert receiver.credit == 0
    assert not receiver.drain
    assert receiver.delivery_count == sender.delivery_count == 10


def test_drain_without_credit_is_answered() -> None:
    talk, sender, receiver = talk_with_sender(credit=1)
    receiver.flow(1, drain=True)
    talk.run()
    sender.send(b"x")
    sender.drained()

    heard = talk.run().server

    assert [type(event) for event in heard] == [Delivery, FlowReceived]
    assert receiver.credit == 0
    assert not receiver.drain


def test_drained_without_a_drain_sends_nothing() -> None:
    talk, sender, _ = talk_with_sender(credit=10)

    sender.drained()

    assert sender.credit == 10
    assert not talk.client.has_data_to_send


def test_link_continues_after_a_drain() -> None:
    talk, sender, receiver = talk_with_sender(credit=10)
    for _ in range(3):
        receiver.flow(4, drain=True)
        talk.run()
        sender.send(b"x")
        sender.drained()
        talk.run()
        assert receiver.credit == sender.credit == 0
    receiver.flow(4)
    talk.run()

    assert sender.credit == 4
    assert not sender.drain


def test_drain_that_crosses_deliveries_keeps_both_sides_consistent() -> None:
    talk, sender, receiver = talk_with_sender(credit=5)
    sender.send(b"under way")
    receiver.flow(5, drain=True)
    talk.run()
    assert sender.credit == 4  # the receiver did not know of the one under way

    sender.drained()
    talk.run()

    assert receiver.credit == 0
    assert receiver.delivery_count == sender.delivery_count == 5


def test_credit_can_be_revoked() -> None:
    talk, sender, receiver = talk_with_sender(credit=10)

    receiver.flow(0)
    talk.run()

    assert sender.credit == 0
    with pytest.raises(StateError):
        sender.send(b"x")


@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.parametrize("left", [0, 1, 2])
def test_deliveries_in_transit_arrive_after_credit_was_revoked(left: int, size: int) -> None:
    talk, sender, receiver = talk_with_sender(credit=10)
    for _ in range(5):
        sender.send(b"x" * size)
    receiver.flow(left)

    heard = talk.run()

    assert len(of(Delivery, heard.server)) == 5
    assert of(Detached, heard.server) == []
    assert sender.credit == receiver.credit == 0
    assert receiver.delivery_count == sender.delivery_count == 5
    receiver.flow(3)
    talk.run()
    assert sender.credit == 3


def test_revoked_credit_is_limited() -> None:
    peer, _ = Peer.in_session()
    link = peer.attach_sender()
    link.flow(3)
    link.flow(0)
    for number in range(3):
        assert only(Delivery, peer.send(number))

    detached = only(Detached, peer.send(3))

    assert detached.error is not None
    assert detached.error.condition == "amqp:link:transfer-limit-exceeded"


def test_credit_granted_again_is_not_counted_twice() -> None:
    peer, _ = Peer.in_session()
    link = peer.attach_sender()
    for credit in (3, 0, 3, 1, 3, 0, 2):
        link.flow(credit)
    for number in range(3):
        assert only(Delivery, peer.send(number))

    assert only(Detached, peer.send(3))


def test_credit_revoked_during_a_drain_keeps_both_sides_consistent() -> None:
    talk, sender, receiver = talk_with_sender(credit=10)
    receiver.flow(10, drain=True)
    talk.client.receive(talk.server.data_to_send(), 0.0)
    sender.drained()
    receiver.flow(0)  # crosses the answer to the drain

    talk.run()
    receiver.flow(4)
    talk.run()

    assert receiver.delivery_count == sender.delivery_count == 10
    assert sender.credit == 4


@pytest.mark.parametrize("count", [2**32 - 1, 2**31 + 3, 11, 2**31 - 1])
def test_impossible_delivery_count_is_ignored(count: int) -> None:
    """Behind ours, or ahead by more than was ever given."""
    peer, _ = Peer.in_session()
    link = peer.attach_sender()
    link.flow(10)
    peer.heard()

    peer.say(Flow(0, 1000, 0, 1000, 0, count, 0))

    assert link.delivery_count == 0
    assert link.credit == 10
    assert only(Delivery, peer.send(0))


def test_available_messages_are_reported() -> None:
    talk, sender, receiver = talk_with_sender(credit=5)
    sender.available = 77

    sender.write_flow()
    talk.run()

    assert receiver.available == 77
    assert receiver.credit == 5


def test_properties_of_a_flow_are_reported() -> None:
    talk, sender, receiver = talk_with_sender(credit=5)
    properties = {Symbol("com.example:key"): [1, "two"]}

    receiver.flow(5, properties=properties)
    talk.run()

    assert sender.properties == properties
    sender.write_flow(properties={Symbol("a"): 1})
    talk.run()
    assert receiver.properties == {"a": 1}


def test_flow_of_an_ended_link_is_not_sent() -> None:
    talk, _, receiver = talk_with_sender(credit=5)
    receiver.detach()
    talk.run()

    receiver.flow(5)
    receiver.write_flow()

    assert not talk.server.has_data_to_send
    assert receiver.credit == 0
