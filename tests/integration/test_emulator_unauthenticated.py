"""Clients that show no token: they cannot keep connections open, or keep other clients out."""

import contextlib
import http.client
import select
import socket
import ssl
import time
from collections.abc import Iterator
from itertools import product

import pytest

from pairbus.amqp.client import Sender
from pairbus.amqp.composite import encode_composite
from pairbus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, encode_frame
from pairbus.amqp.performatives import Attach, Begin, Open, SaslInit, Source, Target
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol
from pairbus.emulator.connections import amqp_connection, http_protocol, server, unauthenticated
from pairbus.emulator.connections.http import MAX_BODY
from pairbus.emulator.connections.unauthenticated import MAX_UNAUTHENTICATED
from pairbus.emulator.namespace import LocalNamespace
from pairbus.servicebus.connection_strings import ConnectionString
from pairbus.servicebus.tokens import sign_token
from tests.integration.emulator_clients import client_of, open_socket, read_until_closed, round_trip
from tests.integration.emulator_http import send_http_request
from tests.integration.sdk_flavours import SDK_SOCKETS
from tests.waiting import DEADLINE_S, wait_until

pytestmark = [*SDK_SOCKETS, pytest.mark.rule("N6")]

HELLO = Message.build(data=b"hello").encode()
HALF_REQUEST = b"GET /q HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the namespaces of a test wait for a short time at every stage. Answers are due first."""
    monkeypatch.setattr(server, "FIRST_BYTE_TIMEOUT_S", 3.0)
    monkeypatch.setattr(server, "TLS_HANDSHAKE_TIMEOUT_S", 3.0)
    monkeypatch.setattr(amqp_connection, "OPEN_TIMEOUT_S", 1.0)
    monkeypatch.setattr(http_protocol, "REQUEST_TIMEOUT_S", 1.0)
    monkeypatch.setattr(http_protocol, "KEEP_ALIVE_TIMEOUT_S", 1.0)
    monkeypatch.setattr(http_protocol, "DISCARD_TIMEOUT_S", 1.0)
    monkeypatch.setattr(unauthenticated, "AUTHENTICATION_TIMEOUT_S", 3.0)


@pytest.fixture
def own_namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace() as namespace:
        namespace.create_queue("orders")
        yield namespace


def is_closed(sock: socket.socket) -> bool:
    """Return True if the namespace has closed the connection. It may have sent something."""
    poll = select.poll()  # select.select fails for a socket whose number is 1024 or more
    poll.register(sock, select.POLLIN)
    if not poll.poll(0):
        return False
    try:
        return not sock.recv(65536)
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [b"", HALF_REQUEST, SASL_HEADER, b"\x16\x03\x01"])
def test_connections_without_a_token_do_not_keep_other_clients_out(
    own_namespace: LocalNamespace, sent: bytes
) -> None:
    with contextlib.ExitStack() as resources:
        sockets = []
        for _ in range(2 * MAX_UNAUTHENTICATED):
            sock = resources.enter_context(open_socket(own_namespace))
            sock.sendall(sent)
            sockets.append(sock)
        wait_until(
            lambda: is_closed(sockets[MAX_UNAUTHENTICATED - 1]), "the end of the oldest connections"
        )
        assert not is_closed(sockets[-1])
        round_trip(own_namespace)
        assert send_http_request(own_namespace, "GET", "faults") == (200, [])


def test_connections_with_a_token_are_not_limited(own_namespace: LocalNamespace) -> None:
    with contextlib.ExitStack() as resources:
        first = resources.enter_context(client_of(own_namespace))
        sender = resources.enter_context(Sender(first, "orders"))
        sockets = [
            resources.enter_context(open_socket(own_namespace))
            for _ in range(MAX_UNAUTHENTICATED + 5)
        ]
        wait_until(lambda: is_closed(sockets[0]), "the end of the oldest connection")
        sender.send(HELLO)
        assert first.generation == 1


def frame(performative: object, kind: int = 0) -> bytes:
    return encode_frame(0, encode_composite(performative), kind)


