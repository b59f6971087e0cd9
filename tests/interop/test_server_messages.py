"""Messages between our client and peers as servers: sections, types, batches and frames."""

import hashlib
from typing import Any

import pytest

from pairbus.amqp.batch import BATCH_FORMAT, batch_envelope, make_batch, split_batch
from pairbus.amqp.client import Receiver, Sender
from pairbus.amqp.events import Delivery, OutgoingDeliveriesUpdated
from pairbus.amqp.performatives import Accepted
from pairbus.amqp.sections import DATA, VALUE
from pairbus.amqp.types import Symbol
from tests.interop.engine_client import EngineClient
from tests.interop.fixture_types import OpenClient, StartPeer
from tests.interop.limitations import CANNOT_READ, CANNOT_WRITE, needs
from tests.interop.messages import (
    FULL_MESSAGE,
    SIMPLE_VALUES,
    VALUES,
    PeerMessage,
    assert_same,
    text,
)
from tests.interop.peers import PeerServer
from tests.interop.transfers import receive
from tests.unit.amqp.same import same

LARGE = hashlib.shake_256(b"large").digest(300_000)


def test_message_is_sent_and_received_unchanged(peer: PeerServer, open_client: OpenClient) -> None:
    client = open_client(peer)
    payload = FULL_MESSAGE.encode()
    with Sender(client, "q") as sender, Receiver(client, "q") as receiver:
        sender.send(payload)
        [message] = peer.receive(1)
        assert message.payload == payload
        assert_same(message, FULL_MESSAGE)

        [delivery] = receiver.receive()
        assert (delivery.payload, delivery.message_format) == (payload, 0)
        receiver.settle([delivery])
        assert peer.outcomes(1)[0][0] == Accepted()


def test_all_sections_of_a_peer_are_read(peer: PeerServer, open_client: OpenClient) -> None:
    peer.put("q", FULL_MESSAGE)

    [delivery] = Receiver(open_client(peer), "q").receive()

    assert_same(PeerMessage.parse(delivery.payload), FULL_MESSAGE)


def with_values(names: dict[str, str]) -> PeerMessage:
    """Return a message with all values but those of the names."""
    values = {name: value for name, value in VALUES.items() if name not in names}
    return PeerMessage(
        message_annotations={Symbol(name): value for name, value in values.items()},
        application_properties={n: v for n, v in SIMPLE_VALUES.items() if n not in names},
        body=(VALUE, [list(values.values())]),
    )


def assert_values(message: PeerMessage, expected: PeerMessage) -> None:
    def check(actual: dict[Any, Any], wanted: dict[Any, Any]) -> None:
        for name, value in wanted.items():
            assert same(actual[name], value), name

    check(message.message_annotations, expected.message_annotations)
    check(message.application_properties, expected.application_properties)
    check(dict(enumerate(message.body[1][0])), dict(enumerate(expected.body[1][0])))


def test_values_are_read_by_a_peer_with_their_types(
    peer: PeerServer, open_client: OpenClient
) -> None:
    message = with_values(CANNOT_READ[peer.name])

    Sender(open_client(peer), "q").send(message.encode())

    assert_values(peer.receive(1)[0], message)


def test_values_of_a_peer_keep_their_types(peer: PeerServer, open_client: OpenClient) -> None:
    message = with_values(CANNOT_WRITE[peer.name])
    peer.put("q", message)

    [delivery] = Receiver(open_client(peer), "q").receive()

    assert_values(PeerMessage.parse(delivery.payload), message)


def test_batch_is_received_by_a_peer_unchanged(peer: PeerServer, open_client: OpenClient) -> None:
    client = open_client(peer)
    members = [text(str(number)).encode() for number in range(500)]

    Sender(client, "q").send_batch(members)

    [batch] = peer.receive(1)
    assert batch.payload == make_batch(members, batch_envelope(members[0]))
    [delivery] = Receiver(client, "q").receive()
    assert split_batch(delivery.payload) == members


