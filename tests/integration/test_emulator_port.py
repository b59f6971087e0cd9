"""A stopped namespace keeps its port."""

import socket
import sys

import pytest

from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.amqp.sections import Message
from pairbus.emulator.namespace import LocalNamespace


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


def test_port_in_use_is_reported_with_its_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        namespace = LocalNamespace(port=port)
        with pytest.raises(OSError, match=f"in use.*{port}"):
            namespace.start()
        namespace.close()
