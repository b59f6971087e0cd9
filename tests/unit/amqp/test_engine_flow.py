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


def test_credit_is_told_and_counts_down_on_both_sides() -> None:
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


def test_a_flow_sets_credit_it_does_not_add() -> None:
    talk, sender, receiver = talk_with_sender(credit=3)

    receiver.flow(5)
    talk.run()

    assert sender.credit == receiver.credit == 5


def test_deliveries_under_way_count_against_credit_given_meanwhile() -> None:
    peer, link = sending(credit=10)
    for _ in range(3):
        link.send(b"x")

    peer.say(Flow(0, 1000, 0, 1000, 0, delivery_count=1, link_credit=5))  # saw one of three

    assert link.credit == 3


def test_a_receiver_that_has_not_seen_our_attach_counts_from_our_start() -> None:
    _, link = sending(credit=5, initial_delivery_count=100)

    assert link.credit == 5
    link.send(b"x")
    assert link.credit == 4
    assert link.delivery_count == 101


def test_a_receiver_that_still_has_not_seen_our_attach_counts_from_our_start_again() -> None:
    peer, link = sending(credit=3, initial_delivery_count=100)
    link.send(b"x")
    link.send(b"y")

    peer.grant(0, 3)  # the same as before: the two crossed our attach

    assert link.credit == 1


@pytest.mark.parametrize("credit", [2**31 - 1, 2**31, 2**32 - 1])
def test_the_largest_credit_is_credit(credit: int) -> None:
    peer, link = sending(credit=10)
    link.send(b"x")

    peer.say(Flow(1, 1000, 0, 1000, 0, delivery_count=1, link_credit=credit))

    assert link.credit == credit
    link.send(b"y")


def test_a_flow_without_credit_changes_no_credit() -> None:
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


def test_an_echo_is_answered_with_how_the_link_stands() -> None:
    peer, link = sending(credit=10)
    link.send(b"x")
    link.available = 42
    peer.heard()

    peer.say(Flow(1, 1000, 0, 1000, 0, 1, 9, echo=True))

    assert peer.told() == [Flow(0, 5000, 1, 5000, 0, 1, 9, 42)]


def test_an_echo_is_answered_by_a_receiver_too() -> None:
    peer, _ = Peer.in_session()
    link = peer.attach_sender()
    link.flow(5)
    peer.send(0)
    peer.heard()

    peer.say(Flow(0, 1000, 1, 1000, 0, 1, 4, 17, echo=True))

    assert peer.told() == [Flow(1, 4999, 0, 5000, 0, 1, 4)]
    assert link.available == 17


def test_an_echo_on_a_link_that_we_have_not_answered_is_answered_for_the_session() -> None:
    peer, _ = Peer.in_session()
    peer.say(receiver_attach())

    peer.say(Flow(0, 1000, 0, 1000, 0, link_credit=5, echo=True))

    assert peer.told() == [Flow(0, 5000, 0, 5000)]


def test_we_can_ask_for_an_echo() -> None:
    talk, _, receiver = talk_with_sender(credit=5)

    receiver.flow(5, echo=True)

    assert only(FlowReceived, talk.run().server).link is receiver


def test_a_drain_uses_up_the_credit_that_is_left() -> None:
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


def test_a_drain_with_everything_sent_is_answered_too() -> None:
    talk, sender, receiver = talk_with_sender(credit=1)
    receiver.flow(1, drain=True)
    talk.run()
    sender.send(b"x")
    sender.drained()

    heard = talk.run().server

    assert [type(event) for event in heard] == [Delivery, FlowReceived]
    assert receiver.credit == 0
    assert not receiver.drain


def test_there_is_nothing_to_drain_unasked() -> None:
    talk, sender, _ = talk_with_sender(credit=10)

    sender.drained()

    assert sender.credit == 10
    assert not talk.client.has_data_to_send


def test_a_link_goes_on_after_a_drain() -> None:
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


def test_a_drain_that_crosses_the_last_deliveries_leaves_both_sides_in_step() -> None:
    talk, sender, receiver = talk_with_sender(credit=5)
    sender.send(b"under way")
    receiver.flow(5, drain=True)
    talk.run()
    assert sender.credit == 4  # the receiver did not know of the one under way

    sender.drained()
    talk.run()

    assert receiver.credit == 0
    assert receiver.delivery_count == sender.delivery_count == 5


def test_credit_can_be_taken_back() -> None:
    talk, sender, receiver = talk_with_sender(credit=10)

    receiver.flow(0)
    talk.run()

    assert sender.credit == 0
    with pytest.raises(StateError):
        sender.send(b"x")


@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.parametrize("left", [0, 1, 2])
def test_deliveries_under_way_when_credit_is_taken_back_still_arrive(left: int, size: int) -> None:
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


def test_credit_taken_back_is_not_there_for_ever() -> None:
    peer, _ = Peer.in_session()
    link = peer.attach_sender()
    link.flow(3)
    link.flow(0)
    for number in range(3):
        assert only(Delivery, peer.send(number))

    detached = only(Detached, peer.send(3))

    assert detached.error is not None
    assert detached.error.condition == "amqp:link:transfer-limit-exceeded"


def test_credit_given_again_is_not_counted_twice() -> None:
    peer, _ = Peer.in_session()
    link = peer.attach_sender()
    for credit in (3, 0, 3, 1, 3, 0, 2):
        link.flow(credit)
    for number in range(3):
        assert only(Delivery, peer.send(number))

    assert only(Detached, peer.send(3))


def test_credit_taken_back_while_the_sender_gives_it_up_leaves_both_in_step() -> None:
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
def test_a_count_that_cannot_be_is_not_believed(count: int) -> None:
    """Behind ours, or ahead by more than was ever given."""
    peer, _ = Peer.in_session()
    link = peer.attach_sender()
    link.flow(10)
    peer.heard()

    peer.say(Flow(0, 1000, 0, 1000, 0, count, 0))

    assert link.delivery_count == 0
    assert link.credit == 10
    assert only(Delivery, peer.send(0))


def test_what_a_sender_has_to_send_is_told() -> None:
    talk, sender, receiver = talk_with_sender(credit=5)
    sender.available = 77

    sender.write_flow()
    talk.run()

    assert receiver.available == 77
    assert receiver.credit == 5


def test_properties_of_a_flow_are_told() -> None:
    talk, sender, receiver = talk_with_sender(credit=5)
    properties = {Symbol("com.example:key"): [1, "two"]}

    receiver.flow(5, properties=properties)
    talk.run()

    assert sender.properties == properties
    sender.write_flow(properties={Symbol("a"): 1})
    talk.run()
    assert receiver.properties == {"a": 1}


def test_a_flow_after_the_end_is_not_written() -> None:
    talk, _, receiver = talk_with_sender(credit=5)
    receiver.detach()
    talk.run()

    receiver.flow(5)
    receiver.write_flow()

    assert not talk.server.has_data_to_send
    assert receiver.credit == 0
