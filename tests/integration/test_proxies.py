"""Our AMQP and administration clients through an HTTP proxy, over TCP and WebSockets."""

import pickle
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.amqp.sections import Message
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import ConfigurationError, ConnectionLost, OperationTimeout, ProtocolError
from pairbus.servicebus.administration import AdministrationClient
from pairbus.servicebus.proxy import Proxy
from tests.integration.amqp_clients import Connect
from tests.integration.emulator_clients import TIMEOUT_S
from tests.integration.raw_peer import DEADLINE_S, RawPeer
from tests.interop.fixture_types import StartPeer
from tests.proxies import PASSWORD, USERNAME, ProxyProcess

StartProxy = Callable[..., ProxyProcess]
CREDENTIALS = {"username": USERNAME, "password": PASSWORD}
transports = pytest.mark.parametrize("transport", ["tcp", "websocket"])
tls = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])


@pytest.fixture
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace() as namespace:
        namespace.create_queue("orders")
        yield namespace


def options_of(namespace: LocalNamespace, **changes: Any) -> ClientOptions:
    settings = {"ca_file": namespace.ca_file, "operation_timeout_s": TIMEOUT_S, **changes}
    return ClientOptions.from_connection_string(namespace.connection_string, **settings)


def send(options: ClientOptions) -> None:
    with Client(options) as client, Sender(client, "orders") as sender:
        sender.send(Message.build(data=bytes(100_000)).encode())


def stored_count(namespace: LocalNamespace) -> int:
    return namespace.call(
        lambda core: sum(len(queue) for queue in core.entities.get("orders").queues)
    )


@pytest.mark.rule("A3")
@pytest.mark.parametrize("protected", [False, True], ids=["open", "protected"])
@tls
@transports
def test_client_connects_through_a_proxy(
    namespace: LocalNamespace,
    start_proxy: StartProxy,
    transport: str,
    tls: bool,
    protected: bool,
) -> None:
    process = start_proxy(protected=protected)
    proxy = process.options(**(CREDENTIALS if protected else {}))

    send(options_of(namespace, transport=transport, tls=tls, proxy=proxy))

    assert process.targets == [f"localhost:{namespace.port}"]
    assert stored_count(namespace) == 1


def test_administration_uses_the_proxy_of_the_client(
    namespace: LocalNamespace, start_proxy: StartProxy
) -> None:
    process = start_proxy(protected=True)
    options = options_of(namespace, tls=True, proxy=process.options(**CREDENTIALS))

    with AdministrationClient(options.administration()) as administration:
        assert [queue.path for queue in administration.list_queues()] == ["orders"]

    assert process.targets == [f"localhost:{namespace.port}"]


@transports
@pytest.mark.parametrize(
    ("credentials", "sentence"),
    [
        ({}, r"proxy \S+ requires a user name and a password \(407 [\w ]+\)\. Add them"),
        (
            CREDENTIALS | {"password": "wrong"},
            r"proxy \S+ rejected the user name or the password \(401 Unauthorized\)\. Correct them",
        ),
    ],
    ids=["missing", "wrong"],
)
def test_proxy_that_rejects_the_credentials_is_one_clear_sentence(
    namespace: LocalNamespace,
    start_proxy: StartProxy,
    transport: str,
    credentials: dict[str, str],
    sentence: str,
) -> None:
    process = start_proxy(protected=True)
    options = options_of(namespace, transport=transport, proxy=process.options(**credentials))

    with pytest.raises(ConnectionLost, match=sentence) as raised:
        send(options)

    assert process.targets
    assert "wrong" not in str(raised.value)


def test_proxy_that_does_not_allow_the_port_says_so(
    namespace: LocalNamespace, start_proxy: StartProxy
) -> None:
    process = start_proxy(allowed_port=443)

    with pytest.raises(ConnectionLost, match=r"refused to connect to localhost:\d+: 403 Forbidden"):
        send(options_of(namespace, proxy=process.options()))

    assert process.targets


def test_proxy_that_cannot_reach_the_namespace_says_so(
    namespace: LocalNamespace, start_proxy: StartProxy
) -> None:
    process = start_proxy()
    namespace.stop()

    with pytest.raises(ConnectionLost, match=r"refused to connect to localhost:\d+: 50\d "):
        send(options_of(namespace, proxy=process.options()))

    assert process.targets


