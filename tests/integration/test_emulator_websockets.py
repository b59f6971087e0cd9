"""AMQP over WebSockets, on the same port as TCP, TLS and HTTP: our own client, and bad clients."""

import gc
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from pairbus.amqp.client import Client, ClientOptions, Receiver, Sender
from pairbus.amqp.connection import Connection
from pairbus.amqp.frames import SASL_HEADER
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.sections import Message
from pairbus.amqp.settings import ConnectionSettings
from pairbus.emulator.connections import amqp_connection, websocket
from pairbus.emulator.connections.amqp_connection import AmqpConnection
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import ConnectionLost
from tests.integration.emulator_clients import TIMEOUT_S, open_socket, read_until_closed
from tests.interop.transfers import receive
from tests.waiting import wait_until

schemes = pytest.mark.parametrize("scheme", ["ws", "wss"])


@pytest.fixture
def queue(namespace: LocalNamespace) -> str:
    namespace.reset()
    namespace.create_queue("orders", max_message_size_in_kilobytes=4096)
    return "orders"


# Our own client.


def options_of(namespace: LocalNamespace, scheme: str = "ws", **changes: Any) -> ClientOptions:
    settings = {
        "transport": "websocket",
        "tls": scheme == "wss",
        "ca_file": namespace.ca_file,
        "operation_timeout_s": TIMEOUT_S,
    }
    return ClientOptions.from_connection_string(namespace.connection_string, **(settings | changes))


@pytest.mark.rule("A2", "N2")
@schemes
def test_own_client_sends_and_receives(namespace: LocalNamespace, queue: str, scheme: str) -> None:
    bodies = [Message.build(data=bytes(size)).body for size in (1, 100, 3_000_000)]
    with Client(options_of(namespace, scheme)) as client:
        with Sender(client, queue) as sender:
            for body in bodies:
                sender.send(body)
        with Receiver(client, queue) as receiver:
            deliveries = receive(receiver, 3)
    assert [Message.parse(delivery.payload).body for delivery in deliveries] == bodies


def test_own_client_connects_again_after_a_restart(namespace: LocalNamespace, queue: str) -> None:
    payload = Message.build(data=b"x").encode()
    with Client(options_of(namespace)) as client, Sender(client, queue) as sender:
        sender.send(payload)
        namespace.stop()
        with pytest.raises(ConnectionLost):
            sender.send(payload)
        namespace.start()
        sender.send(payload)
        assert client.generation == 2


def test_faults_act_on_a_websocket(namespace: LocalNamespace, queue: str) -> None:
    cut = namespace.add_fault("cut", queue, count=1)
    payload = Message.build(data=b"x").encode()
    with Client(options_of(namespace)) as client, Sender(client, queue) as sender:
        with pytest.raises(ConnectionLost):
            sender.send(payload)
        assert cut.fired == 1
        sender.send(payload)


# Clients that use the protocol in unusual ways, or violate it.


class WebSocketPeer:
    """A client with a WebSocket of its own, and any frames in it."""

    def __init__(self, namespace: LocalNamespace, sock: socket.socket) -> None:
        self.protocol = ClientProtocol(
            parse_uri(f"ws://localhost:{namespace.port}/$servicebus/websocket"),
            subprotocols=[Subprotocol("amqp")],
        )
        self.sock = sock
        self.protocol.send_request(self.protocol.connect())

    def output(self) -> bytes:
        return b"".join(self.protocol.data_to_send())

    def flush(self) -> None:
        self.sock.sendall(self.output())

    def read(self) -> list[Frame]:
        """Return the next frames, or [] at the end of the connection."""
        while data := self.sock.recv(65536):
            self.protocol.receive_data(data)
            events = self.protocol.events_received()
            if frames := [event for event in events if isinstance(event, Frame)]:
                return frames
        self.protocol.receive_eof()
        return []

    def connect(self) -> None:
        self.flush()
        while self.protocol.state is State.CONNECTING:
            self.protocol.receive_data(self.sock.recv(65536))
        self.protocol.events_received()
        assert self.protocol.subprotocol == "amqp"

    def read_to_end(self) -> list[Frame]:
        frames: list[Frame] = []
        while some := self.read():
            frames += some
            self.flush()
        return frames


@contextmanager
def open_peer(namespace: LocalNamespace) -> Iterator[WebSocketPeer]:
    with open_socket(namespace) as sock:
        peer = WebSocketPeer(namespace, sock)
        peer.connect()
        yield peer


def amqp_engine() -> Connection:
    return Connection(
        ConnectionSettings(container_id="peer", hostname="localhost"),
        sasl=SaslClient.anonymous(),
        now=0.0,
    )