AMQP = SASL_HEADER + frame(SaslInit(Symbol("ANONYMOUS")), SASL_FRAME) + AMQP_HEADER
OPENED = AMQP + frame(Open("peer")) + frame(Begin(None, 0, 100, 100))
STAGES = {
    "no byte": b"",
    "half a protocol header": b"AMQP",
    "a protocol header": SASL_HEADER,
    "SASL": AMQP,
    "an open": OPENED,
    "a link for tokens": OPENED
    + frame(
        Attach("to", 0, False, source=Source("x"), target=Target("$cbs"), initial_delivery_count=0)
    ),
    "half a request line": b"GE",
    "half the head of a request": HALF_REQUEST,
    "half the body of a request": b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345",
    "a request without a token": HALF_REQUEST + b"\r\n",
    "half of TLS": b"\x16\x03\x01",
}


def in_clear(namespace: LocalNamespace) -> socket.socket:
    return open_socket(namespace)


def over_tls(namespace: LocalNamespace) -> socket.socket:
    context = ssl.create_default_context(cafile=namespace.ca_file)
    return context.wrap_socket(open_socket(namespace), server_hostname="localhost")


@pytest.mark.usefixtures("short_times")
def test_connection_is_closed_at_every_stage(own_namespace: LocalNamespace) -> None:
    with contextlib.ExitStack() as resources:
        sockets = {}
        for connect, (name, data) in product((in_clear, over_tls), STAGES.items()):
            sockets[connect, name] = resources.enter_context(connect(own_namespace))
            sockets[connect, name].sendall(data)
        received = {stage: read_until_closed(sock) for stage, sock in sockets.items()}
    for connect in (in_clear, over_tls):
        assert received[connect, "half the head of a request"].startswith(b"HTTP/1.1 408")
        assert received[connect, "half the body of a request"].startswith(b"HTTP/1.1 408")
        assert received[connect, "a request without a token"].startswith(b"HTTP/1.1 401")
        assert b"no valid token within" in received[connect, "an open"]
        assert b"no valid token within" in received[connect, "a link for tokens"]


@pytest.mark.usefixtures("short_times")
def test_connection_with_a_token_is_not_closed(own_namespace: LocalNamespace) -> None:
    with client_of(own_namespace) as client, Sender(client, "orders") as sender:
        with open_socket(own_namespace) as other:
            other.sendall(AMQP)
            read_until_closed(other)  # it was opened later
        sender.send(HELLO)
        assert client.generation == 1


def authorization(namespace: LocalNamespace) -> str:
    parsed = ConnectionString.parse(namespace.connection_string)
    assert parsed.key_name is not None
    assert parsed.key is not None
    return sign_token("sb://localhost", parsed.key_name, parsed.key, int(time.time()) + 600)


@pytest.mark.usefixtures("short_times")
@pytest.mark.parametrize("second", [b"", b"GE"])
def test_http_connection_with_a_token_is_closed_if_no_request_follows(
    own_namespace: LocalNamespace, second: bytes
) -> None:
    token = f"Authorization: {authorization(own_namespace)}\r\n\r\n".encode()
    with open_socket(own_namespace) as sock:
        sock.sendall(HALF_REQUEST + token + second)
        received = read_until_closed(sock)
    assert received.startswith(b"HTTP/1.1 200")
    assert (b"HTTP/1.1 408" in received) is bool(second)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("authorized", [False, True])
def test_body_that_is_too_large_gets_an_answer(
    own_namespace: LocalNamespace, secure: bool, authorized: bool
) -> None:
    connection: http.client.HTTPConnection
    if secure:
        context = ssl.create_default_context(cafile=own_namespace.ca_file)
        connection = http.client.HTTPSConnection(
            "localhost", own_namespace.port, timeout=DEADLINE_S, context=context
        )
    else:
        connection = http.client.HTTPConnection("localhost", own_namespace.port, timeout=DEADLINE_S)
    headers = {"Authorization": authorization(own_namespace)} if authorized else {}
    with contextlib.closing(connection):
        connection.request("PUT", "/orders", body=bytes(50 * MAX_BODY), headers=headers)
        response = connection.getresponse()
        assert response.status == 413
        assert b"limit" in response.read()
    round_trip(own_namespace)


@pytest.mark.usefixtures("short_times")
def test_client_that_never_ends_a_refused_request_is_disconnected(
    own_namespace: LocalNamespace,
) -> None:
    with open_socket(own_namespace) as sock:
        sock.sendall(b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 413")

        def is_disconnected() -> bool:
            try:
                sock.sendall(b"x")
            except OSError:
                return True
            return False

        wait_until(is_disconnected, "the end of the connection")
