"""The administration client against a local namespace, broken servers and proxies."""

import contextlib
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.amqp.sections import Message
from pairbus.emulator.admin import responses
from pairbus.emulator.admin.api import AdministrationApi
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.connections.http import HttpRequest, HttpResponse
from pairbus.emulator.entities.descriptions import QueueDescription
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import (
    AmqpError,
    Busy,
    ConfigurationError,
    ConnectionLost,
    EntityExists,
    EntityNotFound,
    NotAuthorized,
    OperationTimeout,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from pairbus.servicebus.administration import AdministrationClient, AdministrationOptions
from pairbus.servicebus.connection_strings import ConnectionString
from pairbus.servicebus.entity_status import EntityStatus
from pairbus.servicebus.http_transport import Proxy
from pairbus.servicebus.limits import MAX_PAGE_SIZE
from pairbus.servicebus.time_spans import MAX_TIME_SPAN
from pairbus.servicebus.tokens import (
    Credential,
    SharedAccessKey,
    SharedAccessSignature,
    Token,
    TokenSource,
    sign_token,
)

LISTEN = SharedAccessRule(name="listens", primary_key="k", rights=frozenset({Right.LISTEN}))
OF_QUEUE = SharedAccessRule(name="of-queue", primary_key="k", rights=frozenset(Right))
SHORT_S = 0.2


class RequestLog:
    """Records the requests to the administration API, and may replace their responses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[HttpRequest] = []
        self.schemes: set[str] = set()
        self.respond: Callable[[HttpRequest], HttpResponse | None] = lambda request: None
        handle = AdministrationApi.handle

        def logged(
            api: AdministrationApi, request: HttpRequest, now_ms: int, *, scheme: str, **times: int
        ) -> HttpResponse:
            self.requests.append(request)
            self.schemes.add(scheme)
            response = self.respond(request)
            if response is not None:
                return response
            return handle(api, request, now_ms, scheme=scheme, **times)

        monkeypatch.setattr(AdministrationApi, "handle", logged)

    def headers(self, name: str) -> set[str | None]:
        return {request.header(name) for request in self.requests}


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace("orders", rules=[LISTEN], trust_bearer_tokens=True) as namespace:
        yield namespace


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> RequestLog:
    return RequestLog(monkeypatch)


@pytest.fixture
def administration(namespace: LocalNamespace) -> Iterator[AdministrationClient]:
    with connect(namespace) as administration:
        yield administration


def connect(namespace: LocalNamespace, **options: Any) -> AdministrationClient:
    """A client with the root key, over plain HTTP unless `tls` is set."""
    settings = {"host": "localhost", "port": namespace.port, "tls": False, "tokens": key(namespace)}
    return AdministrationClient(AdministrationOptions(**{**settings, **options}))


def key(namespace: LocalNamespace) -> SharedAccessKey:
    parsed = ConnectionString.parse(namespace.connection_string)
    assert parsed.key_name is not None
    assert parsed.key is not None
    return SharedAccessKey(parsed.key_name, parsed.key)


def description(namespace: LocalNamespace, path: str) -> Any:
    return namespace.call(lambda core: core.entities.get(path).description)


# Entities.


def test_queue_is_created_with_its_settings_and_deleted(
    namespace: LocalNamespace, administration: AdministrationClient
) -> None:
    settings: dict[str, Any] = {
        "max_size_in_megabytes": 5120,
        "max_delivery_count": 2147483647,
        "dead_lettering_on_message_expiration": True,
        "requires_session": True,
        "requires_duplicate_detection": True,
        "duplicate_detection_history_time_window": timedelta(minutes=5),
    }
    defaults: dict[str, Any] = {
        "lock_duration": timedelta(minutes=1),
        "default_message_time_to_live": MAX_TIME_SPAN,
    }
    administration.create_queue("created/queue", **settings, **defaults)

    assert description(namespace, "created/queue") == QueueDescription(
        name="created/queue", support_ordering=True, **settings
    )
    queue = administration.get_queue("created/queue")
    assert (queue.path, queue.status) == ("created/queue", EntityStatus.ACTIVE)
    assert queue.requires_session
    assert queue.requires_duplicate_detection
    assert (queue.active_message_count, queue.size_in_bytes) == (0, 0)

    administration.delete_queue("created/queue")
    with pytest.raises(EntityNotFound):
        administration.get_queue("created/queue")


def test_topic_and_subscription_are_created_and_deleted(
    namespace: LocalNamespace, administration: AdministrationClient
) -> None:
    administration.create_topic("created/topic", requires_duplicate_detection=True)
    administration.create_subscription("created/topic", "all", max_delivery_count=7)

    assert administration.get_topic("created/topic").requires_duplicate_detection
    assert description(namespace, "created/topic/Subscriptions/all").max_delivery_count == 7

    administration.delete_topic("created/topic")
    with pytest.raises(EntityNotFound):
        administration.get_topic("created/topic")


def test_counts_are_those_of_the_queue(
    namespace: LocalNamespace, administration: AdministrationClient
) -> None:
    namespace.create_queue("counted")
    with Client(ClientOptions.from_connection_string(namespace.connection_string)) as client:
        for _ in range(3):
            Sender(client, "counted").send(Message.build(data=b"hello").encode())

    queue = administration.get_queue("counted")

    assert (queue.active_message_count, queue.dead_letter_message_count) == (3, 0)
    assert queue.size_in_bytes > 15
    assert administration.list_queues("Counted") == [queue]


@pytest.mark.parametrize("create", [LocalNamespace.create_queue, LocalNamespace.create_topic])
def test_status_is_changed_and_other_settings_are_kept(
    namespace: LocalNamespace, administration: AdministrationClient, create: Callable[..., None]
) -> None:
    path = f"status/{create.__name__}"
    create(
        namespace,
        path,
        authorization_rules=(OF_QUEUE,),
        user_metadata="<kept & kept>",
        default_message_time_to_live=timedelta(hours=1),
    )
    before = description(namespace, path)

    administration.set_status(path, EntityStatus.SEND_DISABLED)
    disabled = description(namespace, path)
    administration.set_status(path, EntityStatus.ACTIVE)

    assert disabled.status is EntityStatus.SEND_DISABLED
    assert disabled.user_metadata == "<kept & kept>"
    assert description(namespace, path) == before


def test_status_of_a_queue_that_forwards_can_be_changed(
    namespace: LocalNamespace, administration: AdministrationClient
) -> None:
    namespace.create_queue("target")
    namespace.create_queue(
        "forwards", forward_to="target", forward_dead_lettered_messages_to="target"
    )

    administration.set_status("forwards", EntityStatus.DISABLED)

    changed = description(namespace, "forwards")
    assert (changed.status, changed.forward_to) == (EntityStatus.DISABLED, "target")


def test_path_with_characters_that_a_url_reserves_is_quoted(
    namespace: LocalNamespace, administration: AdministrationClient
) -> None:
    administration.create_queue("caf\u00e9/~a.b-c_d")

    assert administration.get_queue("caf\u00e9/~a.b-c_d").path == "caf\u00e9/~a.b-c_d"


# Lists.


@pytest.fixture(scope="module")
def crowded() -> Iterator[LocalNamespace]:
    """A namespace with more queues than fit on two pages."""
    with LocalNamespace("crowded", rules=[LISTEN]) as crowded:
        for number in range(230):
            crowded.create_queue(f"queue-{number:03}")
        yield crowded


def test_list_has_the_queues_of_all_pages(crowded: LocalNamespace, log: RequestLog) -> None:
    with connect(crowded) as administration:
        queues = [queue.path for queue in administration.list_queues()]
        requests = len(log.requests)
        with_prefix = [queue.path for queue in administration.list_queues("QUEUE-22")]
        none = administration.list_queues("absent/")

    assert queues == [f"queue-{number:03}" for number in range(230)]
    assert requests == 3
    assert with_prefix == [f"queue-22{digit}" for digit in range(10)]
    assert none == []


def test_list_of_exactly_one_page_is_complete() -> None:
    with LocalNamespace() as full:
        for number in range(MAX_PAGE_SIZE):
            full.create_queue(f"queue-{number}")
        with connect(full) as administration:
            assert len(administration.list_queues()) == MAX_PAGE_SIZE


def test_pages_smaller_than_requested_are_followed(
    crowded: LocalNamespace, log: RequestLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "MAX_PAGE_SIZE", 60)

    with connect(crowded) as administration:
        assert len(administration.list_queues()) == 230
    assert len(log.requests) == 4


# Errors.


def test_entity_that_does_not_exist_is_not_found(administration: AdministrationClient) -> None:
    for call in (
        administration.get_queue,
        administration.get_topic,
        administration.delete_queue,
        administration.delete_topic,
        lambda path: administration.create_subscription(path, "s"),
        lambda path: administration.set_status(path, EntityStatus.ACTIVE),
    ):
        with pytest.raises(EntityNotFound, match="absent"):
            call("absent")


def test_entity_that_exists_is_not_created_again(
    namespace: LocalNamespace, administration: AdministrationClient
) -> None:
    namespace.create_queue("exists")

    with pytest.raises(
        EntityExists, match=r"creating queue 'exists' failed with status 409: SubCode"
    ):
        administration.create_queue("exists")
    with pytest.raises(EntityExists):
        administration.create_topic("exists")


def test_topic_is_not_taken_for_a_queue(
    namespace: LocalNamespace, administration: AdministrationClient
) -> None:
    namespace.create_topic("a-topic")
    namespace.create_queue("a-queue")

    with pytest.raises(Refused, match="'a-topic' is a topic, not a queue"):
        administration.get_queue("a-topic")
    with pytest.raises(Refused, match="'a-queue' is a queue, not a topic"):
        administration.get_topic("a-queue")


def test_invalid_setting_is_refused_with_the_reason_of_the_service(
    administration: AdministrationClient,
) -> None:
    with pytest.raises(Refused, match=r"status 400: .*LockDuration"):
        administration.create_queue("invalid", lock_duration=timedelta(hours=1))


def test_tier_of_the_namespace_is_read(
    administration: AdministrationClient, log: RequestLog
) -> None:
    assert administration.get_sku() == "Premium"  # what an unlimited namespace says
    log.respond = lambda request: HttpResponse(status=200, body=b"<entry/>")
    with pytest.raises(Unavailable, match="without MessagingSKU"):
        administration.get_sku()


def test_requests_need_the_manage_right(namespace: LocalNamespace) -> None:
    listens = SharedAccessKey(LISTEN.name, LISTEN.primary_key)
    with connect(namespace, tokens=listens) as administration:
        with pytest.raises(NotAuthorized, match="listing queues needs the Manage right"):
            administration.list_queues()
        with pytest.raises(NotAuthorized, match="reading queue 'q' needs the Manage right"):
            administration.get_queue("q")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (403, QuotaExceeded),
        (409, EntityExists),
        (429, Busy),
        (500, Unavailable),
        (503, Unavailable),
    ],
)
def test_error_of_the_service_is_translated(
    administration: AdministrationClient, log: RequestLog, status: int, error: type[AmqpError]
) -> None:
    log.respond = lambda request: HttpResponse(status=status)

    with pytest.raises(error, match=f"status {status}: no detail"):
        administration.create_queue("q")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"<entry/>", b"\x00\xff" * 1000, b"<feed>" * 9000]
)
def test_body_that_is_not_a_description_is_an_error(
    administration: AdministrationClient, log: RequestLog, body: bytes
) -> None:
    log.respond = lambda request: HttpResponse(status=200, body=body)

    with pytest.raises(Unavailable):
        administration.get_queue("q")
    with pytest.raises(Unavailable):
        administration.list_queues()


# Credentials.


class AccessToken:
    token, expires_on = "bearer-token", 4_000_000_000


class BearerIdentity:
    """A credential with the interface of azure-identity."""

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken()


class FailingIdentity:
    """A credential whose requests fail, with an HTTP status or without."""

    def __init__(self, status_code: int | None) -> None:
        self.status_code = status_code

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        error = RuntimeError("no identity here")
        error.status_code = self.status_code  # type: ignore[attr-defined]
        raise error


def signature(namespace: LocalNamespace) -> SharedAccessSignature:
    root = key(namespace)
    expiry = int(time.time()) + 600
    return SharedAccessSignature(sign_token("sb://localhost/", root.name, root.key, expiry))


@pytest.mark.parametrize(
    ("source", "header"),
    [
        (key, "SharedAccessSignature sr="),
        (signature, "SharedAccessSignature sr="),
        (lambda namespace: Credential(BearerIdentity), "Bearer bearer-token"),
    ],
    ids=["key", "signature", "bearer token"],
)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_every_token_source_authorizes(
    namespace: LocalNamespace,
    log: RequestLog,
    source: Callable[[LocalNamespace], TokenSource],
    header: str,
    tls: bool,
) -> None:
    tokens = source(namespace)
    with connect(namespace, tokens=tokens, tls=tls, ca_file=namespace.ca_file) as administration:
        administration.list_queues("q")

    assert log.schemes == {"https" if tls else "http"}
    assert all((value or "").startswith(header) for value in log.headers("Authorization"))


def test_connection_string_is_enough(namespace: LocalNamespace) -> None:
    options = AdministrationOptions.from_connection_string(namespace.connection_string)

    with AdministrationClient(options) as administration:
        administration.list_queues()


def test_key_of_a_queue_administers_that_queue_only(namespace: LocalNamespace) -> None:
    namespace.create_queue("own", authorization_rules=(OF_QUEUE,))
    namespace.create_queue("foreign")
    tokens = SharedAccessKey(OF_QUEUE.name, OF_QUEUE.primary_key)

    with connect(namespace, tokens=tokens) as administration:
        assert administration.get_queue("own").path == "own"
        with pytest.raises(NotAuthorized):
            administration.get_queue("foreign")


def test_every_request_asks_for_a_token_of_its_own(namespace: LocalNamespace) -> None:
    namespace.create_queue("requested")
    audiences: list[str] = []

    class Source:
        def token(self, audience: str, now: float) -> Token:
            audiences.append(audience)
            return key(namespace).token(audience, now)

    with connect(namespace, tokens=Source()) as administration:
        administration.get_queue("requested")
        administration.get_queue("requested")
        administration.list_queues()

    base = f"https://localhost:{namespace.port}/"
    assert audiences == [f"{base}requested", f"{base}requested", base]


@pytest.mark.parametrize(
    ("status", "error"), [(None, Unavailable), (500, Unavailable), (401, NotAuthorized)]
)
def test_credential_without_a_token_is_an_error(
    namespace: LocalNamespace, status: int | None, error: type[AmqpError]
) -> None:
    tokens = Credential(lambda: FailingIdentity(status))
    with (
        connect(namespace, tokens=tokens) as administration,
        pytest.raises(error, match=r"no token for .* could be acquired: no identity here"),
    ):
        administration.list_queues()


# Connections.


def test_certificate_is_checked(namespace: LocalNamespace, log: RequestLog) -> None:
    with (
        connect(namespace, tls=True) as administration,
        pytest.raises(ConnectionLost, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        administration.list_queues()
    assert log.requests == []


def test_ssl_context_is_used_and_not_changed(namespace: LocalNamespace, log: RequestLog) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(namespace.ca_file)
    before = context.cert_store_stats()

    with connect(namespace, tls=True, ssl_context=context) as administration:
        administration.list_queues()

    assert log.schemes == {"https"}
    assert context.cert_store_stats() == before


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_custom_endpoint_gets_the_namespace_as_host_header(
    namespace: LocalNamespace, log: RequestLog, tls: bool
) -> None:
    endpoint = f"sb://localhost:{namespace.port}"
    with connect(
        namespace,
        host="orders.servicebus.invalid",
        port=None,
        endpoint=endpoint,
        tls=tls,
        ca_file=namespace.ca_file,
    ) as administration:
        administration.list_queues()

    assert log.headers("Host") == {"orders.servicebus.invalid"}


def test_connection_is_reused_and_replaced_when_the_server_has_closed_it(
    log: RequestLog,
) -> None:
    with LocalNamespace() as first, connect(first) as administration:
        port = first.port
        administration.list_queues()
        sock = administration._transport._socket
        administration.list_queues()
        assert administration._transport._socket is sock
        first.stop()
        with LocalNamespace(port=port) as second:
            administration.options = connect(second).options
            administration.list_queues()
        assert administration._transport._socket is not sock


def test_hook_is_called_for_every_request_answered_or_not(namespace: LocalNamespace) -> None:
    requests: list[tuple[str, bool]] = []

    def on_request(path: str, answered: bool) -> None:
        requests.append((path, answered))

    options = AdministrationOptions.from_connection_string(namespace.connection_string)
    with AdministrationClient(options, on_request=on_request) as administration:
        administration.list_queues()
        with pytest.raises(EntityNotFound):
            administration.get_queue("absent")
    with frozen_server() as port:
        down = AdministrationOptions(host="127.0.0.1", port=port, tls=False, timeout_s=SHORT_S)
        with (
            AdministrationClient(down, on_request=on_request) as administration,
            pytest.raises(OperationTimeout),
        ):
            administration.get_queue("q")

    assert requests == [("$Resources/queues", True), ("absent", True), ("q", False)]


@contextlib.contextmanager
def frozen_server() -> Iterator[int]:
    """A server that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_frozen_server_is_a_timeout(tls: bool) -> None:
    with frozen_server() as port:
        options = AdministrationOptions(host="127.0.0.1", port=port, tls=tls, timeout_s=SHORT_S)
        with (
            AdministrationClient(options) as administration,
            pytest.raises(OperationTimeout, match=f"no response from 127.0.0.1:{port} in time"),
        ):
            administration.list_queues()


@contextlib.contextmanager
def scripted_server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that reads the head of a request, and then calls `answer` with the connection."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            head = b""
            while b"\r\n\r\n" not in head:
                head += self.request.recv(4096)
            with contextlib.suppress(OSError):
                answer(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def request_to(port: int, timeout_s: float = 10.0) -> None:
    options = AdministrationOptions(host="127.0.0.1", port=port, tls=False, timeout_s=timeout_s)
    with AdministrationClient(options) as administration:
        administration.get_queue("q")


def test_timeout_bounds_a_server_that_sends_one_byte_at_a_time() -> None:
    sent = 0
    stopped = threading.Event()

    def send_slowly(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not stopped.wait(SHORT_S / 10):  # each byte arrives well within the timeout
            connection.sendall(b"x")
            sent += 1

    with scripted_server(send_slowly) as port:
        try:
            with pytest.raises(OperationTimeout):
                request_to(port, SHORT_S * 2)
        finally:
            stopped.set()
    assert sent > 2


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"220 smtp.example ESMTP\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n<entry>",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot-a-size\r\n",
    ],
    ids=["nothing", "another protocol", "no status", "cut off", "too many headers", "bad chunk"],
)
def test_response_that_is_not_http_is_a_lost_connection(response: bytes) -> None:
    with (
        scripted_server(lambda connection: connection.sendall(response)) as port,
        pytest.raises(ConnectionLost, match=f"request to 127.0.0.1:{port} failed: "),
    ):
        request_to(port)


def test_response_that_is_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairbus.servicebus.http_transport.MAX_BODY", 10)
    response = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n" + b"x" * 11

    with (
        scripted_server(lambda connection: connection.sendall(response)) as port,
        pytest.raises(Unavailable, match="more than 10 bytes"),
    ):
        request_to(port)


def test_server_that_is_down_is_a_lost_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(ConnectionLost, match="refused"):
        request_to(port)


def test_host_that_cannot_be_one_is_a_lost_connection() -> None:
    options = AdministrationOptions(host=f"{'x' * 70}.example", tls=False)
    with AdministrationClient(options) as administration, pytest.raises(ConnectionLost):
        administration.list_queues()


def test_client_can_be_used_again_after_an_error(
    namespace: LocalNamespace, log: RequestLog
) -> None:
    namespace.create_queue("again")
    with connect(namespace) as administration:
        log.respond = lambda request: HttpResponse(status=200, body=b"<html>")
        with pytest.raises(Unavailable):
            administration.get_queue("again")
        log.respond = lambda request: None
        assert administration.get_queue("again").path == "again"
        with pytest.raises(OperationTimeout):
            administration.get_queue("again", timeout_s=1e-9)
        assert administration.get_queue("again").path == "again"


# Proxies.


class TunnelProxy(socketserver.ThreadingTCPServer):
    """An HTTP proxy that connects to one namespace, whatever host a client asks for."""

    daemon_threads = True

    def __init__(self, target_port: int, status: bytes = b"200 OK") -> None:
        self.heads: list[bytes] = []
        self.target_port = target_port
        self.status = status
        super().__init__(("127.0.0.1", 0), _TunnelHandler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def __enter__(self) -> "TunnelProxy":
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self.server_close()


class _TunnelHandler(socketserver.BaseRequestHandler):
    server: TunnelProxy

    def handle(self) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.request.recv(1)
        self.server.heads.append(head)
        self.request.sendall(b"HTTP/1.1 " + self.server.status + b"\r\n\r\n")
        if not self.server.status.startswith(b"200"):
            return
        with socket.create_connection(("127.0.0.1", self.server.target_port)) as target:
            back = threading.Thread(target=_copy, args=(target, self.request), daemon=True)
            back.start()
            _copy(self.request, target)
            back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def test_proxy_tunnels_tls_with_credentials(namespace: LocalNamespace, log: RequestLog) -> None:
    with TunnelProxy(namespace.port) as server:
        proxy = Proxy(host="127.0.0.1", port=server.port, username="me@home", password="p/w")
        with connect(namespace, tls=True, ca_file=namespace.ca_file, proxy=proxy) as administration:
            administration.list_queues()
            administration.list_queues()

    (head,) = server.heads
    assert head.startswith(f"CONNECT localhost:{namespace.port} HTTP/1.1\r\n".encode())
    assert b"Proxy-Authorization: Basic bWVAaG9tZTpwL3c=\r\n" in head
    assert log.schemes == {"https"}
    assert log.headers("Proxy-Authorization") == {None}


def test_proxy_of_the_environment_is_used_with_tls(
    namespace: LocalNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TunnelProxy(namespace.port) as server:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.port}")
        monkeypatch.setenv("no_proxy", "")
        with connect(namespace, tls=True, ca_file=namespace.ca_file) as administration:
            administration.list_queues()
    assert len(server.heads) == 1


def test_proxy_of_the_environment_is_not_used_without_tls(
    namespace: LocalNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")

    with connect(namespace) as administration:
        administration.list_queues()


def test_proxy_that_refuses_is_a_lost_connection(namespace: LocalNamespace) -> None:
    with TunnelProxy(namespace.port, b"407 Proxy Authentication Required") as server:
        proxy = Proxy(host="127.0.0.1", port=server.port)
        with (
            connect(namespace, tls=True, ca_file=namespace.ca_file, proxy=proxy) as administration,
            pytest.raises(ConnectionLost, match="407 Proxy Authentication Required"),
        ):
            administration.list_queues()


def test_frozen_proxy_is_a_timeout(namespace: LocalNamespace) -> None:
    with frozen_server() as port:
        proxy = Proxy(host="127.0.0.1", port=port)
        with (
            connect(namespace, tls=True, proxy=proxy, timeout_s=SHORT_S) as administration,
            pytest.raises(OperationTimeout),
        ):
            administration.list_queues()


def test_proxy_for_plain_http_gets_whole_urls(namespace: LocalNamespace, log: RequestLog) -> None:
    # A local namespace can stand in for such a proxy: it accepts requests for any host.
    proxy = Proxy(host="localhost", port=namespace.port, username="me@home", password="p/w")
    with connect(
        namespace, host="orders.servicebus.invalid", port=5672, proxy=proxy
    ) as administration:
        administration.list_queues()

    (request,) = log.requests
    assert request.target.startswith("http://orders.servicebus.invalid:5672/$Resources/queues?")
    assert request.header("Proxy-Authorization") == "Basic bWVAaG9tZTpwL3c="


def test_unusable_proxy_of_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:1080")
    monkeypatch.setenv("no_proxy", "")

    with pytest.raises(ConfigurationError, match="NO_PROXY"):
        AdministrationClient(AdministrationOptions(host="orders.servicebus.windows.net"))
