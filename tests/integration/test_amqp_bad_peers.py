"""Peers that are silent, stop reading or send garbage: calls end in time with an error of pairbus.

The tests have timeouts far above those of the client, so a call without a bound would fail them.
"""

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from examples.engine.memory_server import MemoryServer, ServerConnection
from pairbus.amqp import events as ev
from pairbus.amqp.client import Client, ClientOptions, Management, Receiver, Sender, SharedAccessKey
from pairbus.amqp.frames import AMQP_HEADER, SASL_HEADER, encode_frame
from pairbus.amqp.performatives import Accepted
from pairbus.amqp.sections import Message
from pairbus.errors import (
    AmqpError,
    ConnectionLost,
    DecodeError,
    OperationTimeout,
    ProtocolError,
    Unavailable,
)
from tests.integration.amqp_clients import Connect
from tests.integration.raw_peer import (
    DEADLINE_S,
    RawPeer,
    send_garbage_after,
    serve_until,
    silent_from,
)
from tests.interop.fixture_types import StartPeer, StartServer
from tests.interop.tls import TlsFiles

pytestmark = pytest.mark.timeout(30)


HELLO = Message.build(data=b"hello").encode()
SHORT_S = 0.3

OPERATIONS: dict[str, Callable[[Client, float], object]] = {
    "connect": lambda client, timeout_s: client.connect(timeout_s),
    "send": lambda client, timeout_s: Sender(client, "orders").send(HELLO, timeout_s=timeout_s),
    "post": lambda client, timeout_s: Sender(client, "orders").post(HELLO, timeout_s=timeout_s),
    "receive": lambda client, timeout_s: Receiver(client, "orders").receive(timeout_s=timeout_s),
    "peek": lambda client, timeout_s: Management(client, "orders").peek(timeout_s=timeout_s),
}
operations = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
Operation = Callable[[Client, float], object]


# Silent peers.


STAGES: dict[str, type | None] = {
    "at once": None,
    "after SASL": ev.Authenticated,
    "after open": ev.Opened,
}


@operations
@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_peer_that_goes_silent_while_connecting_is_a_timeout(
    raw_peer: StartPeer, connect: Connect, stage: type | None, operation: Operation
):
    peer = raw_peer(silent_from(stage))
    client = connect(peer)

    with pytest.raises(OperationTimeout):
        operation(client, SHORT_S)

    assert peer.happened.wait(DEADLINE_S)


@pytest.mark.parametrize("name", ["send", "post", "receive", "peek"])
@pytest.mark.parametrize("stage", [ev.Begun, ev.AttachReceived])
def test_peer_that_goes_silent_before_it_attaches_is_a_timeout(
    raw_peer: StartPeer, connect: Connect, stage: type, name: str
):
    peer = raw_peer(silent_from(stage))
    client = connect(peer)
    client.connect()

    with pytest.raises(OperationTimeout, match="a link to 'orders"):
        OPERATIONS[name](client, SHORT_S)

    assert peer.happened.wait(DEADLINE_S)


def test_peer_that_goes_silent_before_it_answers_cbs_is_a_timeout(
    raw_peer: StartPeer, connect: Connect
):
    peer = raw_peer(silent_from(ev.AttachReceived))
    client = connect(peer, tokens=SharedAccessKey("root", "key"))
    client.connect()

    with pytest.raises(OperationTimeout, match=r"a link to '\$cbs'"):
        Sender(client, "orders").send(HELLO, timeout_s=SHORT_S)

    assert peer.happened.wait(DEADLINE_S)


def test_connect_timeout_bounds_a_call_that_has_more_time(raw_peer: StartPeer, connect: Connect):
    peer = raw_peer(silent_from(None))
    client = connect(peer, connect_timeout_s=SHORT_S, operation_timeout_s=10_000)

    for operation in (
        client.connect,
        lambda: Sender(client, "orders").send(HELLO),
        lambda: Receiver(client, "orders").receive(timeout_s=5000),
        lambda: Management(client, "orders").peek(),
    ):
        with pytest.raises(OperationTimeout):
            operation()

    assert peer.happened.wait(DEADLINE_S)


