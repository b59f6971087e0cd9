"""Errors of peers as servers, for links, sessions, connections and requests."""

from typing import Any

import pytest

from pairbus.amqp.client import Receiver, Sender
from pairbus.amqp.client.management import Management
from pairbus.amqp.performatives import Error
from pairbus.amqp.types import Int32, Symbol, UInt
from pairbus.errors import (
    AmqpError,
    Busy,
    ConnectionLost,
    EntityDisabled,
    EntityNotFound,
    LinkLost,
    LockLost,
    NotAuthorized,
    OperationTimeout,
    Refused,
    Unavailable,
)
from pairbus.servicebus.tokens import SharedAccessKey
from tests.interop.fixture_types import OpenClient
from tests.interop.limitations import needs
from tests.interop.messages import text
from tests.interop.peers import PeerServer
from tests.interop.transfers import payload, received_texts, texts_of, wait_for_loss

CONDITIONS: dict[str, type[AmqpError]] = {
    "amqp:not-found": EntityNotFound,
    "amqp:unauthorized-access": NotAuthorized,
    "amqp:not-allowed": Refused,
    "amqp:internal-error": Unavailable,
    "com.microsoft:entity-disabled": EntityDisabled,
    "com.microsoft:server-busy": Busy,
    "com.microsoft:session-cannot-be-locked": LockLost,
    "test:unknown": Unavailable,
}


@pytest.mark.parametrize("link", [Sender, Receiver])
def test_refused_links_raise_their_errors(
    peer: PeerServer, open_client: OpenClient, link: Any
) -> None:
    client = open_client(peer)
    for number, (condition, error_type) in enumerate(CONDITIONS.items()):
        address = f"none-{number}"
        peer.refuse(address, Error(condition, "not here", {Symbol("n"): UInt(1)}))

        with pytest.raises(AmqpError, match="not here") as caught:
            link(client, address).open()

        assert type(caught.value) is error_type
        assert (caught.value.condition, caught.value.info) == (condition, {"n": UInt(1)})
    Sender(client, "some").send(payload())
    assert client.generation == 1


def test_link_that_was_closed_is_attached_again(peer: PeerServer, open_client: OpenClient) -> None:
    client = open_client(peer)
    receiver = Receiver(client, "q")
    receiver.open()

    peer.close_link("q", Error("amqp:link:detach-forced", "idle too long"))
    error = wait_for_loss(receiver)

    assert isinstance(error, LinkLost)
    assert "idle too long" in str(error)
    receiver.open()
    peer.put("q", text("a"))
    assert texts_of(receiver.receive()) == ["a"]
    assert client.generation == 1


@needs("server: detaches without closing")
def test_link_that_was_detached_is_attached_again(
    peer: PeerServer, open_client: OpenClient
) -> None:
    client = open_client(peer)
    receiver = Receiver(client, "q")
    receiver.open()

    peer.detach_link("q")
    assert isinstance(wait_for_loss(receiver), LinkLost)

    receiver.open()
    peer.put("q", text("a"))
    assert texts_of(receiver.receive()) == ["a"]
    assert client.generation == 1


def test_links_of_an_ended_session_are_attached_to_a_new_one(
    peer: PeerServer, open_client: OpenClient
) -> None:
    client = open_client(peer)
    sender, receiver = Sender(client, "sent"), Receiver(client, "q")
    sender.send(payload("before"))
    receiver.open()

    peer.end_session("q", Error("amqp:internal-error", "a bug"))
    error = wait_for_loss(receiver)

    assert isinstance(error, Unavailable)
    assert "the session was ended: a bug" in str(error)
    sender.send(payload("after"))
    receiver.open()
    peer.put("q", text("a"))
    assert texts_of(receiver.receive()) == ["a"]
    assert received_texts(peer, 2) == ["before", "after"]
    assert client.generation == 1


@pytest.mark.parametrize("condition", ["amqp:connection:forced", "amqp:resource-limit-exceeded"])
def test_closed_connection_is_opened_again(
    peer: PeerServer, open_client: OpenClient, condition: str
) -> None:
    client = open_client(peer)
    receiver = Receiver(client, "q")
    receiver.open()

    peer.close_connections(Error(condition, "maintenance"))
    error = wait_for_loss(receiver)

    assert isinstance(error, ConnectionLost)
    assert "the connection was closed: maintenance" in str(error)
    Sender(client, "q").send(payload())
    assert client.generation == 2


@needs("server: refuses connections")
@pytest.mark.parametrize(
    ("condition", "error_type"),
    [("amqp:unauthorized-access", NotAuthorized), ("amqp:connection:forced", ConnectionLost)],
)
def test_refused_connection_raises_its_error(
    peer: PeerServer, open_client: OpenClient, condition: str, error_type: type[AmqpError]
) -> None:
    peer.refuse_connections(Error(condition, "go away"))
    client = open_client(peer)

    with pytest.raises(error_type, match="go away"):
        client.connect()

    peer.refuse_connections(None)
    client.connect()
    assert client.generation == 2


@needs("server: attaches without terminus")
def test_attach_without_a_terminus_times_out(peer: PeerServer, open_client: OpenClient) -> None:
    peer.rule("q", bare=True)
    client = open_client(peer)

    # An attach with a null target is the first half of a refusal: a detach must follow.
    with pytest.raises(OperationTimeout, match="the attach of a link to 'q'"):
        Sender(client, "q").open(timeout_s=0.3)

    Sender(client, "other").send(payload())


@needs("server: responds to requests")
def test_tokens_are_sent_and_requests_are_answered(
    peer: PeerServer, open_client: OpenClient
) -> None:
    peer.respond("$cbs", {"status-code": Int32(202)})
    peer.respond("q/$management", {"statusCode": Int32(200)}, {"session-state": b"state"})
    client = open_client(peer, tokens=SharedAccessKey("name", "key"))

    assert Management(client, "q").get_session_state("s") == b"state"

    put_token, request = peer.receive(2)
    audience = f"sb://localhost:{peer.port}/q"
    assert put_token.application_properties["operation"] == "put-token"
    assert put_token.application_properties["name"] == audience
    assert put_token.body[1][0].startswith("SharedAccessSignature ")
    assert request.body[1] == [{"session-id": "s"}]


@needs("server: responds to requests")
def test_rejected_tokens_and_requests_raise_their_errors(
    peer: PeerServer, open_client: OpenClient
) -> None:
    peer.respond("$cbs", {"status-code": Int32(401), "status-description": "wrong key"})
    with pytest.raises(NotAuthorized, match="wrong key"):
        Sender(open_client(peer, tokens=SharedAccessKey("name", "key")), "q").send(payload())

    not_found = {"statusCode": Int32(404), "errorCondition": Symbol("amqp:not-found")}
    peer.respond("q/$management", not_found)
    with pytest.raises(EntityNotFound):
        Management(open_client(peer), "q").get_session_state("s")
