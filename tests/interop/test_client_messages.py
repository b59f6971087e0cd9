"""Messages between our server and peers as clients: sections, types, batches and frames."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from examples.engine.memory_server import MemoryServer
from pairbus.amqp.batch import BATCH_FORMAT, make_batch, split_batch
from pairbus.amqp.performatives import Accepted
from pairbus.amqp.sections import DATA, VALUE, Message, Properties
from pairbus.amqp.types import Symbol
from pairbus.errors import DecodeError
from tests.interop.fixture_types import Connect, StartServer, Watch
from tests.interop.limitations import CANNOT_READ, CANNOT_WRITE, needs
from tests.interop.messages import (
    BODIES,
    FULL_MESSAGE,
    MESSAGE_IDS,
    SIMPLE_VALUES,
    VALUES,
    PeerMessage,
    assert_same,
    text,
)
from tests.interop.peers import PeerClient
from tests.interop.transfers import received_by
from tests.unit.amqp.same import same

TIMES = ("creation_time", "absolute_expiry_time")
LARGE = hashlib.shake_256(b"large").digest(100_000)


def without(table: dict[str, dict[str, str]], peer: PeerClient, values: dict[str, Any]) -> Any:
    """Return the values without those that the table lists for the peer."""
    return {name: value for name, value in values.items() if name not in table[peer.name]}


def test_message_is_received_and_redelivered_unchanged(
    server: MemoryServer, connect: Connect
) -> None:
    peer = connect(server)
    bodies = ["", "a", "x" * 255, "x" * 256, "x" * 70_000]
    sender = peer.sender("q")

    for body in bodies:
        assert sender.send(text(body)) == Accepted()

    assert [message.text for message in received_by(server)] == bodies
    assert {(each.address, each.message_format, each.settled) for each in server.received} == {
        ("q", 0, False)
    }
    receiver = peer.receiver("q")
    messages = receiver.receive(len(bodies))
    assert [message.text for message in messages] == bodies
    for message in messages:
        receiver.settle(message)
    peer.until(lambda: len(server.settlements) == len(bodies))
    assert {type(settlement.state) for settlement in server.settlements} == {Accepted}
    assert not server.queues["q"]


def test_all_sections_of_a_peer_are_read(server: MemoryServer, connect: Connect) -> None:
    peer = connect(server)

    peer.sender("q").send(FULL_MESSAGE)

    [message] = received_by(server)
    properties, expected = message.properties, FULL_MESSAGE
    if peer.name.startswith("sdk"):  # The SDK computes both times from the time-to-live.
        assert properties.absolute_expiry_time is not None
        assert properties.creation_time is not None
        assert properties.absolute_expiry_time - properties.creation_time == 30_000
        times = {name: getattr(properties, name) for name in TIMES}
        expected = replace(expected, properties=replace(expected.properties, **times))
    assert_same(message, expected)


def test_all_sections_are_read_by_a_peer(server: MemoryServer, connect: Connect) -> None:
    server.put("q", FULL_MESSAGE.encode())
    peer = connect(server)

    [message] = peer.receiver("q").receive()

    assert message.header == FULL_MESSAGE.header
    assert message.properties == FULL_MESSAGE.properties
    for name in ("delivery_annotations", "message_annotations", "application_properties"):
        sent = {key: peer.as_read(value) for key, value in getattr(FULL_MESSAGE, name).items()}
        assert getattr(message, name) == sent
    assert message.body == FULL_MESSAGE.body


@needs("payload access")
def test_message_of_a_peer_is_returned_byte_for_byte(
    server: MemoryServer, connect: Connect
) -> None:
    peer = connect(server)
    peer.sender("q").send(FULL_MESSAGE)

    [message] = peer.receiver("q").receive()

    assert message.payload == server.received[0].payload == peer.encode(FULL_MESSAGE)


@pytest.mark.parametrize("kind", MESSAGE_IDS)
def test_message_ids_keep_their_types(server: MemoryServer, connect: Connect, kind: str) -> None:
    peer = connect(server)
    message_id = MESSAGE_IDS[kind]
    if f"message id {kind}" in CANNOT_WRITE[peer.name]:
        server.put("q", PeerMessage(properties=Properties(message_id=message_id)).encode())
    else:
        peer.sender("q").send(PeerMessage(properties=Properties(message_id=message_id)))
        [message] = received_by(server)
        assert same(message.properties.message_id, message_id)

    [returned] = peer.receiver("q").receive()

    if f"message id {kind}" not in CANNOT_READ[peer.name]:
        assert returned.properties.message_id == message_id


@pytest.mark.parametrize("kind", BODIES)
def test_bodies_keep_their_sections(server: MemoryServer, connect: Connect, kind: str) -> None:
    peer = connect(server)
    if kind in CANNOT_WRITE[peer.name]:
        server.put("q", PeerMessage(body=BODIES[kind]).encode())
    else:
        peer.sender("q").send(PeerMessage(body=BODIES[kind]))
        [message] = received_by(server)
        assert same(message.body, BODIES[kind])

    [returned] = peer.receiver("q").receive()

    if kind not in CANNOT_READ[peer.name]:
        body_type, values = BODIES[kind]
        if body_type != DATA:
            values = [peer.as_read(value) for value in values]
        assert returned.body == (body_type, values)


@needs("footer")
def test_footer_of_a_peer_is_read(server: MemoryServer, connect: Connect) -> None:
    footer = {Symbol("x-opt-sum"): b"\x01"}
    connect(server).sender("q").send(PeerMessage(body=(DATA, [b"a"]), footer=footer))

    [message] = received_by(server)
    assert same(message.footer, footer)


@needs("reads the footer")
def test_footer_is_read_by_a_peer(server: MemoryServer, connect: Connect) -> None:
    footer = {Symbol("x-opt-sum"): b"\x01"}
    server.put("q", PeerMessage(body=(DATA, [b"a"]), footer=footer).encode())

    [message] = connect(server).receiver("q").receive()

    assert message.footer == footer


@needs("footer before the body")
def test_footer_before_the_body_is_an_error(server: MemoryServer, connect: Connect) -> None:
    message = PeerMessage(body=(VALUE, ["a"]), footer={Symbol("x-opt-sum"): b"\x01"})
    connect(server).sender("q").send(message)

    with pytest.raises(DecodeError, match="section 0x77 must not follow 0x78"):
        Message.parse(server.received[0].payload)


def test_values_of_a_peer_keep_their_types(server: MemoryServer, connect: Connect) -> None:
    peer = connect(server)
    values = without(CANNOT_WRITE, peer, VALUES)
    message = PeerMessage(
        message_annotations={Symbol(name): value for name, value in values.items()},
        application_properties=without(CANNOT_WRITE, peer, SIMPLE_VALUES),
        body=(VALUE, [list(values.values())]),
    )

    peer.sender("q").send(message)

    assert_values(received_by(server)[0], message)


def test_values_are_read_by_a_peer_with_their_types(server: MemoryServer, connect: Connect) -> None:
    peer = connect(server)
    values = without(CANNOT_READ, peer, VALUES)
    message = PeerMessage(
        message_annotations={Symbol(name): value for name, value in values.items()},
        application_properties=without(CANNOT_READ, peer, SIMPLE_VALUES),
        body=(VALUE, [list(values.values())]),
    )
    server.put("q", message.encode())

    [returned] = peer.receiver("q").receive()

    expected = PeerMessage(
        message_annotations={k: peer.as_read(v) for k, v in message.message_annotations.items()},
        application_properties={
            name: peer.as_read(value) for name, value in message.application_properties.items()
        },
        body=(VALUE, [[peer.as_read(value) for value in message.body[1][0]]]),
    )
    assert_values(returned, expected)


def assert_values(message: PeerMessage, expected: PeerMessage) -> None:
    for name, value in expected.message_annotations.items():
        assert same(message.message_annotations[name], value), f"annotation {name}"
    for name, value in expected.application_properties.items():
        assert same(message.application_properties[name], value), f"property {name}"
    [values], [wanted] = message.body[1], expected.body[1]
    for number, value in enumerate(wanted):
        assert same(values[number], value), f"value {number}: {value!r}"


@needs("message format")
def test_batch_of_a_peer_is_split_into_its_messages(
    start_server: StartServer, connect: Connect
) -> None:
    server = start_server(split_batches=True)
    peer = connect(server)
    members = [PeerMessage(body=(DATA, [b"m" * size])) for size in (0, 9, 250, 10_000)]

    assert peer.sender("q").send_batch(members) == Accepted()

    [batch] = server.received
    assert batch.message_format == BATCH_FORMAT
    bodies = [PeerMessage.parse(member).body for member in split_batch(batch.payload)]
    assert bodies == [member.body for member in members]
    messages = peer.receiver("q").receive(len(members))
    assert [message.body for message in messages] == [member.body for member in members]


@needs("payload access")
def test_batch_is_received_by_a_peer_unchanged(
    server: MemoryServer, connect: Connect, watch: Watch
) -> None:
    frames = watch(server)
    batch = make_batch([text("m" * size).encode() for size in (0, 9, 250, 999)])
    server.put("q", batch, message_format=BATCH_FORMAT)

    [message] = connect(server).receiver("q").receive()

    assert frames.transfers("out")[0].performative.message_format == BATCH_FORMAT
    assert message.payload == batch


@needs("payload access")
def test_data_sections_of_a_peer_are_split_as_a_batch(
    server: MemoryServer, connect: Connect
) -> None:
    peer = connect(server)
    members = [peer.encode(text("m" * size)) for size in (0, 100, 300)]
    payload = b"".join(peer.encode(PeerMessage(body=(DATA, [member]))) for member in members)

    peer.sender("q").send(payload)

    assert server.received[0].payload == payload
    assert split_batch(payload) == members


@needs("payload access", "message format", "batch members")
def test_batch_is_split_by_a_peer(server: MemoryServer, connect: Connect) -> None:
    members = [text("m" * size).encode() for size in (0, 9, 250, 999)]
    envelope = Message.build(properties=Properties(to="q")).properties
    server.put("q", make_batch(members, envelope), message_format=BATCH_FORMAT)
    peer = connect(server)

    [message] = peer.receiver("q").receive()

    assert message.message_format == BATCH_FORMAT
    assert peer.members(message.payload) == members


@pytest.mark.parametrize(("frame_size", "window"), [(512, 4), (1024, 50), (4096, 5000)])
def test_large_message_of_a_peer_arrives_in_many_frames(
    start_server: StartServer, connect: Connect, watch: Watch, frame_size: int, window: int
) -> None:
    server = start_server(max_frame_size=frame_size, incoming_window=window)
    frames = watch(server)
    sender = connect(server).sender("q")

    for body in (b"small", LARGE, b"end"):
        sender.send(PeerMessage(body=(DATA, [body])))

    sizes = [frame.size for frame in frames.transfers("in")]
    assert len(sizes) > len(LARGE) // frame_size
    assert max(sizes) <= frame_size
    bodies = [(DATA, [body]) for body in (b"small", LARGE, b"end")]
    assert [message.body for message in received_by(server)] == bodies


@pytest.mark.parametrize("frame_size", [512, 4096])
def test_large_message_to_a_peer_is_sent_in_many_frames(
    start_server: StartServer, connect: Connect, watch: Watch, frame_size: int
) -> None:
    server = start_server(outgoing_frame_size=frame_size)
    frames = watch(server)
    bodies = [(DATA, [body]) for body in (b"small", LARGE, b"end")]
    server.put("q", *(PeerMessage(body=body).encode() for body in bodies))

    messages = connect(server).receiver("q").receive(3)

    assert [message.body for message in messages] == bodies
    sizes = [frame.size for frame in frames.transfers("out")]
    assert len(sizes) > len(LARGE) // frame_size
    assert max(sizes) <= frame_size


@needs("renews its window within a message")
def test_large_message_passes_a_small_window_of_a_peer(
    server: MemoryServer, connect: Connect, watch: Watch
) -> None:
    frames = watch(server)
    server.put("q", PeerMessage(body=(DATA, [LARGE])).encode(), text("end").encode())

    peer = connect(server, max_frame_size=1024, window=8)
    large, end = peer.receiver("q").receive(2)

    assert large.body == (DATA, [LARGE])
    assert end.text == "end"
    assert len(frames.transfers("out")) > len(LARGE) // 1024
    begins = [f.performative for f in frames.frames if (f.direction, f.name) == ("in", "begin")]
    assert begins[-1].incoming_window == 8


def test_message_above_the_limit_that_a_peer_announces_is_accepted(
    start_server: StartServer, connect: Connect
) -> None:
    # The SDK's receivers announce 1 MiB, whatever the entity holds.
    server = start_server(ignore_limits=True)
    body = (DATA, [LARGE * 20])
    server.put("q", PeerMessage(body=body).encode())

    [message] = connect(server).receiver("q").receive()

    assert message.body == body


@needs("several sessions", "send without waiting")
def test_large_messages_on_several_sessions_are_interleaved(
    start_server: StartServer, connect: Connect
) -> None:
    server = start_server(max_frame_size=512, incoming_window=8)
    peer = connect(server)
    bodies = {name: hashlib.shake_256(name.encode()).digest(50_000) for name in ("a", "b", "c")}
    senders = [peer.sender(name, session=number) for number, name in enumerate(bodies, 1)]

    for sender, body in zip(senders, bodies.values(), strict=True):
        sender.post(PeerMessage(body=(DATA, [body])))
    for sender in senders:
        assert sender.wait_for_outcomes(1) == [(Accepted(), True)]

    arrived = {each.address: PeerMessage.parse(each.payload).body for each in server.received}
    assert arrived == {name: (DATA, [body]) for name, body in bodies.items()}


@needs("abort")
def test_aborted_delivery_is_dropped(server: MemoryServer, connect: Connect, watch: Watch) -> None:
    frames = watch(server)
    peer = connect(server)
    sender = peer.sender("q")

    sender.abort(100_000)
    sender.send(text("complete"))

    assert any(frame.performative.aborted for frame in frames.transfers("in"))
    assert [message.text for message in received_by(server)] == ["complete"]