def test_upgrade_and_frames_may_arrive_together(namespace: LocalNamespace) -> None:
    with open_socket(namespace) as sock:
        peer = WebSocketPeer(namespace, sock)
        request = peer.output()
        peer.protocol.state = State.OPEN  # it sends before the server has answered
        peer.protocol.send_binary(SASL_HEADER)
        frames = peer.output()
        peer.protocol.state = State.CONNECTING
        sock.sendall(request + frames)

        (frame, *_) = peer.read()

    assert frame.data.startswith(SASL_HEADER)


def test_upgrade_may_follow_other_requests(namespace: LocalNamespace) -> None:
    with open_socket(namespace) as sock:
        peer = WebSocketPeer(namespace, sock)
        sock.sendall(b"GET /orders HTTP/1.1\r\nHost: localhost\r\n\r\n" + peer.output())
        received = b""
        while b"\r\nSec-WebSocket-Accept: " not in received:
            received += (data := sock.recv(65536))
            assert data
    assert received.startswith(b"HTTP/1.1 401 ")


def test_amqp_frames_need_not_align_with_messages(namespace: LocalNamespace) -> None:
    engine = amqp_engine()
    with open_peer(namespace) as peer:
        while engine.remote is None:
            for number, byte in enumerate(engine.data_to_send()):
                if number % 3 == 0:
                    peer.protocol.send_ping(b"ping")
                peer.protocol.send_binary(bytes((byte,)))
            peer.flush()
            for frame in peer.read():
                if frame.opcode is Opcode.BINARY:
                    engine.receive(bytes(frame.data), 0.0)
    assert engine.remote is not None


def test_client_that_closes_the_websocket_is_answered(namespace: LocalNamespace) -> None:
    before = open_connections()
    with open_peer(namespace) as peer:
        peer.protocol.send_close(CloseCode.GOING_AWAY)
        peer.flush()
        peer.read_to_end()
        assert peer.protocol.close_code == CloseCode.GOING_AWAY
    wait_until(lambda: open_connections() <= before, "the end of the connection")


@pytest.mark.parametrize(
    ("send", "code"),
    [
        (lambda peer: peer.send_text(b"AMQP"), CloseCode.UNSUPPORTED_DATA),
        (lambda peer: peer.send_binary(bytes(5 * 1024 * 1024)), CloseCode.MESSAGE_TOO_BIG),
        (lambda peer: peer.writes.append(b"AMQP\x00\x01\x00\x00"), CloseCode.PROTOCOL_ERROR),
    ],
    ids=["text", "large frame", "no frame"],
)
def test_violation_ends_its_connection_with_a_code(
    namespace: LocalNamespace, queue: str, send: Any, code: CloseCode
) -> None:
    with open_peer(namespace) as peer:
        send(peer.protocol)
        peer.sock.sendall(peer.output()[:100_000])
        peer.read_to_end()
        assert peer.protocol.close_rcvd is not None
        assert peer.protocol.close_rcvd.code == code
    test_own_client_sends_and_receives(namespace, queue, "ws")


def test_invalid_amqp_ends_the_websocket(namespace: LocalNamespace) -> None:
    before = open_connections()
    with open_peer(namespace) as peer:
        peer.protocol.send_binary(b"this is not AMQP")
        peer.flush()
        frames = peer.read_to_end()
    assert frames[-1].opcode is Opcode.CLOSE
    wait_until(lambda: open_connections() <= before, "the end of the connection")


def test_client_that_does_not_open_amqp_is_closed(
    namespace: LocalNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_connections()
    monkeypatch.setattr(amqp_connection, "OPEN_TIMEOUT_S", 0.1)
    monkeypatch.setattr(websocket, "CLOSE_TIMEOUT_S", 0.1)
    with open_peer(namespace) as peer:
        (close,) = peer.read()  # the peer does not answer it
        assert close.opcode is Opcode.CLOSE
        assert read_until_closed(peer.sock) == b""
    wait_until(lambda: open_connections() <= before, "the end of the connection")


def test_websocket_over_tls_is_served_on_a_tls_only_address() -> None:
    with LocalNamespace(host="0.0.0.0") as namespace:
        namespace.create_queue("orders")
        with pytest.raises(ConnectionLost):
            Client(options_of(namespace, "ws")).connect()
        options = options_of(namespace, "wss", host="localhost")
        with Client(options) as client, Sender(client, "orders") as sender:
            sender.send(Message.build(data=b"x").encode())


def test_request_for_another_path_is_not_upgraded(namespace: LocalNamespace) -> None:
    context = ssl.create_default_context(cafile=namespace.ca_file)
    with (
        open_socket(namespace) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        sock.sendall(
            b"GET /orders HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
        )
        assert sock.recv(65536).startswith(b"HTTP/1.1 401 ")


def open_connections() -> int:
    """Return the number of AMQP connections that the namespaces of this process keep."""
    gc.collect()
    return sum(type(value) is AmqpConnection for value in gc.get_objects())
