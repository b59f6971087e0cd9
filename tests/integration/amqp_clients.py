"""Options and helpers for tests of our own AMQP client against a server or a scripted peer."""

import select
from collections.abc import Callable
from typing import Any

from examples.engine.memory_server import MemoryServer
from pairbus.amqp.client import Client, ClientOptions
from tests.integration.raw_peer import RawPeer

Connect = Callable[..., Client]
"""The type of the fixture `connect`."""


def options_for(peer: MemoryServer | RawPeer, **changes: Any) -> ClientOptions:
    """Return options without TLS and with short timeouts."""
    options = {
        "host": "127.0.0.1",
        "port": peer.port,
        "tls": False,
        "connect_timeout_s": 5,
        "operation_timeout_s": 5,
    }
    return ClientOptions(**(options | changes))


def wait_for_input(client: Client) -> None:
    """Wait until the client's socket has data that the client has not read yet."""
    assert client._transport is not None
    readable, _, _ = select.select([client._transport._sock], [], [], 20)
    assert readable


def set_server_attribute(server: MemoryServer, name: str, value: Any) -> None:
    """Set an attribute of a running server in its thread."""
    server.call(lambda: setattr(server, name, value))
