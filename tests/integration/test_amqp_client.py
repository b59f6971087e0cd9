"""Our client on sockets: TLS, SASL, tokens, reconnection, idle timeouts and closing."""

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.servicebus import ServiceBusClient

import pairbus.amqp.client.client
from examples.engine.memory_server import MemoryServer, Request, Response, ServerConnection, offer
from pairbus.amqp import events as ev
from pairbus.amqp.client import (
    Client,
    ClientOptions,
    Credential,
    Management,
    Receiver,
    Sender,
    SharedAccessKey,
    SharedAccessSignature,
)
from pairbus.amqp.performatives import Accepted, Error, Rejected, Target, Transfer
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.errors import (
    AmqpError,
    Busy,
    ConfigurationError,
    ConnectionLost,
    EntityDisabled,
    EntityNotFound,
    LinkLost,
    NotAuthorized,
    OperationTimeout,
    ProtocolError,
    StateError,
    Unavailable,
)
from pairbus.servicebus.tokens import JWT_TYPE, SAS_TYPE, Token, sign_token
from tests.integration.amqp_clients import (
    Connect,
    options_for,
    set_server_attribute,
    wait_for_input,
)
from tests.integration.clocks import Clock
from tests.interop.fixture_types import StartServer, Watch
from tests.interop.peers import certificate_with_key
from tests.interop.tls import TlsFiles
from tests.interop.transfers import receive

HELLO = Message.build(data=b"hello").encode()
WORLD = Message.build(data=b"world").encode()


def send(client: Client, payload: bytes = HELLO, path: str = "orders") -> None:
    with Sender(client, path) as sender:
        sender.send(payload)


def payloads(server: MemoryServer) -> list[bytes]:
    return [received.payload for received in server.received]


# TLS.


@pytest.fixture
def tls_server(start_server: StartServer, tls_files: TlsFiles) -> MemoryServer:
    return start_server(tls=tls_files.server_context())


@pytest.fixture
def connect_tls(connect: Connect, tls_files: TlsFiles) -> Connect:
    """Create clients that use TLS and trust the authority of the server."""
    options: dict[str, Any] = {"tls": True, "host": "localhost", "ca_file": str(tls_files.ca)}
    return lambda server, **changes: connect(server, **(options | changes))


def test_large_messages_are_sent_and_received_over_tls_with_a_ca_file(
    tls_server: MemoryServer, connect_tls: Connect
):
    large = Message.build(data=bytes(range(256)) * 12_000).encode()
    client = connect_tls(tls_server)

    for payload in (HELLO, large):
        send(client, payload)
    assert payloads(tls_server) == [HELLO, large]
    with Receiver(client, "orders") as receiver:
        deliveries = receive(receiver, 2)

    assert [delivery.payload for delivery in deliveries] == [HELLO, large]
    assert tls_server.opens[0].hostname == "localhost"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"ca_file": None}, r"TLS with localhost:\d+ failed.*verify failed"),
        (
            {"host": "bus.example.com", "endpoint_host": "127.0.0.1"},
            r"TLS with 127\.0\.0\.1:\d+ failed.*[Hh]ostname",
        ),
    ],
    ids=["authority", "name"],
)
def test_server_of_another_authority_or_name_is_not_trusted(
    tls_server: MemoryServer, connect_tls: Connect, changes: dict[str, Any], error: str
):
    with pytest.raises(ConnectionLost, match=error):
        connect_tls(tls_server, **changes).connect()

    assert tls_server.opens == []


def test_tls_host_name_may_differ_from_the_address(tls_server: MemoryServer, connect_tls: Connect):
    connect_tls(tls_server, endpoint_host="127.0.0.1").connect()

    assert tls_server.opens[0].hostname == "localhost"


def test_tls_to_a_server_without_tls_is_a_clear_error(server: MemoryServer, connect: Connect):
    with pytest.raises(ConnectionLost, match="TLS with"):
        connect(server, tls=True, host="localhost").connect()

    server.wait_for(lambda: server.violations)
    server.violations.clear()


def test_client_without_tls_at_a_tls_server_raises_an_error_of_pairbus(
    tls_server: MemoryServer, connect: Connect
):
    with pytest.raises((ConnectionLost, ProtocolError)):
        connect(tls_server).connect()


# SASL.


