"""AMQP over WebSockets: the stream does not depend on messages, frames, pings and chunks."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.protocol import Protocol, Side

from pairbus.amqp.websocket import MAX_SENT, WebSocketStream

SIDES = [(Side.CLIENT, Side.SERVER), (Side.SERVER, Side.CLIENT)]
sides = pytest.mark.parametrize(("sender", "receiver"), SIDES)


def split(data: bytes, draw: st.DataObject) -> list[bytes]:
    """Return pieces of the data, some of them empty."""
    cuts = draw.draw(st.lists(st.integers(0, len(data)), max_size=8).map(sorted))
    return [data[start:end] for start, end in pairwise([0, *cuts, len(data)])]


def frames(data: bytes, peer: Protocol, draw: st.DataObject) -> bytes:
    """Return the data in frames: messages of one or several frames, with pings between them."""
    continued = False
    for piece in split(data, draw):
        if draw.draw(st.booleans()):
            peer.send_ping(draw.draw(st.binary(max_size=125)))
        fin = draw.draw(st.booleans())
        if continued:
            peer.send_continuation(piece, fin)
        else:
            peer.send_binary(piece, fin)
        continued = not fin
    return b"".join(peer.data_to_send())


@sides
@given(data=st.binary(max_size=4000), draw=st.data())
def test_any_fragmentation_gives_the_same_bytes(
    sender: Side, receiver: Side, data: bytes, draw: st.DataObject
) -> None:
    peer, stream = Protocol(sender), WebSocketStream(Protocol(receiver))

    received = [stream.receive(chunk) for chunk in split(frames(data, peer, draw), draw)]

    assert b"".join(received) == data
    assert not stream.closed


@sides
@given(
    writes=st.lists(st.binary(max_size=2000), max_size=5),
    size=st.integers(0, 3 * MAX_SENT),
    draw=st.data(),
)
def test_sent_bytes_arrive_in_messages_of_a_limited_size(
    sender: Side, receiver: Side, writes: list[bytes], size: int, draw: st.DataObject
) -> None:
    stream, peer = WebSocketStream(Protocol(sender)), Protocol(receiver, max_size=MAX_SENT)
    writes = [*writes, bytes(size)]
    output = b"".join(stream.send(data) for data in writes)

    arrived = []
    for chunk in split(output, draw):
        peer.receive_data(chunk)
        arrived += [bytes(frame.data) for frame in peer.events_received()]  # type: ignore[union-attr]

    assert b"".join(arrived) == b"".join(writes)


@given(st.binary(max_size=300), st.data())
def test_any_input_is_answered_without_an_exception(data: bytes, draw: st.DataObject) -> None:
    stream = WebSocketStream(Protocol(Side.SERVER))

    for chunk in split(data, draw):
        stream.receive(chunk)
        stream.output()
    stream.close()
    assert stream.close() == b""
