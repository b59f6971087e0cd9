"""Transfers: one or many frames, aborts, size limits and message formats."""

from typing import Any

import pytest

from pairbus.amqp.batch import BATCH_FORMAT
from pairbus.amqp.composite import encode_composite
from pairbus.amqp.encode import encode
from pairbus.amqp.events import (
    Closed,
    Delivery,
    DeliveryAborted,
    Detached,
    Ended,
    OutgoingDeliveriesUpdated,
)
from pairbus.amqp.frames import encode_frame
from pairbus.amqp.performatives import Accepted, Detach, Flow, Received, Transfer
from pairbus.amqp.settings import ConnectionSettings
from pairbus.amqp.types import Described, Symbol, UInt, ULong
from pairbus.errors import EncodeError, StateError
from tests.unit.amqp.engines import (
    EnginePair,
    ScriptedPeer,
    events_of,
    only,
    pair_with_sender,
    payloads,
    sender_attach,
)

SMALL_FRAMES = ConnectionSettings(container_id="server", max_frame_size=512)


def receiving(credit: int = 10, **accept: Any) -> tuple[ScriptedPeer, Any]:
    """Return a peer that sends, and the receiver of the engine."""
    peer, _ = ScriptedPeer.in_session()
    link = peer.attach_sender(**accept)
    link.flow(credit)
    peer.frames()
    return peer, link


@pytest.mark.parametrize("size", [0, 1, 415, 416, 417, 832, 833, 100_000])
def test_messages_of_any_size_arrive_complete(size: int) -> None:
    pair, sender, receiver = pair_with_sender(server=SMALL_FRAMES)
    payload = bytes(number % 251 for number in range(size))

    sent = sender.send(payload, tag=b"tag", message_format=7)
    delivery = only(Delivery, pair.run().server)

    assert delivery.payload == payload
    assert type(delivery.payload) is bytes
    assert delivery.id == sent.id
    assert delivery.tag == b"tag"
    assert delivery.message_format == 7
    assert delivery.link is receiver
    assert not delivery.settled
    assert pair.server.buffered == 0


@pytest.mark.parametrize("message_format", [0, 1, 255, 256, BATCH_FORMAT, 2**32 - 1])
def test_message_format_is_transferred(message_format: int) -> None:
    pair, sender, _ = pair_with_sender()

    sender.send(b"batch", message_format=message_format)

    assert only(Delivery, pair.run().server).message_format == message_format


@pytest.mark.parametrize("message_format", [-1, 2**32])
def test_message_format_out_of_range_is_an_error_without_effect(message_format: int) -> None:
    pair, sender, _ = pair_with_sender()

    with pytest.raises(EncodeError, match="message format"):
        sender.send(b"x", message_format=message_format)

    assert sender.credit == 100
    assert sender.session.outgoing.unsettled == {}
    sender.send(b"y")
    assert payloads(pair.run().server) == [b"y"]


@pytest.mark.parametrize("tag", [b"", b"x" * 33])
def test_tag_of_invalid_size_is_an_error_without_effect(tag: bytes) -> None:
    _, sender, _ = pair_with_sender()

    with pytest.raises(EncodeError, match="1 to 32 bytes"):
        sender.send(b"x", tag=tag)

    assert sender.credit == 100


def test_tag_of_a_settled_delivery_may_be_empty() -> None:
    pair, sender, _ = pair_with_sender()
    sender.send(b"x", tag=b"", settled=True)
    sender.send(b"y", tag=b"", settled=True)
    assert payloads(pair.run().server) == [b"x", b"y"]


def test_default_tags_are_unique() -> None:
    pair, sender, _ = pair_with_sender()
    for _ in range(50):
        sender.send(b"x")

    assert len({delivery.tag for delivery in events_of(Delivery, pair.run().server)}) == 50


def test_message_can_be_sent_in_parts() -> None:
    pair, sender, _ = pair_with_sender(server=SMALL_FRAMES)

    parts = [
        sender.send(b"a" * 1000, more=True, message_format=BATCH_FORMAT),
        sender.send(b"b", more=True),
        sender.send(b"", more=True),
        sender.send(b"c" * 1000),
    ]
    delivery = only(Delivery, pair.run().server)

    assert {sent.id for sent in parts} == {delivery.id}
    assert delivery.payload == b"a" * 1000 + b"b" + b"c" * 1000
    assert delivery.message_format == BATCH_FORMAT
    assert sender.credit == 99