@pytest.mark.parametrize(
    "reply",
    [b"", b"\x16\x03\x03\x10\x00"],
    ids=["nothing", "the header of a TLS record without its content"],
)
def test_peer_that_is_frozen_during_the_tls_handshake_is_a_timeout(
    raw_peer: StartPeer, connect: Connect, reply: bytes
):
    def script(sock: socket.socket, peer: RawPeer) -> None:
        peer.read(sock)
        sock.sendall(reply)
        peer.keep_open()

    peer = raw_peer(script)
    client = connect(peer, tls=True, host="localhost", connect_timeout_s=SHORT_S)

    with pytest.raises(OperationTimeout, match="TLS handshake"):
        client.connect()

    assert peer.happened.wait(DEADLINE_S)
    assert peer.received[:1] == b"\x16"  # A TLS client hello.


@pytest.fixture
def full_listener() -> Iterator[int]:
    """Yield the port of a listener whose queue is full, so that packets are dropped."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(8):
            sock = stack.enter_context(socket.socket())
            sock.settimeout(0.1)
            try:
                sock.connect(address)
            except TimeoutError:
                break
        else:
            pytest.fail("the listener's queue does not fill up")
        yield address[1]


def test_host_that_drops_packets_is_a_timeout(full_listener: int):
    client = Client(
        ClientOptions(host="127.0.0.1", port=full_listener, tls=False, connect_timeout_s=SHORT_S)
    )

    with pytest.raises(OperationTimeout, match="did not answer in time"):
        client.connect()
    client.close()


def test_each_address_of_a_host_is_tried_within_the_time(
    server: MemoryServer, connect: Connect, full_listener: int, monkeypatch: pytest.MonkeyPatch
):
    """The first address drops packets, the second is a server."""
    kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
    addresses = [(*kind, ("127.0.0.1", port)) for port in (full_listener, server.port)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: addresses)

    connect(server, connect_timeout_s=3).connect()

    assert len(server.opens) == 1


def test_silent_peer_is_lost_before_the_call_times_out(raw_peer: StartPeer, connect: Connect):
    peer = raw_peer(silent_from(ev.AttachReceived))
    client = connect(peer, idle_timeout_s=1.5, operation_timeout_s=1000)

    with pytest.raises(ConnectionLost, match=r"sent nothing for 1\.5 s"):
        Receiver(client, "orders").receive()

    assert peer.happened.wait(DEADLINE_S)


def test_frozen_server_is_lost_during_a_receive(server: MemoryServer, connect: Connect):
    client = connect(server, idle_timeout_s=1.5, operation_timeout_s=1000)
    receiver = Receiver(client, "orders")
    receiver.open()
    frozen, thaw = threading.Event(), threading.Event()

    def freeze(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.FlowReceived) and not frozen.is_set():
            frozen.set()
            thaw.wait(DEADLINE_S)
        return False

    server.call(lambda: setattr(server, "intercept", freeze))

    with pytest.raises(ConnectionLost, match="sent nothing"):
        receiver.receive()

    assert frozen.is_set()
    thaw.set()
    server.put("orders", HELLO)
    assert [each.payload for each in receiver.receive()] == [HELLO]
    assert client.generation == 2


# Peers that do not read.


def stop_reading_after_credit(sock: socket.socket, peer: RawPeer) -> None:
    """Attach a link, grant credit, and stop reading."""
    engine = serve_until(sock, peer, ev.Begun)
    while True:
        events = engine.receive(peer.read(sock), time.monotonic())
        for event in events:
            if isinstance(event, ev.AttachReceived):
                event.link.accept()
                event.link.flow(1000)
                sock.sendall(engine.data_to_send())
                peer.keep_open()
                return


def test_peer_that_does_not_read_is_a_timeout(raw_peer: StartPeer, connect: Connect):
    peer = raw_peer(stop_reading_after_credit)
    client = connect(peer)
    sender = Sender(client, "orders")
    large = Message.build(data=bytes(30_000_000)).encode()
    sender.open()

    with pytest.raises(OperationTimeout):
        sender.send(large, timeout_s=SHORT_S)

    assert peer.happened.wait(DEADLINE_S)
    assert client._transport is not None
    assert len(client._transport._unsent) > 0, "the peer read the whole message"
    # Closing does not wait for the peer, either.
    sender.close(timeout_s=SHORT_S)
    client.close(timeout_s=SHORT_S)
    client.close()


def test_peer_that_reads_only_after_we_read_is_no_deadlock(raw_peer: StartPeer, connect: Connect):
    """Both sides write more than the socket buffers hold."""
    large = Message.build(data=bytes(12_000_000)).encode()

    def script(sock: socket.socket, peer: RawPeer) -> None:
        engine = serve_until(sock, peer, ev.Begun)
        links: list[Any] = []
        while not peer.over.is_set():
            for event in engine.receive(peer.read(sock), time.monotonic()):
                if isinstance(event, ev.AttachReceived):
                    event.link.accept()
                    links.append(event.link)
                elif isinstance(event, ev.Delivery):
                    event.link.session.settle(event.id, event.id, Accepted())
            if links and not links[0].credit:
                links[0].flow(10)
            if engine.buffered and not peer.happened.is_set():
                # The first of the client's frames are here: now the client has to read before
                # this side reads on.
                links[1].send(large)
                peer.happened.set()
            sock.sendall(engine.data_to_send())

    peer = raw_peer(script)
    client = connect(peer, operation_timeout_s=20)
    sender, receiver = Sender(client, "orders"), Receiver(client, "orders")
    sender.open()
    receiver.open()
    assert receiver.receive(timeout_s=0.1) == []

    sender.send(large)

    assert peer.happened.wait(DEADLINE_S)
    [delivery] = receiver.receive()
    assert delivery.payload == large


# Peers that send without pause.


def test_peer_that_sends_without_pause_does_not_prevent_a_timeout(
    raw_peer: StartPeer, connect: Connect
):
    empty = encode_frame(0, b"") * 8000

    def script(sock: socket.socket, peer: RawPeer) -> None:
        serve_until(sock, peer, ev.AttachReceived)
        peer.happened.set()
        while not peer.over.is_set():
            sock.sendall(empty)

    peer = raw_peer(script)
    client = connect(peer)

    with pytest.raises(OperationTimeout):
        Sender(client, "orders").send(HELLO, timeout_s=SHORT_S)

    assert peer.happened.wait(DEADLINE_S)


# Peers that close the connection.


@operations
def test_peer_that_closes_the_socket_at_once_is_lost(
    raw_peer: StartPeer, connect: Connect, operation: Operation
):
    peer = raw_peer(lambda sock, peer: peer.happened.set())

    with pytest.raises(ConnectionLost):
        operation(connect(peer), 5)

    assert peer.happened.wait(DEADLINE_S)


@pytest.mark.parametrize("stage", [ev.Authenticated, ev.Opened, ev.Begun, ev.AttachReceived])
def test_peer_that_closes_the_socket_later_is_lost(
    raw_peer: StartPeer, connect: Connect, stage: type
):
    def script(sock: socket.socket, peer: RawPeer) -> None:
        serve_until(sock, peer, stage)
        peer.happened.set()

    peer = raw_peer(script)

    with pytest.raises(ConnectionLost):
        Sender(connect(peer), "orders").send(HELLO)

    assert peer.happened.wait(DEADLINE_S)


def reset(sock: socket.socket, peer: RawPeer) -> None:
    """Reset the connection."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    peer.happened.set()


