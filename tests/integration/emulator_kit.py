"""Helpers for tests of a running emulator: clients, its HTTP API, and waiting."""

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender

from pairbus.amqp.client import Client, ClientOptions
from pairbus.amqp.sections import Message, Properties
from pairbus.emulator.namespace import LocalNamespace
from pairbus.servicebus.connection_strings import ConnectionString
from pairbus.servicebus.tokens import sign_token

DEADLINE_S = 20.0
BRISK = {"keep_alive": 0, "socket_timeout": 0.05}
"""Options of SDK senders and receivers that close quickly."""


def wait_until(condition: Callable[[], bool], description: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"timed out for {description}"
        time.sleep(0.01)


def client_of(namespace: LocalNamespace, **options: Any) -> Client:
    """Return our own client."""
    settings = {"operation_timeout_s": DEADLINE_S, **options}
    return Client(ClientOptions.from_connection_string(namespace.connection_string, **settings))


@contextmanager
def sdk_sender(
    namespace: LocalNamespace, path: str = "q", *, retries: int = 0
) -> Iterator[ServiceBusSender]:
    """Return a sender of the SDK with an open link."""
    with (
        ServiceBusClient.from_connection_string(
            namespace.connection_string,
            retry_total=retries,
            retry_backoff_factor=0.02,
            retry_backoff_max=1,
        ) as client,
        client.get_queue_sender(path, **BRISK) as sender,
    ):
        yield sender


def send(sender: ServiceBusSender, body: str = "x") -> None:
    sender.send_messages(ServiceBusMessage(body))


def payload(body: str = "x", **properties: Any) -> bytes:
    return Message.build(properties=Properties(**properties), data=body.encode()).encode()


def sized(size: int) -> bytes:
    """Return an encoded message of exactly this size."""
    body = size - len(Message.build(data=b"x" * 1000).encode()) + 1000
    message = Message.build(data=b"x" * body).encode()
    assert len(message) == size
    return message


def stored(namespace: LocalNamespace, path: str = "q") -> list[str]:
    """Return the bodies of the messages in a queue."""
    rests = namespace.call(lambda core: [m.rest for m in core.entities.get(path).queue.peek(0, 99)])
    return [Message.parse(rest).read_body()[1][0].decode() for rest in rests]


def ask(
    namespace: LocalNamespace, method: str, path: str, body: Any = None, *, key: str | None = None
) -> tuple[int, Any]:
    """Return the status and body of a request to the emulator's HTTP API."""
    parsed = ConnectionString.parse(namespace.connection_string)
    assert parsed.key_name is not None
    assert parsed.key is not None
    address = f"https://localhost:{namespace.port}"
    token = sign_token(
        address, parsed.key_name, parsed.key if key is None else key, int(time.time()) + 600
    )
    request = urllib.request.Request(
        f"{address}/$pairbus/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": token},
    )
    context = ssl.create_default_context(cafile=namespace.ca_file)
    try:
        with urllib.request.urlopen(request, context=context, timeout=DEADLINE_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as exc:
        with exc:
            text = exc.read()
        return exc.code, json.loads(text) if text.startswith((b"{", b"[")) else text.decode()