@pytest.mark.parametrize(
    ("offered", "picked"),
    [
        (("MSSBCBS", "ANONYMOUS"), "MSSBCBS"),
        (("ANONYMOUS", "EXTERNAL", "MSSBCBS"), "MSSBCBS"),
        (("ANONYMOUS",), "ANONYMOUS"),
        (("PLAIN", "ANONYMOUS"), "ANONYMOUS"),
    ],
)
def test_default_sasl_mechanism_is_that_of_service_bus(
    start_server: StartServer, connect: Connect, offered: tuple[str, ...], picked: str
):
    server = start_server(sasl=offer(*offered))

    send(connect(server))

    assert [each.mechanism for each in server.authenticated] == [picked]
    assert payloads(server) == [HELLO]


def test_user_name_and_password_are_accepted(start_server: StartServer, connect: Connect):
    server = start_server(sasl=offer("PLAIN", users={"user": "pass word"}))

    send(connect(server, sasl=SaslClient.plain("user", "pass word")))

    assert server.authenticated == [ev.Authenticated("PLAIN", "user")]
    assert payloads(server) == [HELLO]


def test_wrong_password_is_not_authorized(start_server: StartServer, connect: Connect):
    server = start_server(sasl=offer("PLAIN", users={"user": "pass word"}))
    client = connect(server, sasl=SaslClient.plain("user", "guess"))

    with pytest.raises(NotAuthorized, match="SASL PLAIN failed") as caught:
        client.connect()

    assert "guess" not in str(caught.value)
    assert server.opens == []
    assert len(server.violations) == 1
    server.violations.clear()


@pytest.fixture
def certificate_server(start_server: StartServer, tls_files: TlsFiles) -> MemoryServer:
    """A server that requires a client certificate."""
    tls = tls_files.server_context(request_certificate=True)
    return start_server(tls=tls, sasl=offer("EXTERNAL"))


def test_client_certificate_is_accepted(
    certificate_server: MemoryServer, connect_tls: Connect, tls_files: TlsFiles, tmp_path: Path
):
    certificate_file = certificate_with_key(tls_files, tmp_path)
    sasl = SaslClient.external()

    send(connect_tls(certificate_server, certificate_file=certificate_file, sasl=sasl))

    assert [each.mechanism for each in certificate_server.authenticated] == ["EXTERNAL"]


def test_client_without_a_required_certificate_is_rejected(
    certificate_server: MemoryServer, connect_tls: Connect
):
    with pytest.raises(ConnectionLost):
        connect_tls(certificate_server, sasl=SaslClient.external()).connect()

    assert certificate_server.opens == []


def test_without_a_common_mechanism_the_client_is_not_authorized(
    start_server: StartServer, connect: Connect
):
    server = start_server(sasl=offer("EXTERNAL"))

    with pytest.raises(NotAuthorized, match="EXTERNAL"):
        connect(server).connect()


def test_server_without_sasl_raises_an_error_of_pairbus(
    start_server: StartServer, connect: Connect
):
    server = start_server(sasl=None)

    with pytest.raises(ProtocolError):
        connect(server).connect()

    server.call(server.violations.clear)


# Tokens.


class AccessToken(NamedTuple):
    token: str
    expires_on: float


