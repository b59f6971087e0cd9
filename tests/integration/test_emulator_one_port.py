"""One port serves AMQP, AMQP over TLS, and the administration API with and without TLS."""

import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from azure.core.exceptions import ServiceRequestError
from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.amqp.sections import Message
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import ConnectionLost, StateError
from pairbus.servicebus.connection_strings import ConnectionString
from pairbus.servicebus.tokens import sign_token
from tests.integration.emulator_clients import (
    QUICK,
    open_socket,
    read_until_closed,
    receive_with_sdk,
    round_trip,
    send_with_sdk,
)
from tests.integration.sdk_flavours import SDK_SOCKETS
from tests.interop.tls import TlsFiles

pytestmark = SDK_SOCKETS

ANY = "0.0.0.0"


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace() as namespace:
        namespace.create_queue("orders")
        yield namespace


def over_tls(namespace: LocalNamespace, ca_file: str) -> ServiceBusClient:
    text = namespace.connection_string.replace("UseDevelopmentEmulator=true;", "")
    return ServiceBusClient.from_connection_string(
        text,
        custom_endpoint_address=f"sb://localhost:{namespace.port}",
        transport_type=TransportType.Amqp,
        connection_verify=ca_file,
        **QUICK,
    )


def administration(namespace: LocalNamespace, ca_file: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        namespace.connection_string, connection_verify=ca_file, retry_total=0
    )


def http_get(namespace: LocalNamespace, path: str, scheme: str = "http") -> bytes:
    """Send a request without the SDK."""
    parsed = ConnectionString.parse(namespace.connection_string)
    assert parsed.key_name is not None
    assert parsed.key is not None
    url = f"{scheme}://localhost:{namespace.port}/{path}"
    token = sign_token(url, parsed.key_name, parsed.key, int(time.time()) + 60)
    request = urllib.request.Request(url, headers={"Authorization": token})
    context = ssl.create_default_context(cafile=namespace.ca_file) if scheme == "https" else None
    with urllib.request.urlopen(request, timeout=20, context=context) as response:
        body: bytes = response.read()
    return body


def test_amqp_without_tls_is_served(namespace: LocalNamespace) -> None:
    round_trip(namespace)


def test_administration_client_is_served_over_https(namespace: LocalNamespace) -> None:
    with administration(namespace, namespace.ca_file) as admin:
        assert [queue.name for queue in admin.list_queues()] == ["orders"]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_http_is_served_with_and_without_tls(namespace: LocalNamespace, scheme: str) -> None:
    assert b"<QueueDescription" in http_get(namespace, "orders?api-version=2021-05", scheme)


def test_all_protocols_are_served_at_the_same_time(namespace: LocalNamespace) -> None:
    with (
        over_tls(namespace, namespace.ca_file) as secure,
        secure.get_queue_sender("orders"),
        administration(namespace, namespace.ca_file) as admin,
    ):
        admin.get_queue("orders")
        round_trip(namespace)
        assert http_get(namespace, "orders?api-version=2021-05")


