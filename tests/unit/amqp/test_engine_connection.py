"""Connections: headers, open, close, empty frames and unexpected frames."""

from typing import Any

import pytest

from pairbus.amqp.connection import Connection
from pairbus.amqp.encode import encode
from pairbus.amqp.events import Begun, Closed, Ended, Opened
from pairbus.amqp.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, encode_frame
from pairbus.amqp.performatives import (
    Accepted,
    Begin,
    Close,
    Flow,
    Open,
    SaslInit,
    Source,
    Transfer,
)
from pairbus.amqp.settings import ConnectionSettings
from pairbus.amqp.types import Described, Symbol, ULong
from pairbus.errors import AmqpError, ConnectionLost, NotAuthorized, ProtocolError, StateError
from tests.unit.amqp.engines import EnginePair, ScriptedPeer, WrittenFrame, framed, frames_of, only


def test_client_and_server_open_the_connection() -> None:
    pair = EnginePair()

    reported = pair.run()

    assert only(Opened, reported.client).open.container_id == "server"
    assert only(Opened, reported.server).open.container_id == "client"
    assert not pair.client.closed
    assert not pair.server.closed


def test_client_sends_its_header_first() -> None:
    client = Connection(ConnectionSettings(container_id="c"), client=True, now=0.0)
    server = Connection(ConnectionSettings(container_id="s"), client=False, now=0.0)

    assert server.data_to_send() == b""
    written = client.data_to_send()
    assert written[:8] == b"AMQP\x00\x01\x00\x00"
    assert frames_of(written)[1].performative.container_id == "c"


def test_open_contains_the_settings() -> None:
    settings = ConnectionSettings(
        container_id="me",
        hostname="example.com",
        max_frame_size=1024,
        channel_max=3,
        idle_timeout_s=60,
        properties={Symbol("product"): "pairbus"},
        offered_capabilities=("a",),
        desired_capabilities=("b", "c"),
    )

    written = frames_of(Connection(settings, client=True, now=0.0).data_to_send())[1].performative

    assert written == Open(
        "me",
        "example.com",
        1024,
        3,
        30_000,  # Half of our idle timeout, as part 2, 2.4.5 recommends.
        properties={Symbol("product"): "pairbus"},
        offered_capabilities=(Symbol("a"),),
        desired_capabilities=(Symbol("b"), Symbol("c")),
    )


def test_omitted_fields_of_an_open_have_their_defaults() -> None:
    peer = ScriptedPeer()

    opened = only(Opened, peer.open()).open

    assert opened.max_frame_size == 2**32 - 1
    assert opened.channel_max == 65535
    assert opened.idle_time_out is None
    assert peer.engine.remote == opened


@pytest.mark.parametrize("size", [0, 511, 2**32])
def test_invalid_frame_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="max_frame_size"):
        ConnectionSettings(container_id="x", max_frame_size=size)


def test_invalid_window_is_refused() -> None:
    with pytest.raises(ValueError, match="incoming_window"):
        ConnectionSettings(container_id="x", incoming_window=1)


def test_both_sides_can_close_and_the_other_answers() -> None:
    for closing, other in (("client", "server"), ("server", "client")):
        pair = EnginePair()
        pair.run()

        getattr(pair, closing).close()
        reported = pair.run()

        assert getattr(reported, closing) == [Closed(None, by_peer=True)]
        assert getattr(reported, other) == [Closed(None, by_peer=True)]
        assert pair.client.closed
        assert pair.server.closed


def test_close_ends_the_sessions_on_the_connection() -> None:
    pair = EnginePair()
    in_client, in_server = pair.session()

    pair.server.close(AmqpError("bye", condition="amqp:connection:forced"))
    pair.run()

    assert in_client.ended
    assert in_server.ended
    with pytest.raises(StateError):
        pair.client.begin()


def test_close_can_be_called_again() -> None:
    peer = ScriptedPeer()
    peer.open()
    peer.frames()

    peer.engine.close()
    peer.engine.close(NotAuthorized("again"))

    assert peer.performatives() == [Close()]


