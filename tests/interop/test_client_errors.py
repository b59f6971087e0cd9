"""Errors between our server and peers as clients, for links, messages, sessions and connections."""

from functools import partial

import pytest

from examples.engine.memory_server import MemoryServer
from pairbus.amqp.performatives import Accepted, Error, Rejected
from pairbus.amqp.types import Symbol, UInt
from pairbus.errors import (
    AmqpError,
    Busy,
    EntityDisabled,
    EntityNotFound,
    MessageTooLarge,
    NotAuthorized,
    QuotaExceeded,
)
from tests.interop.fixture_types import Connect, StartServer
from tests.interop.limitations import needs
from tests.interop.messages import text
from tests.interop.peers import PeerError

INFO = {Symbol("tracking"): UInt(42)}
ERRORS = [
    EntityNotFound("no such queue", info=INFO),
    NotAuthorized("the token does not allow this", info=INFO),
    EntityDisabled("the queue is disabled", info=INFO),
    QuotaExceeded("the queue is full", info=INFO),
    Busy("the server is busy", info=INFO),
    MessageTooLarge("the message is too large", info=INFO),
    AmqpError("a bug", info=INFO),
]
ERROR = AmqpError("test error", condition="test:error", info={Symbol("detail"): "test"})
SENT_ERROR = Error(Symbol("test:error"), "test error", {Symbol("detail"): "test"})


def assert_reports(error: Error | None, expected: AmqpError) -> None:
    assert error is not None
    assert error.condition == expected.condition
    assert expected.description in (error.description or "")
    assert error.info == expected.info


def open_endpoints(server: MemoryServer) -> list[object]:
    return [
        link
        for connection in server.connections
        for session in connection.engine.sessions
        for link in session.links
    ]


@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_refused_links_report_their_errors(
    server: MemoryServer, connect: Connect, role: str
) -> None:
    errors = {f"refused-{number}": error for number, error in enumerate(ERRORS)}
    server.call(lambda: server.attach_errors.update(errors))
    peer = connect(server)

    attach = peer.sender if role == "sender" else peer.receiver
    for address, error in errors.items():
        with pytest.raises(PeerError) as caught:
            attach(address)

        assert caught.value.endpoint == "link"
        assert_reports(caught.value.error, error)
    assert peer.sender("q").send(text("the peer can go on")) == Accepted()


def test_rejected_messages_report_their_errors(server: MemoryServer, connect: Connect) -> None:
    sender = connect(server).sender("q")
    for number, error in enumerate(ERRORS, start=1):
        server.call(partial(server.rejections.update, q=error))

        state = sender.send(text("a"))

        assert isinstance(state, Rejected)
        assert_reports(state.error, error)
        server.call(server.rejections.clear)
        assert sender.send(text("the link is still attached")) == Accepted()
        assert len(server.queues["q"]) == number


def test_message_above_the_limit_of_the_link_ends_the_link(
    start_server: StartServer, connect: Connect
) -> None:
    server = start_server(max_message_size=2_000)
    peer = connect(server)
    sender = peer.sender("q")

    # No peer checks the limit. The SDK does not report the error of the link.
    if peer.name.startswith("sdk"):
        assert sender.send(text("x" * 3_000)) != Accepted()
    else:
        sender.post(text("x" * 3_000))
        error = peer.next_error()
        assert error.endpoint == "link"
        assert error.error.condition == "amqp:link:message-size-exceeded"

    conditions = [violation.condition for violation in server.violations]
    assert conditions == ["amqp:link:message-size-exceeded"]
    server.violations.clear()
    assert server.received == []
    assert peer.sender("q").send(text("x" * 1_000)) == Accepted()


@needs("reports errors of endpoints")
def test_detached_link_reports_its_error(server: MemoryServer, connect: Connect) -> None:
    peer = connect(server)
    peer.sender("q")
    [endpoint] = server.endpoints

    server.call(lambda: endpoint.link.detach(ERROR))

    error = peer.next_error()
    assert (error.endpoint, error.error) == ("link", SENT_ERROR)
    peer.until(lambda: not open_endpoints(server))


@needs("reports errors of endpoints")
def test_ended_session_and_closed_connection_report_their_errors(
    server: MemoryServer, connect: Connect
) -> None:
    peer = connect(server)
    peer.sender("q")
    [endpoint] = server.endpoints

    server.call(lambda: endpoint.link.session.end(ERROR))
    session_error = peer.next_error()
    server.call(lambda: endpoint.connection.engine.close(ERROR))
    connection_error = peer.next_error()

    assert (session_error.endpoint, session_error.error) == ("session", SENT_ERROR)
    assert (connection_error.endpoint, connection_error.error) == ("connection", SENT_ERROR)


@needs("ends with an error")
def test_errors_with_which_a_peer_ends_endpoints_are_reported(
    server: MemoryServer, connect: Connect
) -> None:
    errors = [
        Error(Symbol(f"test:{name}"), f"a {name}", {Symbol("n"): UInt(1)})
        for name in ("link", "session", "connection")
    ]
    peer = connect(server)
    sender = peer.sender("q", session=1)
    peer.receiver("q", session=1)

    sender.close(errors[0])
    peer.end_session(1, errors[1])
    peer.close_with_error(errors[2])

    peer.until(lambda: len(server.errors) == 3)
    reported = [Error(e.condition, e.description, dict(e.info)) for e in server.errors]
    assert reported == errors
    peer.until(lambda: not server.endpoints)