# Python does not close the socket of a connection that was reset before it was wrapped.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("tls", [False, True])
def test_peer_that_resets_the_connection_is_lost(raw_peer: StartPeer, connect: Connect, tls: bool):
    peer = raw_peer(reset)

    # Often enough to be reset before, during and after each step.
    for _ in range(50):
        with pytest.raises(ConnectionLost):
            connect(peer, tls=tls, host="localhost" if tls else "127.0.0.1").connect()

    assert peer.happened.wait(DEADLINE_S)


def test_peer_that_closes_the_socket_during_the_tls_handshake_is_lost(
    raw_peer: StartPeer, connect: Connect
):
    def script(sock: socket.socket, peer: RawPeer) -> None:
        peer.read(sock)
        peer.happened.set()

    peer = raw_peer(script)

    with pytest.raises(ConnectionLost, match="TLS with"):
        connect(peer, tls=True, host="localhost").connect()

    assert peer.happened.wait(DEADLINE_S)


# Peers that send garbage.


GARBAGE = {
    "http": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
    "half a header, then text": b"AMQPhello, world",
    "an old protocol": b"AMQP\x00\x00\x09\x01",
    "headers without end": AMQP_HEADER * 4,
    "SASL headers without end": SASL_HEADER * 4,
    "a frame that is too small": struct.pack(">IBBH", 4, 2, 0, 0) * 4,
    "a frame of gigabytes": struct.pack(">IBBH", 0xFFFFFFFF, 2, 0, 0) + bytes(64),
    "a frame of no AMQP": SASL_HEADER + encode_frame(0, b"\xff" * 40) * 3,
    "a frame of another kind": SASL_HEADER
    + encode_frame(0, b"\x00\x53\x10\xc0\x01\x00", frame_type=7) * 2,
    "unknown performative": SASL_HEADER
    + encode_frame(0, b"\x00\x53\x99\xc0\x01\x00", frame_type=1) * 2,
    "random bytes": bytes((n * 167 + 13) % 256 for n in range(1000)),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_garbage_raises_an_error_of_pairbus(
    raw_peer: StartPeer, connect: Connect, garbage: bytes, stage: type | None
):
    peer = raw_peer(send_garbage_after(garbage, stage))
    client = connect(peer)

    with pytest.raises(AmqpError) as caught:
        Sender(client, "orders").send(HELLO, timeout_s=1)

    assert peer.happened.wait(DEADLINE_S)
    assert isinstance(caught.value, ProtocolError | Unavailable)


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_during_a_receive_raises_an_error_of_pairbus(
    server: MemoryServer, connect: Connect, garbage: bytes
):
    sent = []

    def send_garbage(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.FlowReceived) and not sent:
            sent.append(garbage)
            peer.transport.write(garbage)
        return False

    server.call(lambda: setattr(server, "intercept", send_garbage))
    client = connect(server)
    receiver = Receiver(client, "orders")

    with pytest.raises(ProtocolError):
        receiver.receive()

    assert sent
    server.put("orders", HELLO)
    assert [each.payload for each in receiver.receive()] == [HELLO]
    assert client.generation == 2
    # The client reported the violation before it closed the socket.
    server.wait_for(lambda: server.errors)
    assert server.errors[0].condition.startswith("amqp:")


def test_garbage_from_tls_is_lost(raw_peer: StartPeer, connect: Connect):
    peer = raw_peer(send_garbage_after(os.urandom(200), None))

    with pytest.raises(ConnectionLost, match="TLS with"):
        connect(peer, tls=True, host="localhost").connect()

    assert peer.happened.wait(DEADLINE_S)


def test_error_for_garbage_describes_it(raw_peer: StartPeer, connect: Connect):
    peer = raw_peer(send_garbage_after(GARBAGE["http"], None))

    with pytest.raises(ProtocolError, match="the protocol of the peer is not AMQP"):
        connect(peer).connect()


def test_invalid_performative_is_a_decode_error(raw_peer: StartPeer, connect: Connect):
    peer = raw_peer(send_garbage_after(encode_frame(0, b"\x00\x53\x11\xc0\x02\x01\xff"), ev.Opened))

    with pytest.raises(DecodeError):
        connect(peer).connect()


def test_connection_cut_by_tls_is_lost_and_the_next_call_works(
    start_server: StartServer, connect: Connect, tls_files: TlsFiles
):
    server = start_server(tls=tls_files.server_context())
    client = connect(server, tls=True, host="localhost", ca_file=str(tls_files.ca))
    sender = Sender(client, "orders")
    sender.open()
    server.call(lambda: setattr(server, "cut_after", 1))

    with pytest.raises(ConnectionLost):
        sender.send(HELLO)

    assert server.cuts == 1
    sender.send(HELLO)
    assert client.generation == 2


# Closing.


def test_closing_does_not_wait_for_a_peer_that_went_silent(raw_peer: StartPeer, connect: Connect):
    peer = raw_peer(silent_from(ev.Begun))
    client = connect(peer)
    client.connect()
    assert peer.happened.wait(DEADLINE_S)

    client.close(timeout_s=SHORT_S)
    client.close()


def test_close_without_an_answer_of_the_peer_says_so(
    raw_peer: StartPeer, server: MemoryServer, connect: Connect
):
    def script(sock: socket.socket, peer: RawPeer) -> None:
        serve_until(sock, peer, ev.Begun)
        assert peer.read(sock)  # the close; the socket is closed without an answer
        peer.happened.set()

    peer = raw_peer(script)
    client = connect(peer)
    client.connect()

    assert not client.close()

    assert peer.happened.wait(DEADLINE_S)
    answered = connect(server)
    answered.connect()
    assert answered.close()


def test_closing_a_link_does_not_wait_for_a_peer_that_went_silent(
    raw_peer: StartPeer, connect: Connect
):
    peer = raw_peer(stop_reading_after_credit)
    client = connect(peer)
    sender = Sender(client, "orders")
    sender.open()
    assert peer.happened.wait(DEADLINE_S)

    sender.close(timeout_s=SHORT_S)
    sender.close()
    client.close(timeout_s=SHORT_S)


def test_closing_after_the_connection_was_lost_does_nothing(server: MemoryServer, connect: Connect):
    client = connect(server)
    sender = Sender(client, "orders")
    sender.open()
    server.cut()
    assert server.cuts == 1

    sender.close()
    client.close()
