"""Requests of peers to `$cbs` and `$management`, and features that only one peer has."""

import datetime
import socket
import time
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
from proton import Message as ProtonMessage
from proton.utils import BlockingConnection, SyncRequestResponse

from examples.engine.memory_server import MemoryServer, Request, Response
from pairbus.amqp.batch import split_batch
from pairbus.amqp.connection import Connection
from pairbus.amqp.performatives import Accepted, Target
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.sections import DATA, Message
from pairbus.amqp.settings import ConnectionSettings
from pairbus.amqp.types import Array, Symbol, Timestamp, UInt
from pairbus.errors import (
    AmqpError,
    Busy,
    ConnectionLost,
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
from tests.unit.amqp.same import same

NOON = datetime.datetime(2024, 2, 29, 12, 0, 0, 250_000, tzinfo=datetime.UTC)


def answer(server: MemoryServer, *responses: Response, node: str = "$management") -> list[Request]:
    """Answer requests to a node with these responses. Return the list of the requests."""
    requests: list[Request] = []

    def handle(request: Request) -> Response:
        requests.append(request)
        return responses[min(len(requests), len(responses)) - 1]

    server.call(lambda: server.handlers.update({node: handle}))
    return requests


def test_blocking_client_of_proton(server: MemoryServer) -> None:
    connection = BlockingConnection(f"127.0.0.1:{server.port}", timeout=20)
    sender = connection.create_sender("q")
    for number in range(20):
        sender.send(ProtonMessage(body=number))
    receiver = connection.create_receiver("q", credit=7)
    for number in range(20):
        assert receiver.receive(timeout=20).body == number
        receiver.accept()
    connection.close()
    assert [settlement.state for settlement in server.settlements] == [Accepted()] * 20


def test_responses_are_sent_to_a_dynamic_address_of_proton(server: MemoryServer) -> None:
    def echo(request: Request) -> Response:
        return Response(200, "OK", {"operation": request.operation, "body": request.body})

    server.handlers["$management"] = echo
    connection = BlockingConnection(f"127.0.0.1:{server.port}", timeout=20)
    requests = SyncRequestResponse(connection, "$management")
    assert requests.reply_to.startswith("dynamic-")
    response = requests.call(ProtonMessage(body=[1], properties={"operation": "peek"}))
    assert response.body == {"operation": "peek", "body": [1]}
    assert response.properties["statusCode"] == 200
    connection.close()


def test_silent_client_is_disconnected_with_the_reason(start_server: StartServer) -> None:
    server = start_server(idle_timeout_s=2.0)
    engine = Connection(
        ConnectionSettings(container_id="silent"), sasl=SaslClient.anonymous(), now=time.monotonic()
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        while not engine.closed:
            sock.sendall(engine.data_to_send())
            data = sock.recv(65536)
            assert data
            events = engine.receive(data, time.monotonic())
        assert sock.recv(65536) == b""

    assert len(server.opens) == 1
    assert "sent nothing" in events[-1].error.description
    assert len(server.violations) == 1
    server.violations.clear()


def test_client_that_closes_its_socket_instead_of_answering_a_close_violates_nothing(
    server: MemoryServer,
) -> None:
    engine = Connection(
        ConnectionSettings(container_id="brief"), sasl=SaslClient.anonymous(), now=0
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        while engine.remote is None:
            sock.sendall(engine.data_to_send(0))
            engine.receive(sock.recv(65536), 0)
        session = engine.begin()
        session.attach_sender("s", target=Target(address="q"))
        sock.sendall(engine.data_to_send(0))
        [endpoint] = server.wait_for(lambda: server.endpoints)
        server.call(lambda: endpoint.link.session.connection.close(Busy("a test")))

    [error] = server.wait_for(lambda: server.errors)
    assert isinstance(error, ConnectionLost)
    assert server.violations == []


@needs("Service Bus")
def test_token_is_for_the_entity(server: MemoryServer, connect: Connect) -> None:
    connect(server).sender("q").send(text("a"))

    [request] = server.requests
    assert request.application_properties["name"] == f"sb://127.0.0.1:{server.port}/q"
    assert request.application_properties["type"] == "jwt"
    assert request.body.startswith("SharedAccessSignature sr=")


@needs("Service Bus")
@pytest.mark.parametrize("status", [401, 404, 500])
def test_rejected_token_raises(server: MemoryServer, connect: Connect, status: int) -> None:
    requests = answer(server, Response(status, "no such token"), node="$cbs")

    with pytest.raises(PeerError) as caught:
        connect(server).sender("q")

    assert isinstance(caught.value.__cause__, ServiceBusAuthenticationError)
    assert [request.operation for request in requests] == ["put-token"]


EXCEPTIONS: dict[type[ServiceBusError], AmqpError] = {
    MessagingEntityNotFoundError: EntityNotFound("no such queue"),
    ServiceBusAuthorizationError: NotAuthorized("the token does not allow this"),
    MessagingEntityDisabledError: EntityDisabled("the queue is disabled"),
    ServiceBusQuotaExceededError: QuotaExceeded("the queue is full"),
    ServiceBusServerBusyError: Busy("the server is busy"),
    MessageSizeExceededError: MessageTooLarge("the message is too large"),
    ServiceBusError: AmqpError("a bug"),
}


@needs("Service Bus")
@pytest.mark.parametrize("expected", EXCEPTIONS, ids=lambda exception: exception.__name__)
@pytest.mark.parametrize("fault", ["refused link", "rejected message"])
def test_errors_become_exceptions_of_the_sdk(
    server: MemoryServer, connect: Connect, fault: str, expected: type[ServiceBusError]
) -> None:
    error = EXCEPTIONS[expected]
    faults = server.attach_errors if fault == "refused link" else server.rejections
    server.call(lambda: faults.update(q=error))
    peer = connect(server)
    sender = peer.client.get_queue_sender("q")
    peer.links.append(sender)

    with pytest.raises(ServiceBusError) as caught:
        sender.send_messages(ServiceBusMessage("a"))

    assert type(caught.value) is expected
    assert error.description in str(caught.value)


@needs("Service Bus")
def test_connection_to_a_server_that_stopped_raises(
    start_server: StartServer, connect: Connect
) -> None:
    server = start_server()
    sender = connect(server).sender("q")
    sender.send(text("a"))
    server.close()

    with pytest.raises(ServiceBusConnectionError):
        sender.native.send_messages(ServiceBusMessage("b"))


@needs("Service Bus")
def test_batch_is_filled_up_to_the_limit_of_the_link(
    start_server: StartServer, connect: Connect
) -> None:
    server = start_server(max_message_size=2_000)
    sender = connect(server).sender("q").native
    batch = sender.create_message_batch()
    for _ in range(10):
        batch.add_message(ServiceBusMessage("x" * 100))
    with pytest.raises(MessageSizeExceededError):
        batch.add_message(ServiceBusMessage("x" * 2_000))

    sender.send_messages(batch)

    [received] = server.received
    assert len(split_batch(received.payload)) == 10


@needs("Service Bus")
def test_receiver_iterates_over_messages(server: MemoryServer, connect: Connect) -> None:
    receiver = connect(server).receiver("q", prefetch_count=1).native
    bodies = []
    server.put("q", *(text(str(number)).encode() for number in range(5)))

    for message in receiver:
        receiver.complete_message(message)
        bodies.append(str(message))
        if len(bodies) == 5:
            break

    assert bodies == ["0", "1", "2", "3", "4"]


@needs("Service Bus")
def test_messages_are_scheduled_and_cancelled(server: MemoryServer, connect: Connect) -> None:
    numbers = {"sequence-numbers": Array(int, (4711, 2**40))}
    requests = answer(server, Response(200, "OK", numbers), Response(200, "OK"))
    sender = connect(server).sender("q").native
    messages = [ServiceBusMessage("a", message_id="1"), ServiceBusMessage("b")]

    assert sender.schedule_messages(messages, NOON) == [4711, 2**40]
    sender.cancel_scheduled_messages([4711, 2**40])

    schedule, cancel = requests
    assert schedule.address == "q/$management"
    assert schedule.operation == "com.microsoft:schedule-message"
    assert type(schedule.application_properties["com.microsoft:server-timeout"]) is UInt
    scheduled = schedule.body["messages"]
    assert scheduled[0]["message-id"] == "1"
    inner = [Message.parse(entry["message"]) for entry in scheduled]
    assert [message.read_body() for message in inner] == [(DATA, [b"a"]), (DATA, [b"b"])]
    time_ = inner[0].read_message_annotations()["x-opt-scheduled-enqueue-time"]
    assert same(time_, Timestamp.from_datetime(NOON))
    assert cancel.operation == "com.microsoft:cancel-scheduled-message"
    assert same(cancel.body, {"sequence-numbers": Array(int, (4711, 2**40))})


@needs("Service Bus")
def test_messages_are_peeked(server: MemoryServer, connect: Connect) -> None:
    peeked = Message.build(message_annotations={Symbol("x-opt-sequence-number"): 5}, data=b"peeked")
    body = {"messages": [{"message": peeked.encode()}]}
    requests = answer(server, Response(200, "OK", body), Response(204, "No content"))
    receiver = connect(server).receiver("q").native

    [message] = receiver.peek_messages(10, sequence_number=3)
    assert receiver.peek_messages(10) == []

    assert (str(message), message.sequence_number) == ("peeked", 5)
    assert requests[0].operation == "com.microsoft:peek-message"
    assert requests[0].body["from-sequence-number"] == 3
    assert requests[0].body["message-count"] == 10


@needs("Service Bus")
def test_lock_is_renewed_by_its_token(server: MemoryServer, connect: Connect) -> None:
    server.put("q", text("a").encode())
    expirations = Array(Timestamp, (Timestamp.from_datetime(NOON),))
    requests = answer(
        server,
        Response(200, "OK", {"expirations": expirations}),
        Response(410, "gone", None, "com.microsoft:message-lock-lost"),
    )
    receiver = connect(server).receiver("q")
    [message] = receiver.receive()

    assert receiver.native.renew_message_lock(message.handle) == NOON
    assert requests[0].operation == "com.microsoft:renew-lock"
    assert requests[0].body["lock-tokens"].elements == (message.handle.lock_token,)
    with pytest.raises(MessageLockLostError):
        receiver.native.renew_message_lock(message.handle)


@needs("Service Bus")
def test_operation_that_is_not_implemented_raises(server: MemoryServer, connect: Connect) -> None:
    receiver: Any = connect(server).receiver("q").native

    with pytest.raises(ServiceBusError, match="peek-message is not implemented"):
        receiver.peek_messages(1)

    assert [request.address for request in server.requests] == ["$cbs", "q/$management"]