def test_proxy_that_does_not_listen_is_named(namespace: LocalNamespace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    proxy = Proxy(host="127.0.0.1", port=port)

    with pytest.raises(ConnectionLost, match=f"cannot connect to proxy 127.0.0.1:{port}"):
        send(options_of(namespace, proxy=proxy))


@transports
def test_proxy_that_hangs_is_a_timeout(
    raw_peer: StartPeer, namespace: LocalNamespace, transport: str
) -> None:
    peer = raw_peer(read_then_hang)
    proxy = Proxy(host="127.0.0.1", port=peer.port)
    options = options_of(namespace, transport=transport, proxy=proxy, connect_timeout_s=0.3)

    with pytest.raises(OperationTimeout, match=r"proxy \S+ did not connect to localhost:\d+ in t"):
        Client(options).connect()

    assert peer.happened.wait(DEADLINE_S)


def test_proxy_that_sends_a_byte_now_and_then_is_a_timeout(
    raw_peer: StartPeer, namespace: LocalNamespace
) -> None:
    def script(sock: socket.socket, peer: RawPeer) -> None:
        peer.read(sock)
        peer.happened.set()
        for _ in range(1000):
            sock.sendall(b"H")
            if peer.over.wait(0.05):
                return

    peer = raw_peer(script)
    options = options_of(
        namespace, proxy=Proxy(host="127.0.0.1", port=peer.port), connect_timeout_s=0.5
    )

    with pytest.raises(OperationTimeout, match="in time"):
        Client(options).connect()

    assert peer.happened.wait(DEADLINE_S)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not answer like an HTTP proxy"),
        (b"", "does not answer like an HTTP proxy"),
        (b"x" * 100_000, "does not answer like an HTTP proxy"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "refused to connect to .*: 502 Bad Gateway"),
        (b"HTTP/1.0 599\r\n\r\n", "refused to connect to .*: 599\\."),
    ],
    ids=["ssh", "closed", "long", "502", "599"],
)
def test_answer_of_another_server_is_an_error(
    raw_peer: StartPeer, namespace: LocalNamespace, answer: bytes, sentence: str
) -> None:
    def script(sock: socket.socket, peer: RawPeer) -> None:
        peer.read(sock)
        sock.sendall(answer)
        sock.shutdown(socket.SHUT_WR)
        peer.keep_open()

    peer = raw_peer(script)
    proxy = Proxy(host="127.0.0.1", port=peer.port)

    with pytest.raises(ConnectionLost, match=sentence):
        Client(options_of(namespace, proxy=proxy)).connect()

    assert peer.received.startswith(b"CONNECT localhost:")


def test_first_bytes_of_the_tunnel_are_not_lost(
    raw_peer: StartPeer, connect: Connect, namespace: LocalNamespace
) -> None:
    """A server that speaks first: its bytes come together with the answer of the proxy."""
    peer = raw_peer(lambda sock, peer: answer_with(sock, peer, b"AMQP\x00\x01\x00\x00"))
    client = connect(peer, proxy=Proxy(host="127.0.0.1", port=peer.port))

    with pytest.raises(ProtocolError, match="the protocol of the peer is AMQP"):
        client.connect()

    assert peer.happened.wait(DEADLINE_S)


def answer_with(sock: socket.socket, peer: RawPeer, data: bytes) -> None:
    peer.read(sock)
    sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n" + data)
    peer.happened.set()
    peer.read(sock)


def read_then_hang(sock: socket.socket, peer: RawPeer) -> None:
    while b"\r\n\r\n" not in peer.received:
        peer.read(sock)
    peer.keep_open()


# The environment.


def test_websocket_over_tls_uses_the_proxy_of_the_environment(
    namespace: LocalNamespace, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start_proxy(protected=True)
    monkeypatch.setenv("HTTPS_PROXY", f"http://{USERNAME}:{PASSWORD}@127.0.0.1:{process.port}")

    send(options_of(namespace, transport="tcp", tls=True))
    send(options_of(namespace, transport="websocket", tls=False))
    assert process.targets == []

    send(options_of(namespace, transport="websocket", tls=True))
    assert process.targets == [f"localhost:{namespace.port}"]

    monkeypatch.setenv("NO_PROXY", "localhost")
    send(options_of(namespace, transport="websocket", tls=True))
    assert len(process.targets) == 1


def test_invalid_proxy_in_the_environment_is_refused(
    namespace: LocalNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://me:hidden@127.0.0.1:1080")

    with pytest.raises(ConfigurationError, match="HTTPS_PROXY") as raised:
        send(options_of(namespace, transport="websocket", tls=True))

    assert "hidden" not in str(raised.value)


def test_options_with_a_proxy_can_be_pickled_and_compared(namespace: LocalNamespace) -> None:
    proxy = Proxy(host="proxy", port=3128, username="me", password="hidden")
    options = options_of(namespace, transport="websocket", proxy=proxy)

    copy = pickle.loads(pickle.dumps(options))

    assert copy == options
    assert hash(copy) == hash(options)
    assert "hidden" not in repr(options)
