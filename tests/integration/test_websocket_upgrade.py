"""Our client and servers that do not upgrade to a WebSocket, or violate its protocol."""

import base64
import contextlib
import hashlib
import re
import socket
from collections.abc import Callable
from typing import Any

import pytest
from websockets.protocol import Protocol, Side

from pairbus.amqp.client import Client, ClientOptions
from pairbus.errors import ConfigurationError, ConnectionLost, OperationTimeout
from tests.integration.amqp_clients import Connect, options_for
from tests.integration.raw_peer import DEADLINE_S, RawPeer, Script
from tests.interop.fixture_types import StartPeer
from tests.interop.tls import TlsFiles

pytestmark = pytest.mark.timeout(30)

WRONG_KEY = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: wrong\r\n\r\n"
)


def answer(data: bytes, *, end: bool = False) -> Script:
    """Return a script that answers the upgrade with these bytes."""

    def script(sock: socket.socket, peer: RawPeer) -> None:
        read_request(sock, peer)
        with contextlib.suppress(OSError):  # the client may close before it has read everything
            sock.sendall(data)
            if end:
                sock.shutdown(socket.SHUT_WR)
        peer.keep_open()

    return script


def read_request(sock: socket.socket, peer: RawPeer) -> None:
    while b"\r\n\r\n" not in peer.received:
        assert peer.read(sock)


def upgraded(then: Callable[[Protocol], Any]) -> Script:
    """Return a script that accepts the upgrade, and then sends frames."""

    def script(sock: socket.socket, peer: RawPeer) -> None:
        read_request(sock, peer)
        protocol = Protocol(Side.SERVER)
        then(protocol)
        frames = b"".join(protocol.data_to_send())[:100_000]
        sock.sendall(accepting_response(bytes(peer.received)) + frames)
        peer.happened.set()
        while data := peer.read(sock):
            protocol.receive_data(data)

    return script


def accepting_response(request: bytes) -> bytes:
    match = re.search(rb"Sec-WebSocket-Key: (\S+)\r\n", request)
    assert match is not None
    digest = hashlib.sha1(match[1] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"
    )


def test_request_is_that_of_the_sdk(raw_peer: StartPeer, connect: Connect) -> None:
    peer = raw_peer(answer(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"))

    with pytest.raises(ConnectionLost):
        connect(peer, host="localhost", transport="websocket").connect()

    lines = bytes(peer.received).split(b"\r\n")
    assert lines[0] == b"GET /$servicebus/websocket HTTP/1.1"
    assert f"Host: localhost:{peer.port}".encode() in lines
    assert b"Sec-WebSocket-Protocol: AMQPWSB10" in lines


@pytest.mark.parametrize(
    ("status", "end"),
    [
        ("401 Unauthorized", False),
        ("403 Forbidden", False),
        ("404 Not Found", True),
        ("502 Bad Gateway", False),
        ("200 OK", False),
    ],
)
def test_server_that_refuses_the_upgrade_is_one_clear_sentence(
    raw_peer: StartPeer, connect: Connect, status: str, end: bool
) -> None:
    # Without a length, the response ends with the connection.
    length = "" if end else "Content-Length: 4\r\n"
    peer = raw_peer(answer(f"HTTP/1.1 {status}\r\n{length}\r\nbody".encode(), end=end))

    with pytest.raises(
        ConnectionLost,
        match=rf"^127\.0\.0\.1:{peer.port} refused the WebSocket upgrade: {status}\. Check that",
    ):
        connect(peer, transport="websocket").connect()

    assert peer.happened.wait(DEADLINE_S)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"AMQP\x00\x01\x00\x00\r\n\r\n", "did not answer the WebSocket upgrade correctly"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "did not answer .* correctly"),
        (WRONG_KEY, "did not answer .* correctly: .*Sec-WebSocket-Accept"),
        (b"x" * 100_000, "did not answer .* correctly"),
        (b"", "the WebSocket upgrade of .* failed: the peer closed the connection"),
    ],
    ids=["AMQP", "no headers", "wrong key", "long line", "closed"],
)
def test_server_that_answers_otherwise_is_an_error(
    raw_peer: StartPeer, connect: Connect, data: bytes, sentence: str
) -> None:
    peer = raw_peer(answer(data, end=True))

    with pytest.raises(ConnectionLost, match=sentence):
        connect(peer, transport="websocket").connect()

    assert peer.happened.wait(DEADLINE_S)


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 101 Switching"], ids=["nothing", "half"])
def test_server_that_hangs_in_the_upgrade_is_a_timeout(
    raw_peer: StartPeer, connect: Connect, data: bytes
) -> None:
    peer = raw_peer(answer(data))

    with pytest.raises(OperationTimeout, match="did not answer the WebSocket upgrade in time"):
        connect(peer, transport="websocket").connect(0.3)

    assert peer.happened.wait(DEADLINE_S)