@needs("server: message format")
def test_batch_is_split_by_a_peer(peer: PeerServer, open_client: OpenClient) -> None:
    members = [text("m" * size).encode() for size in (0, 9, 250, 999)]

    Sender(open_client(peer), "q").send_batch(members)

    [batch] = peer.receive(1)
    assert batch.message_format == BATCH_FORMAT
    assert peer.members(batch.payload) == members


@needs("server: message format")
def test_batch_of_a_peer_is_split(peer: PeerServer, open_client: OpenClient) -> None:
    members = [peer.encode(text("m" * size)) for size in (0, 9, 999)]
    batch = peer.encode(PeerMessage(body=(DATA, members)))
    peer.put_payload("q", batch, BATCH_FORMAT)

    [delivery] = Receiver(open_client(peer), "q").receive()

    assert (delivery.message_format, delivery.payload) == (BATCH_FORMAT, batch)
    assert split_batch(delivery.payload) == members


def test_large_message_is_sent_in_many_frames(
    start_peer: StartPeer, open_client: OpenClient
) -> None:
    peer = start_peer(max_frame_size=1024)
    sender = Sender(open_client(peer), "q")
    large = PeerMessage(body=(DATA, [LARGE]))

    for message in (large, text("end")):
        sender.send(message.encode())

    assert [message.body for message in peer.receive(2)] == [large.body, text("end").body]
    assert peer.frames_in > len(LARGE) // 1024


def test_large_message_of_a_peer_arrives_in_many_frames(
    peer: PeerServer, open_client: OpenClient
) -> None:
    large = PeerMessage(body=(DATA, [LARGE]))
    peer.put("q", large, text("end"))

    deliveries = receive(Receiver(open_client(peer, max_frame_size=512), "q"), 2)

    bodies = [PeerMessage.parse(delivery.payload).body for delivery in deliveries]
    assert bodies == [large.body, text("end").body]
    assert peer.frames_out > len(LARGE) // 512


def test_large_message_of_a_peer_passes_our_small_window(peer: PeerServer) -> None:
    large = PeerMessage(body=(DATA, [LARGE]))
    peer.put("q", large)
    with EngineClient(peer.port, max_frame_size=512, incoming_window=2) as engine:
        engine.receiver(engine.begin(), "q").flow(1)

        delivery = engine.next(Delivery)

        assert PeerMessage.parse(delivery.payload).body == large.body


def test_large_message_passes_the_small_window_of_a_peer(
    start_peer: StartPeer, open_client: OpenClient
) -> None:
    peer = start_peer(max_frame_size=1024, window=8)
    sender = Sender(open_client(peer), "q")
    size = len(LARGE) if peer.name == "proton" else 4_000  # rhea renews after whole messages.

    for _ in range(5):
        sender.send(PeerMessage(body=(DATA, [LARGE[:size]])).encode())

    assert [message.body for message in peer.receive(5)] == [(DATA, [LARGE[:size]])] * 5


@needs("server: reports aborts")
def test_aborted_delivery_is_dropped_by_a_peer(peer: PeerServer) -> None:
    with EngineClient(peer.port) as engine:
        link = engine.sender(engine.begin(), "q")
        link.send(b"x" * 100_000, more=True)
        link.abort()
        link.send(text("complete").encode())
        engine.next(OutgoingDeliveriesUpdated)

    assert peer.aborted == 1
    assert [message.text for message in peer.receive(1)] == ["complete"]


@pytest.mark.parametrize("count", [300])
def test_messages_in_flight_keep_their_order(
    peer: PeerServer, open_client: OpenClient, count: int
) -> None:
    client = open_client(peer)
    sender, receiver = Sender(client, "q"), Receiver(client, "q")
    payloads = [text(str(number)).encode() for number in range(count)]

    pending = [sender.post(payload) for payload in payloads]
    sender.wait(pending)

    assert [delivery.error for delivery in pending] == [None] * count
    deliveries = receive(receiver, count)
    assert [delivery.payload for delivery in deliveries] == payloads
    receiver.settle(deliveries)
    assert {type(state) for state, _ in peer.outcomes(count)} == {Accepted}
