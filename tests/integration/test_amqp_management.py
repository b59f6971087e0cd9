"""Requests to `$management`, compared with those of the Azure SDK, and their responses."""

import datetime
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from examples.engine.memory_server import Entry, MemoryServer, Request, Response, ServerConnection
from pairbus.amqp import events as ev
from pairbus.amqp.client import Client, ClientOptions, Management, Receiver
from pairbus.amqp.client.management import DeferredMessage
from pairbus.amqp.link import SenderLink
from pairbus.amqp.performatives import Accepted, Error, Rejected
from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.types import Array, Int32, Timestamp, UInt
from pairbus.errors import (
    AmqpError,
    Busy,
    ConnectionLost,
    DecodeError,
    EntityNotFound,
    LinkLost,
    LockLost,
    MessageNotFound,
    NotAuthorized,
    OperationTimeout,
    ProtocolError,
    Refused,
    StateError,
    Unavailable,
)
from pairbus.servicebus.management import ABANDONED, COMPLETED, DEAD_LETTERED, DEFERRED
from tests.integration.amqp_clients import Connect, set_server_attribute
from tests.interop.sdk_cases import exactly

ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
TAG = ID.bytes_le
OTHER = uuid.UUID("fedcba98-7654-3210-fedc-ba9876543210")
SOON = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
SOON_MS = Timestamp(4_102_444_800_000)
HELLO = Message.build(data=b"hello").encode()

ANSWERS: dict[str, Any] = {
    "peek-message": {"messages": [{"message": HELLO}, {"message": HELLO}]},
    "update-disposition": None,
    "renew-lock": {"expirations": Array(Timestamp, (SOON_MS, SOON_MS))},
    "schedule-message": {"sequence-numbers": Array(int, (17, 2**40))},
    "cancel-scheduled-message": None,
    "receive-by-sequence-number": {"messages": [{"message": HELLO, "lock-token": ID}]},
    "get-session-state": {"session-state": b"state"},
    "set-session-state": None,
    "renew-session-lock": {"expiration": SOON_MS},
}


def answer(request: Request) -> Response:
    return Response(200, "OK", ANSWERS[request.operation.removeprefix("com.microsoft:")])


def answer_with(server: MemoryServer, response: Response) -> None:
    server.handlers["$management"] = lambda request: response


@pytest.fixture
def management(server: MemoryServer, connect: Connect) -> Management:
    server.handlers["$management"] = answer
    return Management(connect(server), "orders")


# Requests.


SCHEDULED = ServiceBusMessage(
    b"later", message_id="m", session_id="s", partition_key="s", subject="subject"
)


class Sdk:
    """A sender and a receiver of the Azure SDK for one queue."""

    def __init__(self, client: ServiceBusClient) -> None:
        self.receiver = client.get_queue_receiver("orders")
        self.session_receiver = client.get_queue_receiver("orders", session_id="s")
        self.sender = client.get_queue_sender("orders")

    def schedule(self) -> None:
        self.sender.schedule_messages(SCHEDULED, SOON)


@pytest.fixture(scope="module")
def compared() -> Iterator[tuple[MemoryServer, Sdk, Management]]:
    """Yield one server for all comparisons, because the SDK takes a second to connect."""
    with MemoryServer() as server:
        server.handlers["$management"] = answer
        text = (
            f"Endpoint=sb://127.0.0.1:{server.port}/;SharedAccessKeyName=root;"
            "SharedAccessKey=a2V5;UseDevelopmentEmulator=true"
        )
        with (
            ServiceBusClient.from_connection_string(text, retry_total=0) as theirs,
            Client(ClientOptions.from_connection_string(text)) as ours,
        ):
            yield server, Sdk(theirs), Management(ours, "orders")
    assert server.failures == []
    assert server.violations == []


def last_scheduled_message(server: MemoryServer) -> bytes:
    """Return the message of the last request to schedule one."""
    payload: bytes = server.requests[-1].body["messages"][0]["message"]
    return payload