def test_close_before_the_open_sends_nothing() -> None:
    server = Connection(ConnectionSettings(container_id="s"), client=False, now=0.0)

    server.close()

    assert server.closed
    assert server.data_to_send() == b""
    assert server.receive(AMQP_HEADER, 0.0) == []


def test_close_sends_an_open_first() -> None:
    peer = ScriptedPeer()
    peer.feed(AMQP_HEADER)

    peer.engine.close()

    assert [type(performative) for performative in peer.performatives()] == [Open, Close]


def test_peer_that_closes_at_once_gets_an_open_and_a_close() -> None:
    peer = ScriptedPeer()

    events = peer.feed(AMQP_HEADER + framed(Close()))

    assert events == [Closed(None)]
    assert [type(performative) for performative in peer.performatives()] == [Open, Close]


def test_lost_connection_is_reported_once() -> None:
    pair = EnginePair()
    pair.session()

    lost = only(Closed, pair.client.connection_lost("reset by peer"))

    assert isinstance(lost.error, ConnectionLost)
    assert lost.by_peer
    assert pair.client.connection_lost("again") == []
    assert pair.client.receive(b"anything", 0.0) == []


def test_session_cannot_be_begun_before_the_open_or_after_the_close() -> None:
    server = Connection(ConnectionSettings(container_id="s"), client=False, now=0.0)
    with pytest.raises(StateError, match="not open"):
        server.begin()
    assert server.data_to_send() == b""
    server.close()
    with pytest.raises(StateError, match="closed"):
        server.begin()


def test_empty_frame_causes_no_event() -> None:
    peer, _ = ScriptedPeer.in_session()

    assert peer.feed(EMPTY_FRAME * 3) == []
    assert peer.feed(bytes.fromhex("00000008 02 00 00ff")) == []  # On any channel.
    assert peer.frames() == []
    assert not peer.engine.closed


def test_extended_frame_header_is_skipped() -> None:
    peer = ScriptedPeer()
    body = bytes.fromhex("ffffffff") + framed(Open("peer"))[8:]

    events = peer.feed(
        AMQP_HEADER + (len(body) + 8).to_bytes(4, "big") + bytes.fromhex("03000000") + body
    )

    assert only(Opened, events).open.container_id == "peer"


@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x02\x01\x00\x00",  # TLS
        b"AMQP\x00\x00\x09\x01",  # AMQP 0-9-1
        b"AMQP\x03\x01\x00\x00",  # SASL, which is not configured.
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",  # A TLS client hello.
        bytes(8),
    ],
)
def test_peer_with_another_protocol_gets_our_header(header: bytes) -> None:
    peer = ScriptedPeer()

    closed = only(Closed, peer.feed(header))

    assert isinstance(closed.error, ProtocolError)
    assert closed.error.condition == "amqp:not-implemented"
    assert not closed.by_peer
    assert peer.engine.data_to_send() == AMQP_HEADER
    assert peer.engine.closed


def test_client_without_sasl_closes_if_the_server_requires_it() -> None:
    client = Connection(ConnectionSettings(container_id="c"), client=True, now=0.0)

    assert only(Closed, client.receive(SASL_HEADER, 0.0)).by_peer is False
    assert client.closed


UNEXPECTED_FRAMES: dict[str, tuple[bytes, str]] = {
    "second open": (framed(Open("again")), "amqp:not-allowed"),
    "size below that of the header": (bytes.fromhex("00000007 02 00 0000"), "framing-error"),
    "offset of one": (bytes.fromhex("00000008 01 00 0000"), "framing-error"),
    "offset beyond the frame": (bytes.fromhex("00000008 03 00 0000"), "framing-error"),
    "sasl frame": (framed(SaslInit("PLAIN"), kind=1), "framing-error"),
    "empty frame of an unknown type": (bytes.fromhex("00000008 02 07 0000"), "framing-error"),
    "unknown frame type": (framed(Close(), kind=7), "framing-error"),
    "sasl performative": (framed(SaslInit("PLAIN")), "amqp:not-allowed"),
    "not described": (encode_frame(0, b"\x45"), "amqp:decode-error"),
    "unknown descriptor": (
        encode_frame(0, encode(Described(ULong(0x7777), []))),
        "amqp:decode-error",
    ),
    "not a performative": (framed(Source("x")), "amqp:not-allowed"),
    "a delivery state": (framed(Accepted()), "amqp:not-allowed"),
    "trailing bytes": (framed(Begin(None, 0, 1, 1), payload=b"\x40"), "amqp:decode-error"),
    "truncated": (encode_frame(0, b"\x00\x53"), "amqp:decode-error"),
    "missing field": (encode_frame(0, bytes.fromhex("005311 45")), "amqp:invalid-field"),
    "unknown session": (framed(Flow(0, 1, 0, 1), channel=5), "amqp:not-allowed"),
    "transfer without session": (framed(Transfer(0, 0, b"a"), channel=5), "amqp:not-allowed"),
}


