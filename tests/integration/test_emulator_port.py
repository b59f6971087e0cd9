"""A namespace keeps its port: while it is stopped, and in its folder."""

import socket
import sys
from pathlib import Path

import pytest

from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.amqp.sections import Message
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import ConfigurationError, StateError


@pytest.mark.skipif(
    sys.platform != "linux", reason="outside Linux, the port of a stopped namespace is not reserved"
)
def test_port_of_a_stopped_namespace_stays_reserved() -> None:
    namespace = LocalNamespace()
    try:
        namespace.start()
        namespace.create_queue("q")
        port = namespace.port
        for _ in range(3):
            namespace.stop()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
            namespace.start()
            assert namespace.port == port
            options = ClientOptions.from_connection_string(namespace.connection_string)
            with Client(options) as client:
                Sender(client, "q").send(Message.build(data=b"hello").encode())
    finally:
        namespace.close()

    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()


@pytest.mark.rule("N6")
def test_folder_keeps_the_port_until_another_one_is_given(tmp_path: Path) -> None:
    ports = []
    for port in (0, 0, free_port(), 0):
        with LocalNamespace(folder=tmp_path, port=port) as namespace:
            ports.append(namespace.port)

    assert ports[0] == ports[1]
    assert ports[2] == ports[3] != ports[0]


@pytest.mark.parametrize("content", [b"", b"\xff", b"x", b"65536", b"9" * 5000])
def test_damaged_port_file_is_ignored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "port").write_bytes(content)

    assert LocalNamespace(folder=tmp_path).port == 0


def test_port_of_the_folder_that_is_in_use_is_reported_with_the_folder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (tmp_path / "port").write_text(f"{port}\n")
        with pytest.raises(
            StateError, match=f":{port} is in use .* was the address of .*{tmp_path}"
        ):
            LocalNamespace(folder=tmp_path).start()


def test_port_in_use_is_reported_with_its_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        namespace = LocalNamespace(port=port)
        with pytest.raises(StateError, match=f"{port} is in use by another program"):
            namespace.start()
        namespace.close()


def test_address_of_another_machine_is_reported() -> None:
    namespace = LocalNamespace(host="192.0.2.1")
    with pytest.raises(ConfigurationError, match=r"Could not listen on 192\.0\.2\.1:0: Cannot"):
        namespace.start()
    namespace.close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