def test_parts_of_messages_on_two_links_may_be_interleaved() -> None:
    pair, first, receiver = pair_with_sender()
    second, on_second = pair.sender(first.session, "second")
    on_second.flow(10)
    pair.run()

    first.send(b"1a", more=True)
    second.send(b"2a", more=True)
    first.send(b"1b", more=True)
    second.send(b"2b")
    second.send(b"3")
    first.send(b"1c")
    deliveries = events_of(Delivery, pair.run().server)

    assert [(delivery.link, delivery.payload, delivery.id) for delivery in deliveries] == [
        (on_second, b"2a2b", 1),
        (on_second, b"3", 2),
        (receiver, b"1a1b1c", 0),
    ]


def test_later_frames_may_repeat_fields_of_the_first() -> None:
    peer, _ = receiving()
    peer.send(0, b"a", more=True)

    delivery = only(Delivery, peer.send(0, b"b"))

    assert delivery.payload == b"ab"


def test_later_frame_with_another_delivery_id_ends_the_session() -> None:
    peer, _ = receiving()
    peer.send(0, b"a", more=True)

    ended = only(Ended, peer.send(1, b"b"))

    assert "was complete" in str(ended.error)


def test_state_of_a_transfer_is_reported() -> None:
    peer, _ = receiving()

    assert only(Delivery, peer.send(0, state=Accepted())).state == Accepted()
    peer.send(1, more=True, state=Received(0, 0))
    assert only(Delivery, peer.send(None, state=Accepted())).state == Accepted()
    peer.send(2, more=True, state=Accepted())
    assert only(Delivery, peer.send(None)).state == Accepted()


def test_transfer_with_a_symbolic_descriptor_is_accepted() -> None:
    peer, _ = receiving()
    fields = [UInt(0), UInt(0), b"tag", UInt(BATCH_FORMAT), True]
    body = encode(Described(Symbol("amqp:transfer:list"), fields))
    also = encode(Described(ULong(0x14), [UInt(0), UInt(1), b"tag"]))
    spelled_out = b"\x00\x80" + (0x14).to_bytes(8, "big") + also[3:]

    first = only(Delivery, peer.feed(encode_frame(0, body + b"payload")))
    second = only(Delivery, peer.feed(encode_frame(0, spelled_out + b"more")))

    assert first.payload == b"payload"
    assert first.message_format == BATCH_FORMAT
    assert first.settled
    assert second.payload == b"more"
    assert second.id == 1


@pytest.mark.parametrize("named", [True, False], ids=["symbol", "number"])
def test_unknown_state_stays_described(named: bool) -> None:
    peer, _ = receiving()
    state = Described(Symbol("com.example:state"), {"a": [1, 2]})
    data = encode_composite(Transfer(0, 0, b"tag", 0, state=state))
    if named:
        data = b"\x00" + encode(Symbol("amqp:transfer:list")) + data[3:]

    assert only(Delivery, peer.feed(encode_frame(0, data + b"x"))).state == state


def test_sender_can_abort_an_incomplete_delivery() -> None:
    pair, sender, receiver = pair_with_sender(server=SMALL_FRAMES)
    aborted = sender.send(b"x" * 5000, more=True).id
    assert aborted is not None
    sender.abort()
    sender.send(b"next")

    reported = pair.run().server

    assert [type(event) for event in reported] == [DeliveryAborted, Delivery]
    assert only(DeliveryAborted, reported).id == aborted
    assert only(DeliveryAborted, reported).link is receiver
    assert pair.server.buffered == 0
    assert list(sender.session.outgoing.unsettled) == [aborted + 1]
    assert receiver.credit == sender.credit == 98
    assert receiver.delivery_count == sender.delivery_count == 2


def test_abort_without_an_incomplete_delivery_does_nothing() -> None:
    pair, sender, _ = pair_with_sender()
    sender.send(b"whole")
    sender.abort()

    assert [type(event) for event in pair.run().server] == [Delivery]


def test_payload_of_an_aborting_frame_is_ignored() -> None:
    peer, _ = receiving()
    peer.send(0, b"x" * 100, more=True)
    assert peer.engine.buffered == 100

    (event,) = peer.send(0, b"y" * 100, aborted=True, more=True)

    assert isinstance(event, DeliveryAborted)
    assert peer.engine.buffered == 0
    assert only(Delivery, peer.send(1)).payload == b"hello"


def test_message_in_one_frame_that_is_too_large_ends_the_link() -> None:
    peer, link = receiving(max_message_size=10)
    assert only(Delivery, peer.send(0, b"x" * 10))

    detached = only(Detached, peer.send(1, b"x" * 11))

    assert detached.error is not None
    assert detached.error.condition == "amqp:link:message-size-exceeded"
    assert not detached.by_peer
    assert not link.alive
    written = peer.performatives()[-1]
    assert isinstance(written, Detach)
    assert written.closed
    assert written.error is not None
    assert written.error.condition == "amqp:link:message-size-exceeded"


