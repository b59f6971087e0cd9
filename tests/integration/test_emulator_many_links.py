"""Clients with many sessions and links on one connection."""

import pytest

from pairbus.amqp.events import Attached, Begun, Closed, Ended
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.types import Symbol
from pairbus.emulator.connections import amqp_connection
from pairbus.emulator.connections.amqp_connection import (
    CHANNEL_MAX,
    MAX_ATTACH_SIZE,
    MAX_ENDPOINTS_WITHOUT_TOKEN,
    MAX_LINKS,
)
from pairbus.emulator.namespace import LocalNamespace
from pairbus.servicebus.connection_strings import ConnectionString
from tests.integration.emulator_clients import round_trip
from tests.integration.sdk_flavours import SDK_SOCKETS
from tests.interop.engine_client import EngineClient

pytestmark = [*SDK_SOCKETS, pytest.mark.rule("N6")]


def engine_client(namespace: LocalNamespace) -> EngineClient:
    """Return a client with all rights, without tokens."""
    parsed = ConnectionString.parse(namespace.connection_string)
    assert parsed.key_name is not None
    assert parsed.key is not None
    sasl = SaslClient.plain(parsed.key_name, parsed.key)
    return EngineClient(namespace.port, sasl=sasl, channel_max=65535)


def test_client_can_use_a_session_for_each_of_many_links(queue_namespace: LocalNamespace) -> None:
    """The JavaScript SDK does so."""
    with engine_client(queue_namespace) as client:
        remote = client.connection.remote
        assert remote is not None
        assert remote.channel_max == CHANNEL_MAX == 4999
        sessions = [client.connection.begin() for _ in range(500)]
        client.until(lambda: all(session.begun for session in sessions))
        links = [
            session.attach_sender("to q", target=Target("q"))
            if number % 2
            else session.attach_receiver("from q", source=Source("q"))
            for number, session in enumerate(sessions)
        ]
        client.until(lambda: all(link.alive for link in links))


def test_all_sessions_of_a_connection_can_be_used(queue_namespace: LocalNamespace) -> None:
    with engine_client(queue_namespace) as client:
        sessions = [client.connection.begin() for _ in range(CHANNEL_MAX + 1)]
        client.until(lambda: all(session.begun for session in sessions))
        link = sessions[-1].attach_sender("to q", target=Target("q"))
        client.until(lambda: link.alive)


def test_links_of_a_connection_are_limited(
    queue_namespace: LocalNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_LINKS == 5000
    monkeypatch.setattr(amqp_connection, "MAX_LINKS", 5)
    with engine_client(queue_namespace) as client:
        session, other = client.begin(), client.begin()
        for number in range(5):
            session.attach_sender(f"{number}", target=Target("q"))
            client.next(Attached)
        other.attach_sender("one more", target=Target("q"))
        ended = client.next(Ended)
        assert ended.session is other
        assert ended.error is not None
        assert ended.error.condition == "amqp:resource-limit-exceeded"
    round_trip(queue_namespace, "q")


def test_large_attach_is_refused(queue_namespace: LocalNamespace) -> None:
    with engine_client(queue_namespace) as client:
        session = client.begin()
        text = "x" * MAX_ATTACH_SIZE
        session.attach_sender("to q", target=Target("q"), properties={Symbol("x"): text})
        error = client.next(Ended).error
        assert error is not None
        assert error.condition == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize("kind", ["sessions", "links"])
def test_client_without_a_token_has_few_sessions_and_links(
    queue_namespace: LocalNamespace, kind: str
) -> None:
    with EngineClient(queue_namespace.port) as client:
        session = client.begin()
        for number in range(MAX_ENDPOINTS_WITHOUT_TOKEN - 1):
            if kind == "sessions":
                client.connection.begin()
                client.next(Begun)
            else:
                session.attach_sender(f"{number}", target=Target("$cbs"))
                client.next(Attached)
        if kind == "sessions":
            client.connection.begin()
        else:
            session.attach_sender("one more", target=Target("$cbs"))
        error = client.next(Closed).error
        assert error is not None
        assert error.condition == "amqp:resource-limit-exceeded"
    round_trip(queue_namespace, "q")