Call = Callable[[Any], object]
COMPARISONS: list[tuple[str, Call, Call]] = [
    (
        "peek",
        lambda sdk: sdk.receiver.peek_messages(5, sequence_number=7),
        lambda ours: ours.peek(7, 5),
    ),
    (
        "peek beyond 32 bits",
        lambda sdk: sdk.receiver.peek_messages(1, sequence_number=2**40),
        lambda ours: ours.peek(2**40, 1),
    ),
    (
        "peek in a session",
        lambda sdk: sdk.session_receiver.peek_messages(2, sequence_number=3),
        lambda ours: ours.peek(3, 2, session_id="s"),
    ),
    (
        "complete",
        lambda sdk: sdk.receiver._settle_message_via_mgmt_link("completed", [ID, OTHER]),
        lambda ours: ours.settle([TAG, OTHER.bytes_le]),
    ),
    (
        "abandon",
        lambda sdk: sdk.receiver._settle_message_via_mgmt_link("abandoned", [ID]),
        lambda ours: ours.settle([TAG], ABANDONED),
    ),
    (
        "defer",
        lambda sdk: sdk.receiver._settle_message_via_mgmt_link("defered", [ID]),
        lambda ours: ours.settle([TAG], DEFERRED),
    ),
    (
        "dead-letter",
        lambda sdk: sdk.receiver._settle_message_via_mgmt_link(
            "suspended", [ID], {"deadletter-reason": "r", "deadletter-description": "d"}
        ),
        lambda ours: ours.settle([TAG], DEAD_LETTERED, reason="r", description="d"),
    ),
    (
        "complete in a session",
        lambda sdk: sdk.session_receiver._settle_message_via_mgmt_link("completed", [ID]),
        lambda ours: ours.settle([TAG], COMPLETED, session_id="s"),
    ),
    (
        "renew locks",
        lambda sdk: sdk.receiver._renew_locks(ID, OTHER),
        lambda ours: ours.renew_locks([TAG, OTHER.bytes_le]),
    ),
    (
        "cancel",
        lambda sdk: sdk.sender.cancel_scheduled_messages([1, 2**40]),
        lambda ours: ours.cancel([1, 2**40]),
    ),
    (
        "receive by sequence number",
        lambda sdk: sdk.receiver.receive_deferred_messages([1, 2]),
        lambda ours: ours.receive([1, 2]),
    ),
    (
        "receive by sequence number in a session",
        lambda sdk: sdk.session_receiver.receive_deferred_messages([5]),
        lambda ours: ours.receive([5], session_id="s"),
    ),
    (
        "get session state",
        lambda sdk: sdk.session_receiver.session.get_state(),
        lambda ours: ours.get_session_state("s"),
    ),
    (
        "set session state",
        lambda sdk: sdk.session_receiver.session.set_state(b"new"),
        lambda ours: ours.set_session_state("s", b"new"),
    ),
    (
        "clear session state",
        lambda sdk: sdk.session_receiver.session.set_state(None),
        lambda ours: ours.set_session_state("s", None),
    ),
    (
        "renew a session's lock",
        lambda sdk: sdk.session_receiver.session.renew_lock(),
        lambda ours: ours.renew_session_lock("s"),
    ),
]


@pytest.mark.parametrize(
    ("theirs", "ours"), [case[1:] for case in COMPARISONS], ids=[case[0] for case in COMPARISONS]
)
def test_request_equals_that_of_the_azure_sdk(
    compared: tuple[MemoryServer, Sdk, Management], theirs: Call, ours: Call
):
    server, sdk, management = compared
    theirs(sdk)
    expected = server.requests[-1]

    ours(management)

    check_same(server.requests[-1], expected)


def test_schedule_request_equals_that_of_the_azure_sdk(
    compared: tuple[MemoryServer, Sdk, Management],
):
    server, sdk, management = compared
    sdk.schedule()
    expected = server.requests[-1]

    management.schedule([last_scheduled_message(server)])

    check_same(server.requests[-1], expected)


def check_same(ours: Request, theirs: Request) -> None:
    assert ours is not theirs
    assert ours.address == theirs.address == "orders/$management"
    assert exactly(ours.body) == exactly(theirs.body)
    properties, expected = ours.application_properties, theirs.application_properties
    assert exactly(properties["operation"]) == exactly(expected["operation"])
    timeout = "com.microsoft:server-timeout"
    assert type(properties[timeout]) is type(expected[timeout]) is UInt
    assert 0 < properties[timeout] <= 60_000
    # The SDK also sends the name and type of an associated link, which our client does not have.
    assert expected.keys() - properties.keys() == {"associated-link-name", "type"}
    assert properties.keys() <= expected.keys()


def test_receive_with_settled_requests_settled_messages(
    server: MemoryServer, management: Management
):
    management.receive([1], settled=True)

    mode = server.requests[-1].body["receiver-settle-mode"]
    assert exactly(mode) == exactly(UInt(0))


def test_properties_to_modify_are_sent_with_a_settlement(
    server: MemoryServer, management: Management
):
    management.settle([TAG], ABANDONED, properties_to_modify={"tries": Int32(3)})

    body = server.requests[-1].body
    assert exactly(body["properties-to-modify"]) == exactly({"tries": Int32(3)})


