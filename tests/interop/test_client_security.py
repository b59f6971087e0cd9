"""SASL and TLS between our server and peers as clients."""

from collections.abc import Callable

import pytest

from examples.engine.memory_server import offer
from pairbus.amqp.performatives import Accepted
from pairbus.amqp.sections import DATA
from pairbus.errors import NotAuthorized
from tests.interop.fixture_types import Connect, StartServer
from tests.interop.limitations import needs
from tests.interop.messages import PeerMessage, text
from tests.interop.peers import PeerClient
from tests.interop.tls import TlsFiles


def connection_error(connect: Callable[[], PeerClient]) -> str:
    """Return the error of a connection that must fail."""
    peer = connect()
    if not peer.name.startswith("sdk"):
        error = peer.next_error().error
        return f"{error.condition} {error.description}"
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the SDK raises various errors
        peer.sender("q")
    return f"{caught.value} {caught.value.__cause__}"


@needs("no SASL")
def test_connection_without_sasl(start_server: StartServer, connect: Connect) -> None:
    server = start_server(sasl=None)

    assert connect(server, sasl=False).sender("q").send(text("a")) == Accepted()

    assert server.authenticated == []


def test_sasl_anonymous(start_server: StartServer, connect: Connect) -> None:
    server = start_server(sasl=offer("ANONYMOUS"))

    assert connect(server).sender("q").send(text("a")) == Accepted()

    assert {event.mechanism for event in server.authenticated} == {"ANONYMOUS"}


def check_sasl_plain(start_server: StartServer, connect: Connect, password: str) -> None:
    server = start_server(sasl=offer("PLAIN", "ANONYMOUS", users={"ann": password}))

    peer = connect(server, user="ann", password=password)
    assert peer.sender("q").send(text("a")) == Accepted()

    events = [(event.mechanism, event.identity) for event in server.authenticated]
    assert events == [("PLAIN", "ann")]


@needs("SASL PLAIN")
def test_sasl_plain(start_server: StartServer, connect: Connect) -> None:
    check_sasl_plain(start_server, connect, "secret")


@needs("UTF-8 passwords")
def test_sasl_plain_with_a_password_in_utf8(start_server: StartServer, connect: Connect) -> None:
    check_sasl_plain(start_server, connect, "s€cret")


@needs("SASL PLAIN")
@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("bob", "secret")])
def test_wrong_user_or_password_is_rejected(
    start_server: StartServer, connect: Connect, user: str, password: str
) -> None:
    server = start_server(sasl=offer("PLAIN", users={"ann": "secret"}))

    error = connection_error(lambda: connect(server, user=user, password=password))

    assert "amqp:unauthorized-access" in error
    [violation] = server.wait_for(lambda: server.violations)
    assert isinstance(violation, NotAuthorized)
    server.violations.clear()
    assert server.authenticated == server.opens == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "MSSBCBS"])
def test_peer_does_not_connect_without_a_common_mechanism(
    start_server: StartServer, connect: Connect, mechanism: str
) -> None:
    server = start_server(sasl=offer(mechanism, users={"ann": "secret"}))

    error = connection_error(lambda: connect(server))

    assert any(
        words in error
        for words in ("amqp:unauthorized-access", "No suitable mechanism", "Unsupported SASL")
    ), error
    assert server.authenticated == server.opens == []


def test_messages_over_tls(
    start_server: StartServer, connect: Connect, tls_files: TlsFiles
) -> None:
    server = start_server(tls=tls_files.server_context())
    peer = connect(server, tls=tls_files)
    bodies = [(DATA, [body]) for body in (b"small", b"x" * 1_000_000, b"end")]
    sender = peer.sender("q")

    for body in bodies:
        assert sender.send(PeerMessage(body=body)) == Accepted()

    receiver = peer.receiver("q")
    messages = receiver.receive(len(bodies))
    assert [message.body for message in messages] == bodies


def test_certificate_of_an_unknown_authority_is_not_trusted(
    start_server: StartServer, connect: Connect, tls_files: TlsFiles
) -> None:
    server = start_server(tls=tls_files.server_context())

    error = connection_error(lambda: connect(server, tls=tls_files, trusted=False))

    assert "certificate" in error
    assert server.opens == []


@needs("client certificate")
def test_sasl_external_with_a_client_certificate(
    start_server: StartServer, connect: Connect, tls_files: TlsFiles
) -> None:
    server = start_server(
        tls=tls_files.server_context(request_certificate=True),
        sasl=offer("EXTERNAL", "ANONYMOUS"),
    )

    peer = connect(server, tls=tls_files, certificate=True)
    assert peer.sender("q").send(text("a")) == Accepted()

    assert [event.mechanism for event in server.authenticated] == ["EXTERNAL"]
