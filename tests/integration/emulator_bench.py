"""Clients, sockets and helpers for tests of a namespace on real sockets."""

import logging
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus.amqp.client import Client, ClientOptions
from pairbus.emulator.namespace import LocalNamespace

DEADLINE_S = 20.0
QUICK = {"retry_total": 0, "retry_backoff_factor": 0.02, "retry_backoff_max": 1}
"""Options of an SDK client that raises without retries."""
BRISK = {"keep_alive": 0, "socket_timeout": 0.05}
"""Options of an SDK sender or receiver that closes quickly."""


def wait_until(condition: Callable[[], Any], description: str) -> Any:
    """Wait until a condition is true. Fails at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not (result := condition()):
        assert time.monotonic() < deadline, f"timed out for {description}"
        time.sleep(0.01)
    return result


def sdk(namespace: LocalNamespace, connection_string: str | None = None) -> ServiceBusClient:
    text = namespace.connection_string if connection_string is None else connection_string
    return ServiceBusClient.from_connection_string(text, **QUICK)


def send_with_sdk(client: ServiceBusClient, path: str, body: str) -> None:
    with client.get_queue_sender(path, **BRISK) as sender:
        sender.send_messages(ServiceBusMessage(body))


def receive_with_sdk(client: ServiceBusClient, path: str) -> list[str]:
    """Receive and complete one message, if there is one."""
    with client.get_queue_receiver(path, prefetch_count=1, **BRISK) as receiver:
        messages = receiver.receive_messages(1, max_wait_time=10)
        for message in messages:
            receiver.complete_message(message)
    return [str(message) for message in messages]


def round_trip(namespace: LocalNamespace, path: str = "orders") -> None:
    """Send and receive a message with a healthy client."""
    with sdk(namespace) as client:
        send_with_sdk(client, path, "are you well?")
        assert receive_with_sdk(client, path) == ["are you well?"]


def ours(namespace: LocalNamespace, **options: Any) -> Client:
    """Return our own client with a short timeout."""
    bounds = {"connect_timeout_s": 10, "operation_timeout_s": 10}
    return Client(
        ClientOptions.from_connection_string(namespace.connection_string, **(bounds | options))
    )


def connect(namespace: LocalNamespace) -> socket.socket:
    return socket.create_connection(("127.0.0.1", namespace.port), DEADLINE_S)


def read_until_closed(sock: socket.socket) -> bytes:
    """Read until the namespace closes the connection, or time out."""
    received = b""
    try:
        while data := sock.recv(65536):
            received += data
    except (ConnectionResetError, BrokenPipeError):
        pass
    return received


def contents(namespace: LocalNamespace) -> dict[str, list[tuple[Any, ...]]]:
    """Return all stored data except the meter, which may count requests of a bad client."""
    namespace.call(lambda core: None)  # commit pending writes
    with _reading(namespace) as db:
        tables = dict.fromkeys(("message", "rule", "seen", "session_state"), "*")
        tables["entity"] = "id, path, kind, description"
        return {
            table: db.execute(f"SELECT {columns} FROM {table}").fetchall()
            for table, columns in tables.items()
        }


@contextmanager
def _reading(namespace: LocalNamespace) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(namespace.folder / "namespace.db")
    try:
        yield db
    finally:
        db.close()


def failures(records: list[logging.LogRecord]) -> list[str]:
    """Return the internal errors that the emulator logged."""
    return [
        record.getMessage()
        for record in records
        if record.exc_info is not None or record.name == "asyncio"
    ]