def test_schedule_entry_has_only_properties_that_the_message_has(
    server: MemoryServer, management: Management
):
    management.schedule(
        [HELLO, Message.build(properties=Properties(message_id=ID, group_id="g")).encode()]
    )

    first, second = server.requests[-1].body["messages"]
    assert first == {"message": HELLO}
    assert (second["message-id"], second["session-id"]) == (str(ID), "g")
    assert "partition-key" not in second


def test_server_timeout_is_sent_with_a_request(server: MemoryServer, management: Management):
    management.peek()  # Attaches the links.
    management.peek(timeout_s=2)

    server_timeout = server.requests[-1].application_properties["com.microsoft:server-timeout"]
    assert 1000 < server_timeout <= 2000


# Responses.


def test_peeked_messages_are_encoded_messages(management: Management):
    assert management.peek(1, 2) == [HELLO, HELLO]


@pytest.mark.parametrize("response", [Response(204, "No Content"), Response(200, "OK", {})])
def test_nothing_to_peek_or_receive_is_no_error(
    server: MemoryServer, management: Management, response: Response
):
    answer_with(server, response)

    assert management.peek() == []
    assert management.receive([5]) == []


def test_received_messages_have_lock_tokens(server: MemoryServer, management: Management):
    assert management.receive([1]) == [DeferredMessage(HELLO, TAG)]

    answer_with(server, Response(200, "OK", {"messages": [{"message": HELLO}]}))
    assert management.receive([1], settled=True) == [DeferredMessage(HELLO, None)]


def test_renewed_locks_return_their_expiry(management: Management):
    assert management.renew_locks([TAG, OTHER.bytes_le]) == [SOON_MS, SOON_MS]
    until = management.renew_session_lock("s")
    assert until == SOON_MS
    assert until.to_datetime() == SOON


def test_scheduled_messages_have_sequence_numbers(server: MemoryServer, management: Management):
    assert management.schedule([HELLO, HELLO]) == [17, 2**40]

    answer_with(server, Response(200, "OK", {"sequence-numbers": [1, 2]}))
    assert management.schedule([HELLO, HELLO]) == [1, 2]


@pytest.mark.parametrize(
    ("body", "state"),
    [({"session-state": b"state"}, b"state"), ({"session-state": None}, None), (None, None)],
)
def test_session_state_is_bytes_or_none(
    server: MemoryServer, management: Management, body: Any, state: bytes | None
):
    answer_with(server, Response(200, "OK", body))

    assert management.get_session_state("s") == state


def test_messages_of_one_connection_are_settled_over_another(
    server: MemoryServer, connect: Connect
):
    server.put("orders", HELLO)
    server.handlers["$management"] = answer
    [delivery] = Receiver(connect(server), "orders").receive()

    Management(connect(server), "orders").settle([delivery.tag])

    tokens = server.requests[-1].body["lock-tokens"]
    assert tokens == Array(uuid.UUID, (uuid.UUID(bytes_le=delivery.tag),))


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (Response(401, "why"), NotAuthorized),
        (Response(404, "why"), EntityNotFound),
        (Response(404, "why", None, "com.microsoft:message-not-found"), MessageNotFound),
        (Response(410, "why", None, "com.microsoft:message-lock-lost"), LockLost),
        (Response(410, "why"), LockLost),
        (Response(400, "why", None, "com.microsoft:argument-error"), Refused),
        (Response(408, "why"), OperationTimeout),
        (Response(500, "why", None, "amqp:internal-error"), Unavailable),
        (Response(503, "why", None, "com.microsoft:server-busy"), Busy),
        (Response(302, "why"), Refused),
    ],
    ids=str,
)
def test_unsuccessful_response_raises_its_error(
    server: MemoryServer, management: Management, response: Response, kind: type[AmqpError]
):
    answer_with(server, response)
    calls: list[Callable[[], object]] = [
        management.peek,
        lambda: management.settle([TAG]),
        lambda: management.renew_locks([TAG]),
        lambda: management.schedule([HELLO]),
        lambda: management.cancel([1]),
        lambda: management.receive([1]),
        lambda: management.get_session_state("s"),
        lambda: management.set_session_state("s", b""),
        lambda: management.renew_session_lock("s"),
    ]

    for call in calls:
        with pytest.raises(kind, match=rf"'orders' failed: why \(status {response.status}\)") as e:
            call()
        assert type(e.value) is kind
        if response.error_condition is not None:
            assert e.value.condition == response.error_condition

    server.handlers["$management"] = answer
    assert management.peek() == [HELLO, HELLO]


