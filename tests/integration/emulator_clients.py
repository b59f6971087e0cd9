"""Clients of a namespace: the sync SDK, our own, and plain sockets."""

import socket
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus.amqp.client import Client, ClientOptions
from pairbus.emulator.namespace import LocalNamespace

QUICK = {"retry_total": 0, "retry_backoff_factor": 0.02, "retry_backoff_max": 1}
"""Options of an SDK client that raises without retries."""
QUICK_CLOSE = {"keep_alive": 0, "socket_timeout": 0.05}
"""Options of an SDK sender or receiver that closes quickly."""
TIMEOUT_S = 20.0
"""The timeout of an operation of our own client, and of a plain socket."""


def client_of(namespace: LocalNamespace, **options: Any) -> Client:
    """Return our own client."""
    settings = {"operation_timeout_s": TIMEOUT_S, **options}
    return Client(ClientOptions.from_connection_string(namespace.connection_string, **settings))


def sdk_client(namespace: LocalNamespace, connection_string: str | None = None) -> ServiceBusClient:
    text = namespace.connection_string if connection_string is None else connection_string
    return ServiceBusClient.from_connection_string(text, **QUICK)


def send_with_sdk(client: ServiceBusClient, path: str, body: str) -> None:
    with client.get_queue_sender(path, **QUICK_CLOSE) as sender:
        sender.send_messages(ServiceBusMessage(body))


def receive_with_sdk(client: ServiceBusClient, path: str) -> list[str]:
    """Receive and complete one message, if there is one."""
    with client.get_queue_receiver(path, prefetch_count=1, **QUICK_CLOSE) as receiver:
        messages = receiver.receive_messages(1, max_wait_time=10)
        for message in messages:
            receiver.complete_message(message)
    return [str(message) for message in messages]


def round_trip(namespace: LocalNamespace, path: str = "orders") -> None:
    """Send and receive a message with a healthy client."""
    with sdk_client(namespace) as client:
        send_with_sdk(client, path, "are you well?")
        assert receive_with_sdk(client, path) == ["are you well?"]


def open_socket(namespace: LocalNamespace) -> socket.socket:
    return socket.create_connection(("127.0.0.1", namespace.port), TIMEOUT_S)


def read_until_closed(sock: socket.socket) -> bytes:
    """Read until the namespace closes the connection, or time out."""
    received = b""
    try:
        while data := sock.recv(65536):
            received += data
    except (ConnectionResetError, BrokenPipeError):
        pass
    return received