@pytest.mark.parametrize("name", UNEXPECTED_FRAMES)
def test_unexpected_frame_closes_the_connection(name: str) -> None:
    data, condition = UNEXPECTED_FRAMES[name]
    peer, session = ScriptedPeer.in_session()

    closed = only(Closed, peer.feed(data))

    assert condition in closed.error.condition  # type: ignore[union-attr]
    assert not closed.by_peer
    assert session.ended
    (written,) = peer.performatives()
    assert isinstance(written, Close)
    assert written.error is not None
    assert condition in written.error.condition


@pytest.mark.parametrize("early", [Begin(None, 0, 1, 1), Flow(0, 1, 0, 1), Transfer(0, 0, b"a")])
def test_frame_before_the_open_closes_the_connection(early: Any) -> None:
    peer = ScriptedPeer()
    peer.feed(AMQP_HEADER)

    closed = only(Closed, peer.deliver(early))

    assert "arrived before open" in str(closed.error)
    assert [type(performative) for performative in peer.performatives()] == [Open, Close]


def test_open_with_a_frame_size_below_512_closes_the_connection() -> None:
    peer = ScriptedPeer()

    closed = only(Closed, peer.open(max_frame_size=511))

    assert closed.error is not None
    assert closed.error.condition == "amqp:invalid-field"


def test_data_after_the_close_is_ignored() -> None:
    peer, _ = ScriptedPeer.in_session()

    events = peer.feed(framed(Close()) + framed(Begin(None, 0, 1, 1), channel=1) + b"\xff" * 50)

    assert events == [Closed(None)]
    assert peer.performatives() == [Close()]
    assert peer.feed(framed(Begin(None, 0, 1, 1), channel=1)) == []
    assert peer.feed(b"\xff" * 8) == []
    assert peer.engine.tick(1000.0) == []
    assert not peer.engine.has_data_to_send


def test_frames_that_cross_our_close_are_ignored() -> None:
    peer, session = ScriptedPeer.in_session()
    peer.engine.close()

    events = peer.deliver(Begin(None, 0, 1, 1), channel=1) + peer.deliver(Flow(0, 10, 0, 10))

    assert events == []
    assert session.ended
    assert peer.performatives() == [Close()]
    assert peer.deliver(Close()) == [Closed(None)]


def test_garbage_after_our_close_ends_the_connection() -> None:
    peer, _ = ScriptedPeer.in_session()
    peer.engine.close()

    closed = only(Closed, peer.feed(b"\xff" * 8))

    assert not closed.by_peer
    assert peer.performatives() == [Close()]


def test_open_and_begin_may_arrive_in_one_chunk() -> None:
    """Clients may pipeline: they need not wait for answers."""
    peer = ScriptedPeer()

    events = peer.feed(AMQP_HEADER + framed(Open("peer")) + framed(Begin(None, 0, 9, 9)))

    assert [type(event) for event in events] == [Opened, Begun]
    header, opened, begun = peer.frames()
    assert header == AMQP_HEADER
    assert isinstance(opened.performative, Open)
    assert begun == WrittenFrame(0, Begin(0, 0, 5000, 5000, 255), b"")


def test_client_may_begin_before_the_server_has_answered() -> None:
    pair = EnginePair()
    session = pair.client.begin()

    reported = pair.run()

    assert only(Begun, reported.client).session is session
    assert not any(isinstance(event, Ended) for event in reported.server)
