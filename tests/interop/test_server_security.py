"""SASL and TLS between our client and peers as servers."""

from pathlib import Path
from typing import Any

import pytest

from pairbus.amqp.client import Receiver, Sender
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.sections import DATA
from pairbus.errors import ConnectionLost, NotAuthorized
from tests.interop.engine_client import EngineClient
from tests.interop.fixture_types import OpenClient, StartPeer
from tests.interop.limitations import needs
from tests.interop.messages import PeerMessage, text
from tests.interop.peers import PeerServer, certificate_with_key, wait_until
from tests.interop.tls import TlsFiles


@needs("server: works without SASL")
def test_connection_without_sasl(peer: PeerServer) -> None:
    with EngineClient(peer.port, sasl=None) as engine:
        engine.begin()

        wait_until(lambda: peer.users == [None])


def test_sasl_anonymous(peer: PeerServer, open_client: OpenClient) -> None:
    open_client(peer).connect()

    wait_until(lambda: peer.users == ["anonymous"])


@needs("server: SASL PLAIN")
def test_sasl_plain(start_peer: StartPeer, open_client: OpenClient) -> None:
    peer = start_peer(users={"ann": "žluťoučký"})

    client = open_client(peer, sasl=SaslClient.plain("ann", "žluťoučký"))
    Sender(client, "q").send(text("a").encode())

    assert peer.users == ["ann"]


@needs("server: SASL PLAIN")
def test_wrong_password_is_rejected(start_peer: StartPeer, open_client: OpenClient) -> None:
    peer = start_peer(users={"ann": "secret"})

    with pytest.raises(NotAuthorized, match="SASL PLAIN failed: the user name, password or"):
        open_client(peer, sasl=SaslClient.plain("ann", "wrong")).connect()

    assert peer.users == []


@pytest.mark.parametrize(
    "sasl", [SaslClient.plain("ann", "secret"), SaslClient.external()], ids=["PLAIN", "EXTERNAL"]
)
def test_client_does_not_connect_without_a_common_mechanism(
    peer: PeerServer, open_client: OpenClient, sasl: SaslClient
) -> None:
    with pytest.raises(NotAuthorized, match="the server offers the SASL mechanisms ANONYMOUS"):
        open_client(peer, sasl=sasl).connect()

    assert peer.users == []


def test_messages_over_tls(
    start_peer: StartPeer, open_client: OpenClient, tls_files: TlsFiles
) -> None:
    peer = start_peer(tls=tls_files)
    client = open_client(peer, tls=True, ca_file=str(tls_files.ca))
    bodies = [(DATA, [body]) for body in (b"small", b"x" * 1_000_000, b"end")]
    sender, receiver = Sender(client, "q"), Receiver(client, "q")

    for body in bodies:
        sender.send(PeerMessage(body=body).encode())
        [delivery] = receiver.receive()
        assert PeerMessage.parse(delivery.payload).body == body
        receiver.settle([delivery])

    assert [message.body for message in peer.receive(3)] == bodies


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"ca_file": None}, id="unknown authority"),
        pytest.param({"host": "elsewhere.example"}, id="another host name"),
    ],
)
def test_certificate_that_is_not_trusted_is_refused(
    start_peer: StartPeer, open_client: OpenClient, tls_files: TlsFiles, options: dict[str, Any]
) -> None:
    peer = start_peer(tls=tls_files)

    with pytest.raises(ConnectionLost, match="certificate verify failed"):
        open_client(peer, **({"tls": True, "ca_file": str(tls_files.ca)} | options)).connect()

    assert peer.users == []


def test_sasl_external_with_a_client_certificate(
    start_peer: StartPeer, open_client: OpenClient, tls_files: TlsFiles, tmp_path: Path
) -> None:
    peer = start_peer(tls=tls_files, request_certificate=True)

    client = open_client(
        peer,
        tls=True,
        ca_file=str(tls_files.ca),
        certificate_file=certificate_with_key(tls_files, tmp_path),
        sasl=SaslClient.external(),
    )
    Sender(client, "q").send(text("a").encode())

    [user] = peer.users
    assert user in ("client", "CN=client")
