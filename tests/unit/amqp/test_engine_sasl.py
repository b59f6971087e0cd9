"""SASL handshakes of client and server."""

from typing import Any

import pytest

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import Authenticated, Closed, Opened
from pairbus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER
from pairbus.amqp.performatives import (
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from pairbus.amqp.sasl import SaslClient, SaslServer, parse_plain_response
from pairbus.amqp.settings import ConnectionSettings
from pairbus.amqp.types import Symbol
from pairbus.errors import ConnectionLost, NotAuthorized
from tests.unit.amqp.engines import EnginePair, PairEvents, WrittenFrame, framed, frames_of, only


def check_plain(response: bytes) -> str | None:
    return "alice" if parse_plain_response(response) == ("alice", "secret") else None


ALL = SaslServer(
    {
        "MSSBCBS": lambda response: "cbs",
        "ANONYMOUS": lambda response: "anonymous",
        "PLAIN": check_plain,
        "EXTERNAL": lambda response: "certificate",
    }
)


def connect(client: SaslClient, server: SaslServer) -> tuple[EnginePair, PairEvents]:
    pair = EnginePair(client_sasl=client, server_sasl=server)
    return pair, pair.run()


@pytest.mark.parametrize(
    ("client", "mechanism", "identity"),
    [
        (SaslClient.anonymous(), "MSSBCBS", "cbs"),
        (SaslClient({"ANONYMOUS": b"trace"}), "ANONYMOUS", "anonymous"),
        (SaslClient.plain("alice", "secret"), "PLAIN", "alice"),
        (SaslClient.external(), "EXTERNAL", "certificate"),
    ],
)
def test_client_is_authenticated_with_each_mechanism(
    client: SaslClient, mechanism: str, identity: str
) -> None:
    _, reported = connect(client, ALL)

    assert only(Authenticated, reported.server) == Authenticated(mechanism, identity)
    assert only(Authenticated, reported.client) == Authenticated(mechanism, None)
    assert only(Opened, reported.server).open.container_id == "client"
    assert only(Opened, reported.client).open.container_id == "server"


def test_client_selects_its_preferred_mechanism() -> None:
    _, reported = connect(
        SaslClient.anonymous(), SaslServer({"ANONYMOUS": lambda response: response})
    )

    assert only(Authenticated, reported.server) == Authenticated("ANONYMOUS", b"anonymous")


def test_anonymous_server_accepts_every_client() -> None:
    _, reported = connect(SaslClient.anonymous(), SaslServer.anonymous())

    assert only(Authenticated, reported.server).identity == "anonymous"


def test_wrong_password_is_reported_to_both_sides() -> None:
    pair, reported = connect(SaslClient.plain("alice", "wrong"), ALL)

    at_client, at_server = only(Closed, reported.client), only(Closed, reported.server)
    assert isinstance(at_client.error, NotAuthorized)
    assert isinstance(at_server.error, NotAuthorized)
    assert at_client.by_peer
    assert not at_server.by_peer
    assert pair.client.closed
    assert pair.server.closed
    assert reported.client == [at_client]
    assert "wrong" not in str(at_client.error) + str(at_server.error)


def test_client_without_a_common_mechanism_closes() -> None:
    pair, reported = connect(SaslClient.external(), SaslServer.anonymous())

    closed = only(Closed, reported.client)
    assert isinstance(closed.error, NotAuthorized)
    assert "MSSBCBS, ANONYMOUS" in str(closed.error)
    assert "EXTERNAL" in str(closed.error)
    assert pair.client.closed


def test_server_without_mechanisms_accepts_no_client() -> None:
    _, reported = connect(SaslClient.anonymous(), SaslServer({}))

    assert "(none)" in str(only(Closed, reported.client).error)


def test_repr_does_not_contain_secrets() -> None:
    assert "secret" not in repr(SaslClient.plain("alice", "secret"))


class ScriptedSaslPeer:
    """A scripted peer of an engine with SASL."""

    def __init__(self, sasl: SaslClient | SaslServer) -> None:
        self.engine = Connection(
            ConnectionSettings(container_id="engine", hostname="h"), sasl=sasl, now=0.0
        )

    def feed(self, data: bytes) -> list[Any]:
        return self.engine.receive(data, 0.0)

    def deliver(self, performative: Any) -> list[Any]:
        return self.feed(framed(performative, kind=SASL_FRAME))

    def performatives(self) -> list[Any]:
        frames = frames_of(self.engine.data_to_send())
        return [item.performative if isinstance(item, WrittenFrame) else item for item in frames]


def test_bytes_of_a_handshake_are_those_of_the_specification() -> None:
    server = ScriptedSaslPeer(SaslServer({"PLAIN": check_plain}))
    mechanisms = bytes.fromhex("005340 c0 0b 01 e0 08 01 a3 05") + b"PLAIN"
    init = bytes.fromhex("005341 c0 17 02 a305") + b"PLAIN" + b"\xa0\x0d" + b"\0alice\0secret"
    outcome = bytes.fromhex("005344 c0 03 01 5000")

    server.feed(SASL_HEADER)
    offered = server.engine.data_to_send()
    events = server.feed(bytes((0, 0, 0, len(init) + 8, 2, 1, 0, 0)) + init)

    assert offered == SASL_HEADER + bytes((0, 0, 0, len(mechanisms) + 8, 2, 1, 0, 0)) + mechanisms
    assert events == [Authenticated("PLAIN", "alice")]
    assert server.engine.data_to_send() == bytes((0, 0, 0, 15 + 1, 2, 1, 0, 0)) + outcome


def test_plain_client_without_initial_response_is_challenged() -> None:
    server = ScriptedSaslPeer(ALL)
    server.feed(SASL_HEADER)
    server.performatives()

    assert server.deliver(SaslInit("PLAIN")) == []
    assert server.performatives() == [SaslChallenge(b"")]
    events = server.deliver(SaslResponse(b"\0alice\0secret"))

    assert events == [Authenticated("PLAIN", "alice")]
    assert server.performatives() == [SaslOutcome(0)]


def test_external_client_without_initial_response_is_challenged() -> None:
    server = ScriptedSaslPeer(ALL)
    server.feed(SASL_HEADER + framed(SaslInit("EXTERNAL"), kind=SASL_FRAME))

    assert server.performatives()[-1] == SaslChallenge(b"")
    assert server.deliver(SaslResponse(b"")) == [Authenticated("EXTERNAL", "certificate")]


def test_anonymous_client_without_initial_response_is_accepted() -> None:
    server = ScriptedSaslPeer(ALL)
    server.feed(SASL_HEADER)

    assert server.deliver(SaslInit("ANONYMOUS")) == [Authenticated("ANONYMOUS", "anonymous")]


def test_client_answers_a_challenge_with_its_response() -> None:
    client = ScriptedSaslPeer(SaslClient.plain("alice", "secret"))
    client.feed(SASL_HEADER + framed(SaslMechanisms((Symbol("PLAIN"),)), kind=SASL_FRAME))
    assert client.performatives() == [SASL_HEADER, SaslInit("PLAIN", b"\0alice\0secret", "h")]

    assert client.deliver(SaslChallenge(b"")) == []
    assert client.performatives() == [SaslResponse(b"\0alice\0secret")]
    assert client.deliver(SaslOutcome(0)) == [Authenticated("PLAIN", None)]

    header, opened = client.performatives()
    assert header == AMQP_HEADER
    assert isinstance(opened, Open)


def test_mechanisms_may_be_a_single_symbol() -> None:
    client = ScriptedSaslPeer(SaslClient.external())
    client.performatives()
    body = bytes.fromhex("005340 c0 0b 01 a308") + b"EXTERNAL"

    client.feed(SASL_HEADER + (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body)

    assert client.performatives() == [SaslInit("EXTERNAL", b"", "h")]


def test_unknown_mechanism_is_rejected() -> None:
    server = ScriptedSaslPeer(ALL)
    server.feed(SASL_HEADER)
    server.performatives()

    closed = only(Closed, server.deliver(SaslInit("GSSAPI", b"ticket")))

    assert isinstance(closed.error, NotAuthorized)
    assert server.performatives() == [SaslOutcome(1)]


@pytest.mark.parametrize(
    ("code", "kind"),
    [(1, NotAuthorized), (2, ConnectionLost), (3, ConnectionLost), (4, ConnectionLost)],
)
def test_client_distinguishes_rejection_from_temporary_failure(code: int, kind: type) -> None:
    client = ScriptedSaslPeer(SaslClient.anonymous())
    client.feed(SASL_HEADER)
    client.deliver(SaslMechanisms((Symbol("ANONYMOUS"),)))

    closed = only(Closed, client.deliver(SaslOutcome(code)))

    assert type(closed.error) is kind
    assert closed.by_peer


def test_client_that_skips_sasl_gets_the_sasl_header() -> None:
    server = ScriptedSaslPeer(ALL)

    closed = only(Closed, server.feed(AMQP_HEADER + framed(Open("peer"))))

    assert "AMQP [3, 1, 0, 0] is required" in str(closed.error)
    assert server.performatives() == [SASL_HEADER]


def test_client_that_skips_the_handshake_is_disconnected() -> None:
    server = ScriptedSaslPeer(ALL)
    server.feed(SASL_HEADER)

    closed = only(Closed, server.feed(framed(Open("peer"))))

    assert "during the SASL handshake" in str(closed.error)
    assert not any(isinstance(performative, Open) for performative in server.performatives())


def test_client_that_sends_the_amqp_header_too_early_is_disconnected() -> None:
    server = ScriptedSaslPeer(ALL)

    only(Closed, server.feed(SASL_HEADER + AMQP_HEADER))

    assert server.engine.closed


@pytest.mark.parametrize(
    "unexpected",
    [
        [SaslResponse(b"")],
        [SaslMechanisms((Symbol("PLAIN"),))],
        [SaslOutcome(0)],
        [SaslInit("PLAIN"), SaslInit("PLAIN")],
        [SaslInit("PLAIN"), SaslChallenge(b"")],
        [Open("peer")],
    ],
    ids=repr,
)
def test_unexpected_frame_ends_the_handshake_of_a_server(unexpected: list[Any]) -> None:
    server = ScriptedSaslPeer(ALL)
    server.feed(SASL_HEADER)

    events = [event for frame in unexpected for event in server.deliver(frame)]

    assert only(Closed, events).by_peer is False
    assert server.engine.closed


@pytest.mark.parametrize(
    "unexpected",
    [
        [SaslOutcome(0)],
        [SaslChallenge(b"")],
        [SaslInit("PLAIN")],
        [SaslMechanisms((Symbol("PLAIN"),)), SaslMechanisms((Symbol("PLAIN"),))],
        [SaslMechanisms((Symbol("PLAIN"),)), SaslChallenge(b""), SaslChallenge(b"")],
    ],
    ids=repr,
)
def test_unexpected_frame_ends_the_handshake_of_a_client(unexpected: list[Any]) -> None:
    client = ScriptedSaslPeer(SaslClient.plain("a", "b"))
    client.feed(SASL_HEADER)

    events = [event for frame in unexpected for event in client.deliver(frame)]

    assert only(Closed, events).by_peer is False
    assert client.engine.closed


def test_amqp_headers_are_exchanged_after_sasl() -> None:
    server = ScriptedSaslPeer(ALL)
    server.feed(SASL_HEADER)
    server.deliver(SaslInit("ANONYMOUS", b""))
    server.performatives()

    events = server.feed(AMQP_HEADER + framed(Open("peer")))

    assert only(Opened, events)
    header, opened = server.performatives()
    assert header == AMQP_HEADER
    assert isinstance(opened, Open)


def test_connection_closed_during_sasl_sends_nothing_more() -> None:
    client = ScriptedSaslPeer(SaslClient.anonymous())
    client.performatives()

    client.engine.close()

    assert client.engine.closed
    assert client.performatives() == []


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (b"\0name\0password", ("name", "password")),
        (b"other\0name\0password", ("name", "password")),
        (b"\0\xc3\xa9\0\xe2\x82\xac", ("é", "€")),
        (b"\0\0", ("", "")),
        (b"", None),
        (b"name", None),
        (b"\0name", None),
        (b"\0a\0b\0c", None),
        (b"\0\xff\0b", None),
    ],
)
def test_plain_response_is_parsed_according_to_rfc_4616(response: bytes, expected: Any) -> None:
    assert parse_plain_response(response) == expected