def test_administration_client_with_another_ca_cannot_connect(
    namespace: LocalNamespace, tls_files: TlsFiles
) -> None:
    with (
        administration(namespace, str(tls_files.ca)) as admin,
        pytest.raises(ServiceRequestError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        admin.get_queue("orders")
    round_trip(namespace)


def test_stalled_clients_do_not_affect_others(namespace: LocalNamespace) -> None:
    hello = half_a_hello()
    with ExitStack() as stack:
        silent = [stack.enter_context(open_socket(namespace)) for _ in range(20)]
        halves = [stack.enter_context(open_socket(namespace)) for _ in range(20)]
        for sock in halves:
            sock.sendall(hello)
        short = stack.enter_context(open_socket(namespace))
        short.sendall(b"AM")
        garbage = stack.enter_context(open_socket(namespace))
        garbage.sendall(b"\x00\xffgarbage\r\n\r\n")

        read_until_closed(garbage)  # the connection is closed
        round_trip(namespace)

        for sock in (*silent, *halves, short):
            assert still_open(sock)


def half_a_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    return hello[: len(hello) // 2]


def still_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) != b""
    except BlockingIOError:
        return True


def test_invalid_bytes_over_tls_end_their_connection_only(namespace: LocalNamespace) -> None:
    with open_socket(namespace) as sock:
        sock.sendall(b"\x16\x03\x01\x00\x05hello")
        read_until_closed(sock)
    round_trip(namespace)


def test_port_and_ca_survive_a_restart(tmp_path: Path) -> None:
    with LocalNamespace(folder=tmp_path) as namespace:
        namespace.create_queue("orders")
        before = namespace.connection_string
        ca = Path(namespace.ca_file).read_bytes()
        namespace.stop()
        with pytest.raises(ConnectionRefusedError):
            open_socket(namespace)
        namespace.start()

        assert namespace.connection_string == before
        assert Path(namespace.ca_file).read_bytes() == ca
        round_trip(namespace)


class TestAddresses:
    def send(self, namespace: LocalNamespace, *, tls: bool) -> None:
        parsed = ClientOptions.from_connection_string(namespace.connection_string)
        options = ClientOptions(
            host="localhost",
            port=namespace.port,
            tls=tls,
            ca_file=namespace.ca_file if tls else None,
            tokens=parsed.tokens,
        )
        with Client(options) as client, Sender(client, "orders") as sender:
            sender.send(Message.build(data=b"x").encode())

    def test_default_host_serves_the_loopback_address_only(self, namespace: LocalNamespace) -> None:
        # All of 127.0.0.0/8 is this machine, but the namespace listens on one address only.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", namespace.port), 5)

    def test_host_on_the_network_serves_tls_only(self, caplog: pytest.LogCaptureFixture) -> None:
        with LocalNamespace(host=ANY) as namespace:
            namespace.create_queue("orders")
            assert "UseDevelopmentEmulator" not in namespace.connection_string

            with pytest.raises(ConnectionLost):
                self.send(namespace, tls=False)
            with pytest.raises((urllib.error.URLError, ConnectionError)):
                http_get(namespace, "orders?api-version=2021-05")
            assert caplog.text.count("requires TLS") == 2

            self.send(namespace, tls=True)
            assert http_get(namespace, "orders?api-version=2021-05", "https")
            with over_tls(namespace, namespace.ca_file) as client:
                assert receive_with_sdk(client, "orders") == ["x"]

    def test_allow_plaintext_serves_connections_without_tls(self) -> None:
        with LocalNamespace(host=ANY, allow_plaintext=True) as namespace:
            namespace.create_queue("orders")
            assert "UseDevelopmentEmulator=true" in namespace.connection_string

            self.send(namespace, tls=False)
            round_trip_of = http_get(namespace, "orders?api-version=2021-05")
            assert b"<QueueDescription" in round_trip_of

    def test_certificate_is_valid_for_the_host_names(self, tmp_path: Path) -> None:
        with LocalNamespace(
            folder=tmp_path, host="127.0.0.2", host_names=["bus.example"]
        ) as namespace:
            context = ssl.create_default_context(cafile=namespace.ca_file)
            for name in ("127.0.0.1", "localhost", "bus.example"):
                with (
                    socket.create_connection(("127.0.0.2", namespace.port), 20) as sock,
                    context.wrap_socket(sock, server_hostname=name) as tls,
                ):
                    assert tls.version() is not None


def test_port_in_use_is_reported(namespace: LocalNamespace) -> None:
    with pytest.raises(StateError, match="in use"):
        LocalNamespace(port=namespace.port).start()


def test_sdk_client_that_cannot_connect_raises_an_sdk_error() -> None:
    with LocalNamespace(host=ANY) as namespace:
        plain = namespace.connection_string + "UseDevelopmentEmulator=true;"
        with (
            ServiceBusClient.from_connection_string(plain, **QUICK) as client,
            pytest.raises(ServiceBusError),
        ):
            send_with_sdk(client, "orders", "never")