@pytest.mark.parametrize(
    ("call", "body"),
    [
        (lambda m: m.peek(), {"messages": "none"}),
        (lambda m: m.peek(), {"messages": ["text"]}),
        (lambda m: m.peek(), {"messages": [{}]}),
        (lambda m: m.peek(), {"messages": [{"message": "text"}]}),
        (lambda m: m.receive([1]), {"messages": [{"message": HELLO, "lock-token": "text"}]}),
        (lambda m: m.renew_locks([TAG]), None),
        (lambda m: m.renew_locks([TAG]), {"expirations": ["soon"]}),
        (lambda m: m.schedule([HELLO]), {}),
        (lambda m: m.schedule([HELLO]), {"sequence-numbers": 5}),
        (lambda m: m.schedule([HELLO]), {"sequence-numbers": ["five"]}),
        (lambda m: m.renew_session_lock("s"), {}),
        (lambda m: m.renew_session_lock("s"), {"expiration": 5}),
    ],
)
def test_successful_response_with_missing_content_is_a_protocol_error(
    server: MemoryServer, management: Management, call: Call, body: Any
):
    answer_with(server, Response(200, "OK", body))

    with pytest.raises(ProtocolError):
        call(management)


# Several requests in flight, and invalid responses.


class Responder:
    """Receives requests to `$management`, and sends the responses of the test."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.requests: list[tuple[ServerConnection, ev.Delivery]] = []
        set_server_attribute(server, "intercept", self)

    def __call__(self, peer: ServerConnection, event: ev.Event) -> bool:
        if not isinstance(event, ev.Delivery):
            return False
        self.requests.append((peer, event))
        event.link.session.settle(event.id, event.id, Accepted())
        self.server.changed.notify_all()
        return True

    def wait(self, count: int) -> None:
        self.server.wait_for(lambda: len(self.requests) >= count)

    def id_of(self, index: int) -> Any:
        return Message.parse(self.requests[index][1].payload).read_properties().message_id

    def status(self, index: int, status: int) -> bytes:
        """Return a response with a status to a request."""
        return Message.build(
            properties=Properties(correlation_id=self.id_of(index)),
            application_properties={"statusCode": Int32(status), "statusDescription": str(status)},
        ).encode()

    def send_responses(self, *payloads: bytes) -> None:
        """Send responses on the link on which the sender of the first request receives."""
        peer = self.requests[0][0]

        def send() -> None:
            [end] = [
                end
                for end in self.server.endpoints
                if end.connection is peer and isinstance(end.link, SenderLink)
            ]
            end.queue.extend(map(Entry, payloads))
            end.send_queued()

        self.server.call(send)


def test_responses_out_of_order_are_matched(server: MemoryServer, management: Management):
    responder = Responder(server)
    responses = [management.post_settle([uuid.uuid4().bytes]) for _ in range(3)]
    responder.wait(3)

    responder.send_responses(
        responder.status(2, 410), responder.status(0, 200), responder.status(1, 404)
    )
    management.wait(responses)

    assert [response.status for response in responses] == [200, 404, 410]
    assert [response.description for response in responses] == ["200", "404", "410"]
    responses[0].raise_for_status("settling")
    with pytest.raises(EntityNotFound, match="settling"):
        responses[1].raise_for_status("settling")
    with pytest.raises(LockLost, match="settling"):
        responses[2].raise_for_status("settling")


def test_posted_request_is_sent_immediately(server: MemoryServer, management: Management):
    management.post_settle([TAG])

    server.wait_for(lambda: server.requests)


def test_more_requests_can_be_in_flight_than_the_response_credit(
    server: MemoryServer, management: Management
):
    responses = [management.post_settle([uuid.uuid4().bytes]) for _ in range(350)]

    management.wait(responses)

    assert [response.status for response in responses] == [200] * 350
    assert len(server.requests) == 350


def test_responses_may_arrive_while_requests_are_posted(
    server: MemoryServer, management: Management
):
    responses = []
    for count in range(1, 20):
        responses.append(management.post_settle([uuid.uuid4().bytes]))
        server.wait_for(lambda count=count: len(server.requests) == count)

    management.wait(responses)

    assert all(response.status == 200 for response in responses)


@pytest.mark.timeout(20)
def test_invalid_responses_are_ignored(server: MemoryServer, management: Management):
    responder = Responder(server)
    response = management.post_settle([TAG])
    responder.wait(1)

    status = {"statusCode": Int32(500)}
    responder.send_responses(
        Message.build(
            properties=Properties(correlation_id="another request"), application_properties=status
        ).encode(),
        Message.build(application_properties=status).encode(),
        b"\xff not AMQP",
        b"\x00\x53\x73\xc0\x02\x01\xff",
        b"",
        responder.status(0, 200),
    )
    management.wait([response])

    assert response.status == 200
    response.raise_for_status("settling")


@pytest.mark.timeout(20)
def test_only_foreign_responses_are_a_timeout(server: MemoryServer, management: Management):
    responder = Responder(server)
    response = management.post_settle([TAG])
    responder.wait(1)

    foreign = Properties(correlation_id=str(OTHER))
    responder.send_responses(
        Message.build(properties=foreign, application_properties={"statusCode": 200}).encode()
    )
    management.wait([response], timeout_s=0.2)

    with pytest.raises(OperationTimeout):
        response.raise_for_status("settling")
    # A response that arrives after the timeout is ignored.
    responder.send_responses(responder.status(0, 200))
    set_server_attribute(server, "intercept", None)
    assert management.peek() == [HELLO, HELLO]
    assert isinstance(response.error, OperationTimeout)


@pytest.mark.parametrize("status", [None, "200", b"200", 200.0])
def test_response_without_a_status_is_a_protocol_error(
    server: MemoryServer, management: Management, status: Any
):
    responder = Responder(server)
    response = management.post_settle([TAG])
    responder.wait(1)

    responder.send_responses(
        Message.build(
            properties=Properties(correlation_id=responder.id_of(0)),
            application_properties={} if status is None else {"statusCode": status},
        ).encode()
    )
    management.wait([response])

    with pytest.raises(ProtocolError, match="without a status"):
        response.raise_for_status("settling")


def test_response_with_an_undecodable_body_is_a_decode_error(
    server: MemoryServer, management: Management
):
    responder = Responder(server)
    response = management.post_settle([TAG])
    responder.wait(1)

    broken = Message.parse(responder.status(0, 200))
    broken.body = b"\x00\x53\x77\xc0\x02\x01\xff"
    responder.send_responses(broken.encode())
    management.wait([response])

    with pytest.raises(DecodeError):
        response.raise_for_status("settling")


@pytest.mark.timeout(20)
def test_missing_response_is_a_timeout(server: MemoryServer, management: Management):
    management.peek()
    responder = Responder(server)

    with pytest.raises(OperationTimeout, match=r"orders/\$management"):
        management.peek(timeout_s=0.2)

    responder.wait(1)
    assert len(responder.requests) == 1
    set_server_attribute(server, "intercept", None)
    assert management.peek() == [HELLO, HELLO]


def test_requests_in_flight_fail_when_the_connection_is_cut(
    server: MemoryServer, management: Management
):
    responder = Responder(server)
    responses = [management.post_settle([uuid.uuid4().bytes]) for _ in range(3)]
    responder.wait(3)

    server.cut()
    management.wait(responses)

    assert server.cuts == 1
    assert [type(response.error) for response in responses] == [ConnectionLost] * 3
    set_server_attribute(server, "intercept", None)
    assert management.peek() == [HELLO, HELLO]


def test_requests_in_flight_fail_when_the_link_is_detached(
    server: MemoryServer, management: Management
):
    responder = Responder(server)
    response = management.post_settle([TAG])
    responder.wait(1)

    def detach() -> None:
        for end in server.endpoints:
            if isinstance(end.link, SenderLink):
                end.link.detach()

    server.call(detach)
    management.wait([response])

    assert type(response.error) is LinkLost
    set_server_attribute(server, "intercept", None)
    assert management.peek() == [HELLO, HELLO]


def test_rejected_request_raises_its_error(server: MemoryServer, management: Management):
    error = AmqpError("server is busy", condition="com.microsoft:server-busy")

    def reject(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.Delivery):
            event.link.session.settle(event.id, event.id, Rejected(Error.of(error)))
        return isinstance(event, ev.Delivery)

    set_server_attribute(server, "intercept", reject)

    with pytest.raises(Busy, match="server is busy"):
        management.peek()


def test_missing_node_raises_its_error(server: MemoryServer, management: Management):
    error = AmqpError("no queue", condition="amqp:not-found")
    set_server_attribute(server, "attach_errors", {"orders/$management": error})

    with pytest.raises(EntityNotFound, match="no queue"):
        management.peek()


def test_closed_management_cannot_be_used(management: Management):
    with management:
        management.peek()

    management.close()
    with pytest.raises(StateError, match="closed"):
        management.peek()
