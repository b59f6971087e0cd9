"""The byte stream of AMQP in a WebSocket: control frames, limits, and the end of the stream."""

import logging

import pytest
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side

from pairbus.amqp.websocket import MAX_FRAME, MAX_SIZE, WebSocketStream, frame_logger


@pytest.fixture
def peer() -> Protocol:
    return Protocol(Side.CLIENT)


@pytest.fixture
def stream() -> WebSocketStream:
    return WebSocketStream(Protocol(Side.SERVER, max_size=MAX_SIZE, logger=frame_logger))


def output_of(peer: Protocol) -> bytes:
    return b"".join(peer.data_to_send())


def answers(stream: WebSocketStream, peer: Protocol) -> list[Frame]:
    """Return the frames that the stream sends to the peer."""
    peer.receive_data(stream.output())
    return [event for event in peer.events_received() if isinstance(event, Frame)]


def close_code(stream: WebSocketStream, peer: Protocol) -> int:
    answers(stream, peer)
    assert peer.close_rcvd is not None
    return peer.close_rcvd.code


def test_ping_is_answered_with_its_payload(stream: WebSocketStream, peer: Protocol):
    peer.send_ping(b"are you there?")

    assert stream.receive(output_of(peer)) == b""

    (pong,) = answers(stream, peer)
    assert (pong.opcode, pong.data) == (Opcode.PONG, b"are you there?")
    assert not stream.closed


def test_close_is_answered_and_ends_the_stream(stream: WebSocketStream, peer: Protocol):
    peer.send_binary(b"last words")
    peer.send_close(CloseCode.GOING_AWAY, "shut down")

    assert stream.receive(output_of(peer)) == b"last words"

    assert stream.closed
    assert "1001" in stream.close_reason
    assert "shut down" in stream.close_reason
    assert close_code(stream, peer) == CloseCode.GOING_AWAY
    assert stream.send(b"too late") == b""


def test_own_close_ends_the_stream_when_the_peer_answers(stream: WebSocketStream, peer: Protocol):
    peer.receive_data(stream.close())
    assert not stream.closed
    assert stream.close() == b""
    assert stream.send(b"too late") == b""

    stream.receive(output_of(peer))

    assert stream.closed


def test_text_is_refused(stream: WebSocketStream, peer: Protocol):
    peer.send_text(b"AMQP")

    assert stream.receive(output_of(peer)) == b""

    assert stream.closed
    assert close_code(stream, peer) == CloseCode.UNSUPPORTED_DATA
    assert stream.receive(b"anything") == b""


def test_frame_above_the_limit_is_refused_before_its_payload_arrives(
    stream: WebSocketStream, peer: Protocol
):
    peer.send_binary(bytes(MAX_FRAME + 1))

    assert stream.receive(output_of(peer)[:20]) == b""

    assert stream.closed
    assert close_code(stream, peer) == CloseCode.MESSAGE_TOO_BIG


def test_message_above_the_limit_is_refused(peer: Protocol):
    stream = WebSocketStream(Protocol(Side.SERVER, max_size=(1000, 600)))
    peer.send_binary(bytes(600), fin=False)
    peer.send_continuation(bytes(401), fin=True)

    assert stream.receive(output_of(peer)) == bytes(600)

    assert stream.closed
    assert close_code(stream, peer) == CloseCode.MESSAGE_TOO_BIG


def test_input_that_is_not_a_frame_ends_the_stream(stream: WebSocketStream, peer: Protocol):
    assert stream.receive(b"AMQP\x00\x01\x00\x00") == b""

    assert stream.closed
    assert close_code(stream, peer) == CloseCode.PROTOCOL_ERROR


def test_frames_hold_tokens_so_they_are_not_logged(
    peer: Protocol, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    stream = WebSocketStream(Protocol(Side.SERVER, max_size=MAX_SIZE, logger=frame_logger))
    peer.send_binary(b"SharedAccessSignature sig=secret")

    stream.receive(output_of(peer))
    stream.send(b"SharedAccessSignature sig=secret")

    assert "secret" not in caplog.text