@pytest.mark.parametrize("settled", [True, False])
def test_message_in_many_frames_that_is_too_large_ends_the_link_at_once(settled: bool) -> None:
    peer, link = receiving(max_message_size=10)
    peer.send(0, b"x" * 6, more=True, settled=settled)

    detached = only(Detached, peer.send(None, b"x" * 6, more=True, settled=settled))

    assert detached.error is not None
    assert detached.error.condition == "amqp:link:message-size-exceeded"
    assert peer.engine.buffered == 0
    # The rest of the message is in transit.
    assert peer.send(None, b"x" * 6, more=True) == []
    assert peer.send(None, b"x" * 6) == []
    assert peer.deliver(Detach(0, True)) == [Detached(link, None, True)]


@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("violation", ["size", "credit", "resume"])
def test_violation_on_a_link_does_not_affect_others(violation: str, more: bool) -> None:
    """Deliveries in transit after the violation still count for the sequence of ids."""
    peer, _ = receiving(credit=0 if violation == "credit" else 10, max_message_size=10)
    other = peer.attach_sender("other", 1)
    other.flow(10)
    payload = b"x" * (11 if violation == "size" else 5)

    events = peer.send(0, b"valid", handle=1)
    events += peer.send(1, payload, more=more, resume=violation == "resume")
    events += peer.send(None, payload) if more else []
    events += peer.send(2, payload)  # In transit on the link that ended.
    events += peer.send(3, b"valid", handle=1)

    assert [type(event) for event in events] == [Delivery, Detached, Delivery]
    assert not other.session.ended


def test_maximum_message_size_of_zero_means_no_limit() -> None:
    peer, _ = receiving(max_message_size=0)

    assert only(Delivery, peer.send(0, b"x" * 10_000))


def test_message_above_the_peers_limit_is_not_sent() -> None:
    pair = EnginePair(on_attach=lambda link: link.accept(max_message_size=10))
    session, _ = pair.session()
    sender, receiver = pair.sender(session)
    receiver.flow(10)
    pair.run()
    assert sender.remote_max_message_size == 10

    with pytest.raises(EncodeError, match="11 bytes exceeds the limit of 10"):
        sender.send(b"x" * 11)
    assert sender.credit == 10
    sender.send(b"x" * 6, more=True)
    with pytest.raises(EncodeError, match="12 bytes exceeds the limit of 10"):
        sender.send(b"x" * 6)
    sender.abort()
    sender.send(b"x" * 10)

    assert [type(event) for event in pair.run().server] == [DeliveryAborted, Delivery]


def test_total_size_of_incomplete_messages_is_bounded() -> None:
    settings = ConnectionSettings(container_id="engine", max_buffered=1000)
    peer, _ = ScriptedPeer.in_session(settings)
    for handle in range(3):
        peer.attach_sender(f"link {handle}", handle).flow(10)
        peer.frames()
    peer.send(0, bytes(400), more=True, handle=0)
    peer.send(1, bytes(400), more=True, handle=1)
    assert peer.engine.buffered == 800
    # Complete messages are not buffered.
    assert only(Delivery, peer.send(2, bytes(5000), handle=2))

    closed = only(Closed, peer.send(None, bytes(201), more=True, handle=0))

    assert closed.error is not None
    assert closed.error.condition == "amqp:resource-limit-exceeded"
    assert peer.engine.buffered == 0


def test_complete_aborted_and_detached_messages_are_not_counted() -> None:
    peer, link = receiving()
    peer.send(0, bytes(100), more=True)
    peer.send(None, bytes(100))
    assert peer.engine.buffered == 0
    peer.send(1, bytes(100), more=True)
    peer.send(1, b"", aborted=True)
    assert peer.engine.buffered == 0
    peer.send(2, bytes(100), more=True)
    peer.deliver(Detach(0, True))
    assert peer.engine.buffered == 0
    again = peer.attach_sender("again", 0)
    again.flow(1)
    peer.send(3, bytes(100), more=True)
    assert peer.engine.buffered == 100
    link.session.end()
    assert peer.engine.buffered == 0


def test_message_in_many_tiny_frames_uses_no_extra_memory() -> None:
    peer, link = receiving()
    peer.send(0, b"", more=True)
    for _ in range(2000):
        peer.send(None, b"", more=True)
        peer.send(None, b"ab", more=True)
    (partial,) = link.session.incoming._partials.values()

    assert len(partial.data) == peer.engine.buffered == 4000
    assert only(Delivery, peer.send(None, b"!")).payload == b"ab" * 2000 + b"!"


