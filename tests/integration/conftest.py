"""What the tests of our client share: servers on our engine, peers by hand, clients, a clock."""

import select
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from examples.engine.memory_server import MemoryServer
from pairbus.amqp.client import Client, ClientOptions
from tests.integration.raw_peer import RawPeer, Script
from tests.interop.server_fixtures import server, start_server, tls_files, watch

__all__ = ["server", "start_server", "tls_files", "watch"]

Connect = Callable[..., Client]


class Clock:
    """The time, which a test can let pass."""

    def __init__(self, source: Callable[[], float]) -> None:
        self._source = source
        self.ahead = 0.0

    def __call__(self) -> float:
        return self._source() + self.ahead


def options_for(peer: MemoryServer | RawPeer, **changes: Any) -> ClientOptions:
    """To a server or a peer, without TLS and with little patience."""
    options = {
        "host": "127.0.0.1",
        "port": peer.port,
        "tls": False,
        "connect_timeout_s": 5,
        "operation_timeout_s": 5,
    }
    return ClientOptions(**(options | changes))


def wait_for_input(client: Client) -> None:
    """Until something has reached the client's socket that it has not read yet."""
    assert client._transport is not None
    readable, _, _ = select.select([client._transport._sock], [], [], 20)
    assert readable


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes clients, which are closed when the test is over."""
    clients = []

    def connect(
        peer: MemoryServer | RawPeer,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        **changes: Any,
    ) -> Client:
        client = Client(options_for(peer, **changes), clock=clock, wall_clock=wall_clock)
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close(timeout_s=0.2)


@pytest.fixture
def raw_peer() -> Iterator[Callable[[Script], RawPeer]]:
    """Starts peers that follow a script."""
    peers = []

    def start(script: Script) -> RawPeer:
        peer = RawPeer(script)
        peers.append(peer)
        return peer

    yield start
    for peer in peers:
        peer.close()