def test_server_without_tls_is_a_tls_error(raw_peer: StartPeer, tls_files: TlsFiles) -> None:
    peer = raw_peer(lambda sock, peer: (peer.read(sock), sock.sendall(b"HTTP/1.1 400 Bad\r\n\r\n")))
    options = options_for(peer, tls=True, ca_file=str(tls_files.ca), transport="websocket")

    with pytest.raises(ConnectionLost, match=r"TLS with 127\.0\.0\.1:\d+ failed"):
        Client(options).connect()

    assert peer.received


def test_server_that_sends_pings_only_is_a_timeout(raw_peer: StartPeer, connect: Connect) -> None:
    def script(sock: socket.socket, peer: RawPeer) -> None:
        read_request(sock, peer)
        sock.sendall(accepting_response(bytes(peer.received)))
        protocol = Protocol(Side.SERVER)
        peer.happened.set()
        while not peer.over.wait(0.001):
            protocol.send_ping(b"")
            sock.sendall(b"".join(protocol.data_to_send()))

    peer = raw_peer(script)

    with pytest.raises(OperationTimeout):
        connect(peer, transport="websocket").connect(0.5)

    assert peer.happened.wait(DEADLINE_S)


@pytest.mark.parametrize(
    ("then", "sentence"),
    [
        (lambda peer: peer.send_close(1001, "bye"), "closed the WebSocket: .*1001.*bye"),
        (lambda peer: peer.send_text(b"AMQP"), "closed the WebSocket: .*1003.*binary"),
        (lambda peer: peer.writes.append(b"\xff\xff"), "closed the WebSocket: .*1002"),
        (lambda peer: peer.send_binary(bytes(5 * 2**20)), "closed the WebSocket: .*1009"),
    ],
    ids=["close", "text", "no frame", "large frame"],
)
def test_violation_or_close_of_the_server_ends_the_connection(
    raw_peer: StartPeer, connect: Connect, then: Callable[[Protocol], Any], sentence: str
) -> None:
    peer = raw_peer(upgraded(then))

    with pytest.raises(ConnectionLost, match=sentence):
        connect(peer, transport="websocket").connect()

    assert peer.happened.wait(DEADLINE_S)


def test_transport_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="transport must be one of tcp, websocket, not"):
        ClientOptions(host="localhost", transport="udp")  # type: ignore[arg-type]

    monkeypatch.setattr("pairbus.amqp.client.options.find_spec", lambda name: None)
    ClientOptions(host="localhost")
    with pytest.raises(ConfigurationError, match=r"pip install 'pairbus\[websocket\]'"):
        ClientOptions(host="localhost", transport="websocket")


@pytest.mark.parametrize(
    ("settings", "port", "audience"),
    [
        ({}, 5671, "sb://ns.example/q"),
        ({"transport": "websocket"}, 443, "sb://ns.example/q"),
        ({"transport": "websocket", "port": 443}, 443, "sb://ns.example/q"),
        ({"transport": "websocket", "port": 5671}, 443, "sb://ns.example/q"),
        ({"transport": "websocket", "port": 8443}, 8443, "sb://ns.example:8443/q"),
        ({"transport": "websocket", "tls": False}, 5672, "sb://ns.example/q"),
        ({"transport": "websocket", "tls": False, "port": 5672}, 5672, "sb://ns.example:5672/q"),
    ],
)
def test_port_follows_from_the_transport(
    settings: dict[str, Any], port: int, audience: str
) -> None:
    options = ClientOptions(host="ns.example", **settings)

    assert options.address == ("ns.example", port)
    assert options.audience("q") == audience