def test_transfer_without_credit_ends_the_link() -> None:
    peer, link = receiving(credit=1)
    peer.send(0)

    detached = only(Detached, peer.send(1))

    assert detached.error is not None
    assert detached.error.condition == "amqp:link:transfer-limit-exceeded"
    assert not link.alive


def test_without_credit_nothing_can_be_sent() -> None:
    pair, sender, _ = pair_with_sender(credit=1)
    sender.send(b"a" * 10, more=True)
    sender.send(b"b")  # The same delivery needs no more credit.

    with pytest.raises(StateError, match="no credit"):
        sender.send(b"c")
    assert payloads(pair.run().server) == [b"a" * 10 + b"b"]


def test_incomplete_delivery_cannot_continue_after_its_link_ended() -> None:
    pair, sender, receiver = pair_with_sender()
    sender.send(b"a", more=True)
    pair.run()
    receiver.detach()
    pair.run()

    with pytest.raises(StateError):
        sender.send(b"b")
    sender.abort()
    assert not pair.client.has_data_to_send


def test_delivery_ids_wrap_around() -> None:
    pair, sender, receiver = pair_with_sender(server=SMALL_FRAMES)
    sender.session.outgoing.next_delivery_id = 2**32 - 2
    for number in range(4):
        sender.send(b"%d" % number * 500)

    deliveries = events_of(Delivery, pair.run().server)

    assert [delivery.id for delivery in deliveries] == [2**32 - 2, 2**32 - 1, 0, 1]
    receiver.session.settle(2**32 - 2, 1, Accepted())
    pair.run()
    assert sender.session.outgoing.unsettled == {}
    assert receiver.session.incoming.unsettled == {}


def test_transfer_on_a_sending_link_ends_the_session() -> None:
    peer, _ = ScriptedPeer.in_session()
    peer.attach_receiver()

    ended = only(Ended, peer.send(0))

    assert ended.error is not None
    assert ended.error.condition == "amqp:session:errant-link"


def test_transfer_before_we_have_answered_the_attach_is_dropped() -> None:
    peer, session = ScriptedPeer.in_session()
    peer.deliver(sender_attach())

    assert peer.send(0) == []
    assert peer.deliver(Flow(0, 10, 1, 10)) != []
    assert not session.ended


@pytest.mark.parametrize("size", [0, 100, 416, 417, 5000])
def test_several_messages_arrive_as_if_each_was_sent_alone(size: int) -> None:
    settings = ConnectionSettings(container_id="server", max_frame_size=512, incoming_window=2000)
    deliveries = []
    for at_once in (False, True):
        pair, sender, receiver = pair_with_sender(server=settings)
        receiver.flow(400)
        pair.run()
        sender.send(b"before")
        messages = [bytes([number % 256]) * size for number in range(300)]
        tags = [number.to_bytes(16, "big") for number in range(300)]
        if at_once:
            sender.send_all(messages, tags)
        else:
            for message, tag in zip(messages, tags, strict=True):
                sender.send(message, tag=tag)
        sender.send(b"after")
        arrived = events_of(Delivery, pair.run().server)
        deliveries.append([(d.id, d.tag, d.payload, d.message_format, d.settled) for d in arrived])
        assert sender.credit == receiver.credit == 400 - 302
        assert sender.delivery_count == receiver.delivery_count == 302

    assert deliveries[0] == deliveries[1]
    assert len(deliveries[0]) == 302


def test_several_messages_can_be_settled() -> None:
    pair, sender, receiver = pair_with_sender()
    receiver.flow(10)
    pair.run()
    sender.send_all([b"a", b"b", b"c"], [b"1", b"2", b"3"])
    first, _, last = events_of(Delivery, pair.run().server)

    receiver.session.settle(first.id, last.id, Accepted())
    (updated,) = events_of(OutgoingDeliveriesUpdated, pair.run().client)

    assert [delivery.tag for delivery in updated.deliveries] == [b"1", b"2", b"3"]
    assert all(delivery.link is sender for delivery in updated.deliveries)
    assert not sender.session.outgoing.unsettled


def test_several_messages_need_credit_for_each() -> None:
    pair, sender, receiver = pair_with_sender()
    receiver.flow(2)
    pair.run()

    with pytest.raises(StateError, match="no credit"):
        sender.send_all([b"a", b"b", b"c"], [b"1", b"2", b"3"])