class FakeCredential:
    """Returns tokens that are valid for an hour, and counts them."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.given = 0

    def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        self.given += 1
        return AccessToken(f"token {self.given}", self.clock() + 3600)


def cbs_requests(server: MemoryServer) -> list[Request]:
    return [request for request in server.requests if request.address == "$cbs"]


def test_token_is_sent_before_the_link_is_attached(server: MemoryServer, connect: Connect):
    client = connect(
        server, tokens=SharedAccessKey("root", "key"), wall_clock=lambda: 1_800_000_000.0
    )

    send(client)

    audience = f"sb://127.0.0.1:{server.port}/orders"
    expiry = 1_800_003_600
    [request] = cbs_requests(server)
    assert request.body == sign_token(audience, "root", "key", expiry)
    assert dict(request.application_properties) == {
        "operation": "put-token",
        "type": SAS_TYPE,
        "name": audience,
        "expiration": expiry * 1000,
    }
    assert type(request.application_properties["expiration"]) is Timestamp
    addresses = [attach.target.address for attach in server.attaches if not attach.role]
    assert addresses == ["$cbs", "orders"]


def test_put_token_request_equals_that_of_the_azure_sdk(server: MemoryServer, connect: Connect):
    text = (
        f"Endpoint=sb://127.0.0.1:{server.port}/;SharedAccessKeyName=root;"
        "SharedAccessKey=a2V5;UseDevelopmentEmulator=true"
    )
    with (
        ServiceBusClient.from_connection_string(text, retry_total=0) as theirs,
        theirs.get_queue_sender("orders"),
    ):
        pass
    with Client(ClientOptions.from_connection_string(text)) as client:
        Sender(client, "orders").open()

    sdk, ours = cbs_requests(server)

    # The SDK sends its signatures with the type jwt, which Service Bus accepts.
    assert sdk.application_properties["type"] == JWT_TYPE
    assert ours.application_properties["type"] == SAS_TYPE
    for request in (sdk, ours):
        properties = request.application_properties
        assert {name: type(value) for name, value in properties.items()} == {
            "operation": str,
            "type": str,
            "name": str,
            "expiration": Timestamp,
        }
        audience, expiry = properties["name"], properties["expiration"] // 1000
        assert audience == f"sb://127.0.0.1:{server.port}/orders"
        assert request.body == sign_token(audience, "root", "a2V5", expiry)


def test_token_of_a_credential_is_sent_as_jwt(server: MemoryServer, connect: Connect):
    credential = FakeCredential()

    send(connect(server, tokens=Credential(lambda: credential)))

    [request] = cbs_requests(server)
    assert request.body == "token 1"
    assert request.application_properties["type"] == JWT_TYPE


def test_ready_made_signature_is_sent_unchanged(server: MemoryServer, connect: Connect):
    text = sign_token("sb://namespace/", "root", "key", int(time.time()) + 60)

    send(connect(server, tokens=SharedAccessSignature(text)))

    [request] = cbs_requests(server)
    assert request.body == text


def test_each_entity_has_one_token_for_all_its_links(server: MemoryServer, connect: Connect):
    client = connect(server, tokens=SharedAccessKey("root", "key"))
    server.handlers["$management"] = lambda request: Response(204)

    for _ in range(2):
        for path in ("orders", "invoices"):
            send(client, path=path)
            with Management(client, path) as management:
                management.peek()

    audiences = [request.application_properties["name"] for request in cbs_requests(server)]
    base = f"sb://127.0.0.1:{server.port}"
    assert audiences == [f"{base}/orders", f"{base}/invoices"]


def test_without_a_token_source_no_token_is_sent(server: MemoryServer, connect: Connect):
    send(connect(server))

    assert server.requests == []


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (Response(401, "the signature is wrong"), NotAuthorized),
        (Response(403, "no right"), NotAuthorized),
        (Response(404, "no such entity"), EntityNotFound),
        (Response(500, "a bad day"), Unavailable),
        (Response(503, "later"), Unavailable),
        (Response(400, "?", error_condition="com.microsoft:entity-disabled"), EntityDisabled),
    ],
)
def test_refused_token_raises_its_error(
    server: MemoryServer, connect: Connect, response: Response, kind: type[AmqpError]
):
    server.handlers["$cbs"] = lambda request: response
    client = connect(server, tokens=SharedAccessKey("root", "key"))
    sender = Sender(client, "orders")

    with pytest.raises(kind, match=response.description.replace("?", r"\?")) as caught:
        sender.send(HELLO)

    assert type(caught.value) is kind
    assert len(cbs_requests(server)) == 1
    assert server.received == []

    server.handlers["$cbs"] = lambda request: Response(202)
    sender.send(HELLO)
    assert payloads(server) == [HELLO]


def ignore_cbs(peer: ServerConnection, event: ev.Event) -> bool:
    """Ignore requests to `$cbs`."""
    if not isinstance(event, ev.Delivery) or event.link.context.address != "$cbs":
        return False
    event.link.session.settle(event.id, event.id, Accepted())
    peer.server.requests.append(Request("$cbs", "ignored", {}, None))
    return True


@pytest.mark.timeout(20)
def test_cbs_that_never_answers_is_a_timeout(server: MemoryServer, connect: Connect):
    client = connect(server, tokens=SharedAccessKey("root", "key"))
    Sender(client, "invoices").open()  # It also attaches a link to `$cbs`.
    server.call(server.requests.clear)
    set_server_attribute(server, "intercept", ignore_cbs)
    sender = Sender(client, "orders")

    with pytest.raises(OperationTimeout, match=r"\$cbs"):
        sender.send(HELLO, timeout_s=0.3)

    server.wait_for(lambda: server.requests)
    assert [request.operation for request in server.requests] == ["ignored"]
    assert server.received == []

    set_server_attribute(server, "intercept", None)
    sender.send(HELLO)
    assert payloads(server) == [HELLO]


def test_rejected_cbs_request_raises_its_error(server: MemoryServer, connect: Connect):
    error = Error.of(AmqpError("server is busy", condition="com.microsoft:server-busy"))

    def reject(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.Delivery):
            event.link.session.settle(event.id, event.id, Rejected(error))
        return isinstance(event, ev.Delivery)

    set_server_attribute(server, "intercept", reject)
    sender = Sender(connect(server, tokens=SharedAccessKey("root", "key")), "orders")

    with pytest.raises(Busy, match="server is busy"):
        sender.send(HELLO)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(None, Unavailable), (503, Unavailable), (401, NotAuthorized), (400, NotAuthorized)],
)
def test_failed_credential_is_unavailable_unless_it_was_rejected(
    server: MemoryServer, connect: Connect, status: int | None, kind: type[Exception]
):
    class IdentityError(LookupError):
        status_code = status

    class Failing:
        def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
            raise IdentityError("the identity server is down")

    client = connect(server, tokens=Credential(Failing))

    with pytest.raises(kind, match="is down") as caught:
        send(client)

    assert isinstance(caught.value.__cause__, IdentityError)


def test_signature_that_cannot_be_used_is_a_configuration_error(
    server: MemoryServer, connect: Connect
):
    with pytest.raises(ConfigurationError, match="expiry"):
        send(connect(server, tokens=SharedAccessSignature("SharedAccessSignature sig=x")))


@pytest.mark.parametrize("source", ["shared key", "credential"])
def test_token_near_its_expiry_is_renewed_before_the_next_send(
    server: MemoryServer, connect: Connect, source: str
):
    clock, wall = Clock(time.monotonic), Clock(time.time)
    credential = FakeCredential(wall)
    tokens = (
        SharedAccessKey("root", "key") if source == "shared key" else Credential(lambda: credential)
    )
    # The clock of the server does not advance.
    client = connect(server, tokens=tokens, clock=clock, wall_clock=wall, idle_timeout_s=100_000)
    sender = Sender(client, "orders")
    sender.send(HELLO)
    assert len(cbs_requests(server)) == 1

    clock.ahead = wall.ahead = 3600 * 0.89
    sender.send(HELLO)
    assert len(cbs_requests(server)) == 1

    clock.ahead = wall.ahead = 3600 * 0.91
    sender.send(WORLD)
    first, second = cbs_requests(server)
    assert second.body != first.body
    expirations = [each.application_properties["expiration"] for each in (first, second)]
    assert expirations[1] - expirations[0] >= 3600 * 0.9 * 1000

    sender.send(HELLO)
    assert len(cbs_requests(server)) == 2
    assert client.generation == 1
    assert payloads(server) == [HELLO, HELLO, WORLD, HELLO]


class ShortTokens:
    """Tokens that expire soon. The first renewals fail."""

    def __init__(self, failures: int) -> None:
        self.requests = 0
        self._failures = failures

    def token(self, audience: str, now: float) -> Token:
        self.requests += 1
        if 1 < self.requests <= 1 + self._failures:
            raise ConnectionError("the identity server is down")
        return Token(f"token {self.requests}", "jwt", now + 0.1)


@pytest.mark.rule("A1")
def test_token_is_renewed_while_a_receiver_waits(
    server: MemoryServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pairbus.amqp.client.client.RENEW_RETRY_S", 0.01)
    tokens = ShortTokens(failures=2)
    receiver = Receiver(connect(server, tokens=tokens), "orders")

    assert receiver.receive(timeout_s=0.5) == []

    assert tokens.requests > 4
    sent = [request.body for request in cbs_requests(server)]
    assert sent[:3] == ["token 1", "token 4", "token 5"]


def test_token_is_sent_again_on_a_new_connection(server: MemoryServer, connect: Connect):
    client = connect(server, tokens=SharedAccessKey("root", "key"))
    sender = Sender(client, "orders")
    sender.send(HELLO)

    server.cut()
    wait_for_input(client)
    sender.send(HELLO)

    assert server.cuts == 1
    assert client.generation == 2
    assert len(cbs_requests(server)) == 2


# Opening.


def test_client_sends_its_container_id_and_properties(server: MemoryServer, connect: Connect):
    connect(server, idle_timeout_s=60, max_frame_size=4096).connect()

    [opened] = server.opens
    assert opened.container_id.startswith("pairbus-")
    assert opened.hostname == "127.0.0.1"
    assert opened.max_frame_size == 4096
    assert opened.idle_time_out == 30_000
    assert opened.properties == {"product": "pairbus"}
    assert all(type(key) is Symbol for key in opened.properties)


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("amqp:not-found", EntityNotFound),
        ("amqp:unauthorized-access", NotAuthorized),
        ("amqp:connection:forced", ConnectionLost),
        ("amqp:resource-limit-exceeded", ConnectionLost),
        ("com.microsoft:something-new", Unavailable),
    ],
)
def test_connection_closed_after_the_open_raises_its_error(
    server: MemoryServer, connect: Connect, condition: str, kind: type[AmqpError]
):
    def refuse(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.Opened):
            peer.engine.close(AmqpError("closed by the test", condition=condition))
        return False

    set_server_attribute(server, "intercept", refuse)
    client = connect(server)

    with pytest.raises(kind, match="closed by the test") as caught:
        client.connect()

    assert caught.value.condition == condition
    set_server_attribute(server, "intercept", None)
    send(client)
    assert payloads(server) == [HELLO]


def test_session_ended_after_the_begin_raises_its_error(server: MemoryServer, connect: Connect):
    def refuse(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.Begun):
            event.session.end(AmqpError("no sessions", condition="amqp:internal-error"))
        return False

    set_server_attribute(server, "intercept", refuse)

    with pytest.raises(Unavailable, match="no sessions"):
        connect(server).connect()


def test_refused_link_raises_its_error_and_can_be_attached_later(
    server: MemoryServer, sender: Sender
):
    error = AmqpError("no queue", condition="amqp:not-found", info={Symbol("tracking"): "17"})
    set_server_attribute(server, "attach_errors", {"orders": error})

    for _ in range(2):
        with pytest.raises(EntityNotFound, match="no queue") as caught:
            sender.send(HELLO)
        assert caught.value.info == {"tracking": "17"}

    set_server_attribute(server, "attach_errors", {})
    sender.send(HELLO)
    assert payloads(server) == [HELLO]


def test_link_of_the_server_is_refused_without_harm(server: MemoryServer, connect: Connect):
    links = []
    ended = []

    def attach_link(peer: ServerConnection, event: ev.Event) -> bool:
        if isinstance(event, ev.Begun):
            links.append(event.session.attach_sender("unwanted", target=Target("you")))
        if isinstance(event, ev.Detached) and event.link in links:
            ended.append(event.error)
            return True
        return False

    set_server_attribute(server, "intercept", attach_link)
    client = connect(server)

    send(client)

    server.wait_for(lambda: ended)
    assert ended[0].condition == "amqp:not-allowed"
    assert payloads(server) == [HELLO]
    server.cut()
    wait_for_input(client)
    send(client)
    assert client.generation == 2


# Reconnecting.


@pytest.mark.parametrize("sent_before", [0, 3])
def test_connection_cut_during_a_send_is_lost_and_nothing_is_resent(
    server: MemoryServer, connect: Connect, sent_before: int
):
    client = connect(server)
    sender = Sender(client, "orders")
    for _ in range(sent_before):
        sender.send(HELLO)
    set_server_attribute(server, "cut_after", 1)

    with pytest.raises(ConnectionLost):
        sender.send(WORLD)

    assert server.cuts == 1
    assert payloads(server).count(WORLD) == 1

    sender.send(HELLO)
    assert client.generation == 2
    assert payloads(server) == [HELLO] * sent_before + [WORLD, HELLO]


def test_connection_cut_during_a_receive_is_lost_and_the_next_call_works(
    server: MemoryServer, connect: Connect
):
    server.put("orders", HELLO)
    client = connect(server)
    receiver = Receiver(client, "orders")
    set_server_attribute(server, "cut_after", 1)

    with pytest.raises(ConnectionLost):
        receiver.receive()

    assert server.cuts == 1
    [delivery] = receiver.receive()
    assert delivery.payload == HELLO
    receiver.settle([delivery])
    assert client.generation == 2


def test_connection_cut_between_calls_does_not_fail_the_next_call(
    server: MemoryServer, connect: Connect
):
    client = connect(server)
    sender, receiver = Sender(client, "orders"), Receiver(client, "orders")
    sender.send(HELLO)
    receiver.open()

    server.cut()
    wait_for_input(client)
    assert server.cuts == 1

    sender.send(WORLD)
    assert [each.payload for each in receiver.receive(2)] == [HELLO, WORLD]
    assert client.generation == 2


def test_connection_closed_by_the_server_raises_its_error(server: MemoryServer, sender: Sender):
    reason = AmqpError("maintenance", condition="amqp:connection:forced")

    def close_at_delivery(peer: ServerConnection, event: ev.Event) -> bool:
        if not isinstance(event, ev.Delivery):
            return False
        peer.engine.close(reason)
        return True

    set_server_attribute(server, "intercept", close_at_delivery)

    with pytest.raises(ConnectionLost, match="maintenance"):
        sender.send(HELLO)

    # The client has answered and closed the socket.
    server.wait_for(lambda: not server.connections)
    set_server_attribute(server, "intercept", None)
    sender.send(HELLO)
    assert payloads(server) == [HELLO]


def test_session_ended_by_the_server_is_replaced_on_the_same_connection(
    server: MemoryServer, connect: Connect
):
    sessions = []

    def end_at_delivery(peer: ServerConnection, event: ev.Event) -> bool:
        if not isinstance(event, ev.Delivery) or sessions:
            return False
        sessions.append(event.link.session)
        event.link.session.end(AmqpError("too much", condition="amqp:internal-error"))
        return True

    set_server_attribute(server, "intercept", end_at_delivery)
    client = connect(server)
    sender, receiver = Sender(client, "orders"), Receiver(client, "orders")
    receiver.open()

    with pytest.raises(Unavailable, match="too much"):
        sender.send(HELLO)

    assert len(sessions) == 1
    sender.send(WORLD)
    assert [each.payload for each in receiver.receive()] == [WORLD]
    assert client.generation == 1


def test_protocol_violation_in_a_session_is_an_error_and_the_next_call_works(
    server: MemoryServer, connect: Connect
):
    client = connect(server)
    receiver = Receiver(client, "orders")
    violations: list[Transfer] = []

    def answer_credit_with_a_violation(_peer: ServerConnection, event: ev.Event) -> bool:
        if not isinstance(event, ev.FlowReceived) or violations:
            return False
        violations.append(Transfer(99, 5, b"tag", 0))
        event.link.session.write(violations[0])
        return True

    server.put("orders", HELLO)
    assert [each.payload for each in receiver.receive()] == [HELLO]
    set_server_attribute(server, "intercept", answer_credit_with_a_violation)
    server.put("orders", WORLD)

    with pytest.raises(ProtocolError, match="handle 99") as caught:
        receiver.receive()

    assert len(violations) == 1
    assert type(caught.value) is ProtocolError
    assert sorted(each.payload for each in receiver.receive(2)) == sorted([HELLO, WORLD])
    assert client.generation == 1


def test_link_detached_by_the_server_raises_its_error(server: MemoryServer, connect: Connect):
    def detach_at_delivery(peer: ServerConnection, event: ev.Event) -> bool:
        if not isinstance(event, ev.Delivery):
            return False
        event.link.detach(AmqpError("idle", condition="amqp:link:detach-forced"))
        return True

    set_server_attribute(server, "intercept", detach_at_delivery)
    client = connect(server)
    sender = Sender(client, "orders")

    with pytest.raises(LinkLost, match="idle"):
        sender.send(HELLO)

    set_server_attribute(server, "intercept", None)
    sender.send(HELLO)
    assert payloads(server) == [HELLO]
    assert client.generation == 1


def test_restarted_server_is_connected_again(connect: Connect):
    with MemoryServer() as first:
        client = connect(first)
        sender = Sender(client, "orders")
        sender.send(HELLO)
        assert payloads(first) == [HELLO]

    for _ in range(2):
        with pytest.raises(ConnectionLost):
            sender.send(HELLO)

    with MemoryServer(port=first.port) as second:
        sender.send(WORLD)
        assert payloads(second) == [WORLD]
    assert first.failures == second.failures == []
    assert client.generation == 2


def test_port_without_a_server_is_a_clear_error(server: MemoryServer, connect: Connect):
    client = connect(server)
    server.close()

    with pytest.raises(ConnectionLost, match=rf"cannot connect to 127\.0\.0\.1:{server.port}"):
        client.connect()


def test_invalid_host_name_is_a_configuration_error(server: MemoryServer, connect: Connect):
    for host in ("a..b", "a" * 80 + ".com"):
        with pytest.raises(ConfigurationError, match="not a valid host name"):
            connect(server, host=host).connect()


def test_host_without_an_address_is_a_clear_error(server: MemoryServer, connect: Connect):
    with pytest.raises(ConnectionLost, match=r"cannot connect to nowhere\.invalid"):
        connect(server, host="nowhere.invalid").connect()


# Idle timeouts.


def test_heartbeats_keep_a_connection_while_the_client_waits_for_messages(
    start_server: StartServer, connect: Connect, watch: Watch
):
    server = start_server(idle_timeout_s=2)
    log = watch(server)
    client = connect(server)
    receiver = Receiver(client, "orders")

    assert receiver.receive(timeout_s=2.5) == []

    server.put("orders", HELLO)
    assert [each.payload for each in receiver.receive()] == [HELLO]
    assert log.names("in").count("empty") >= 3
    assert client.generation == 1


def test_connection_of_an_idle_client_is_closed_and_the_next_call_works(
    start_server: StartServer, connect: Connect
):
    server = start_server(idle_timeout_s=1.5)
    client = connect(server)
    sender = Sender(client, "orders")
    sender.send(HELLO)

    server.wait_for(lambda: server.violations)
    assert server.violations[0].condition == "amqp:resource-limit-exceeded"
    server.call(server.violations.clear)

    wait_for_input(client)
    sender.send(WORLD)
    assert payloads(server) == [HELLO, WORLD]
    assert client.generation == 2


def test_heartbeats_of_the_server_keep_a_waiting_client_connected(
    server: MemoryServer, connect: Connect, watch: Watch
):
    log = watch(server)
    client = connect(server, idle_timeout_s=2)
    receiver = Receiver(client, "orders")

    assert receiver.receive(timeout_s=2.5) == []

    assert log.names("out").count("empty") >= 2
    server.put("orders", HELLO)
    assert len(receiver.receive()) == 1
    assert client.generation == 1


def ignore_orders(peer: ServerConnection, event: ev.Event) -> bool:
    """Leave messages without an answer."""
    return isinstance(event, ev.Delivery) and event.link.context.address == "orders"


def test_connection_is_given_up_if_the_server_owes_an_answer_and_is_silent(
    server: MemoryServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pairbus.amqp.client.client, "SILENT_S", 0.2)
    client = connect(server)
    sender = Sender(client, "orders")
    sender.send(HELLO)
    set_server_attribute(server, "intercept", ignore_orders)

    with pytest.raises(OperationTimeout, match="'orders' to accept a message"):
        sender.send(WORLD, timeout_s=0.3)

    set_server_attribute(server, "intercept", None)
    sender.send(HELLO)
    assert client.generation == 2
    assert payloads(server) == [HELLO, HELLO]


def test_connection_is_kept_if_the_server_is_slow_but_not_silent(
    server: MemoryServer, connect: Connect, watch: Watch, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pairbus.amqp.client.client, "SILENT_S", 0.2)
    log = watch(server)
    client = connect(server, idle_timeout_s=2)
    sender = Sender(client, "orders")
    sender.open()
    set_server_attribute(server, "intercept", ignore_orders)

    with pytest.raises(OperationTimeout):
        sender.send(WORLD, timeout_s=1.8)

    assert "empty" in log.names("out")
    set_server_attribute(server, "intercept", None)
    sender.send(HELLO)
    assert client.generation == 1


def test_data_that_arrived_between_calls_keeps_the_connection(
    server: MemoryServer, connect: Connect
):
    clock = Clock(time.monotonic)
    client = connect(server, clock=clock, idle_timeout_s=60)
    receiver = Receiver(client, "orders")
    receiver.open()
    assert receiver.receive(timeout_s=0) == []
    server.put("orders", HELLO)
    wait_for_input(client)

    clock.ahead = 1000

    assert [each.payload for each in receiver.receive()] == [HELLO]
    assert client.generation == 1


def test_client_without_data_between_calls_connects_again(server: MemoryServer, connect: Connect):
    clock = Clock(time.monotonic)
    client = connect(server, clock=clock, idle_timeout_s=60)
    sender = Sender(client, "orders")
    sender.send(HELLO)

    clock.ahead = 1000

    sender.send(WORLD)
    assert payloads(server) == [HELLO, WORLD]
    assert client.generation == 2
    server.wait_for(lambda: server.errors)
    assert server.errors[0].condition == "amqp:resource-limit-exceeded"


# Closing.


def test_closing_sends_a_close(server: MemoryServer, connect: Connect, watch: Watch):
    log = watch(server)
    client = connect(server)
    sender = Sender(client, "orders")
    sender.send(HELLO)

    sender.close()
    client.close()

    server.wait_for(lambda: not server.connections)
    assert log.names("in")[-2:] == ["detach", "close"]
    assert log.names("out")[-2:] == ["detach", "close"]
    assert server.errors == []


def test_closing_again_does_nothing(server: MemoryServer, connect: Connect):
    client = connect(server)
    ends = [Sender(client, "orders"), Receiver(client, "orders"), Management(client, "orders")]
    ends[0].open()
    ends[1].open()

    for _ in range(3):
        for end in ends:
            end.close()
        client.close()

    assert client.generation == 1


def test_closing_an_unused_client_does_nothing(server: MemoryServer, connect: Connect):
    client = connect(server)

    Sender(client, "orders").close()
    Receiver(client, "orders").close()
    client.close()

    assert server.opens == []


def test_links_may_be_closed_after_their_client(server: MemoryServer, connect: Connect):
    client = connect(server)
    sender = Sender(client, "orders")
    sender.send(HELLO)

    client.close()
    sender.close()

    server.wait_for(lambda: not server.connections)


def test_closed_objects_cannot_be_used(server: MemoryServer, connect: Connect):
    client = connect(server)
    with Sender(client, "orders") as sender:
        sender.send(HELLO)

    with pytest.raises(StateError, match="closed"):
        sender.send(HELLO)
    client.close()
    with pytest.raises(StateError, match="closed"):
        client.connect()
    with pytest.raises(StateError, match="closed"):
        Sender(client, "invoices").send(HELLO)


def test_leaving_the_contexts_closes_links_and_connection(server: MemoryServer):
    with (
        Client(options_for(server)) as client,
        Sender(client, "orders") as sender,
        Receiver(client, "orders") as receiver,
    ):
        sender.send(HELLO)
        receiver.settle(receiver.receive())

    server.wait_for(lambda: not server.connections)
    assert not server.endpoints


def test_closing_a_link_does_not_affect_others(server: MemoryServer, connect: Connect):
    client = connect(server)
    with Sender(client, "orders") as first, Sender(client, "orders") as second:
        first.close()
        second.send(HELLO)

    assert payloads(server) == [HELLO]


def test_delivery_in_flight_fails_when_the_client_closes(server: MemoryServer, connect: Connect):
    def ignore_delivery(peer: ServerConnection, event: ev.Event) -> bool:
        return isinstance(event, ev.Delivery)

    set_server_attribute(server, "intercept", ignore_delivery)
    client = connect(server)
    sender = Sender(client, "orders")
    posted = sender.post(HELLO)

    client.close()

    assert posted.done
    assert isinstance(posted.error, ConnectionLost)
    assert sender.in_flight == 0
    sender.wait([posted])


def test_clocks_of_client_and_server_may_differ(server: MemoryServer, connect: Connect):
    long_ago = datetime.datetime(1980, 1, 1, tzinfo=datetime.UTC).timestamp()

    send(connect(server, tokens=SharedAccessKey("root", "key"), wall_clock=lambda: long_ago))

    assert payloads(server) == [HELLO]
