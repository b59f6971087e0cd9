"""Fixtures of the integration tests: AMQP servers, peers and clients; the SDK in a namespace."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio

from examples.engine.memory_server import MemoryServer
from pairbus.amqp.client import Client, Receiver, Sender
from pairbus.emulator.namespace import LocalNamespace
from tests.integration.amqp_clients import Connect, options_for
from tests.integration.clocks import Clock
from tests.integration.emulator_clients import client_of
from tests.integration.raw_peer import RawPeer, Script
from tests.integration.sdk_flavours import FLAVOURS, Flavour
from tests.interop.server_fixtures import server, start_server, tls_files, watch

__all__ = ["server", "start_server", "tls_files", "watch"]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Create clients of our own, which are closed after the test."""
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
def sender(server: MemoryServer, connect: Connect) -> Sender:
    """Our sender to `orders` of the server, not connected yet."""
    return Sender(connect(server), "orders")


@pytest.fixture
def receiver(server: MemoryServer, connect: Connect) -> Receiver:
    """Our receiver of `orders` of the server, not connected yet."""
    return Receiver(connect(server), "orders")


@pytest.fixture
def raw_peer() -> Iterator[Callable[[Script], RawPeer]]:
    """Start peers that follow a script."""
    peers = []

    def start(script: Script) -> RawPeer:
        peer = RawPeer(script)
        peers.append(peer)
        return peer

    yield start
    for peer in peers:
        peer.close()


@pytest.fixture(scope="module")
def collect_sockets() -> Iterator[None]:
    """Collect sockets of the SDK before a module that does not ignore their warnings."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace("tests") as namespace:
        yield namespace


@pytest.fixture
def queue_namespace(namespace: LocalNamespace) -> Iterator[LocalNamespace]:
    """The namespace of the module, reset, with the empty queues `q` and `other`."""
    namespace.reset()
    namespace.create_queue("q")
    namespace.create_queue("other")
    yield namespace
    namespace.clear_faults()


@pytest.fixture
def client(queue_namespace: LocalNamespace) -> Iterator[Client]:
    with client_of(queue_namespace) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def flavours(namespace: LocalNamespace) -> AsyncIterator[dict[str, Flavour]]:
    made = {name: Flavour(name, namespace) for name in FLAVOURS}
    yield made
    await asyncio.gather(*(item.close() for item in made.values()))


@pytest_asyncio.fixture(loop_scope="module", params=list(FLAVOURS))
async def sdk(
    flavours: dict[str, Flavour], request: pytest.FixtureRequest
) -> AsyncIterator[Flavour]:
    """The sync and the async SDK in turn, in the namespace of the module."""
    yield flavours[request.param]
    flavours[request.param].close_links()


@pytest.fixture
def clock() -> Clock:
    return Clock(time.time)


@pytest_asyncio.fixture(loop_scope="module", params=list(FLAVOURS))
async def own_sdk(clock: Clock, request: pytest.FixtureRequest) -> AsyncIterator[Flavour]:
    """The sync and the async SDK in turn, in a namespace for one test, which can move its clock."""
    with LocalNamespace("own", now_ms=clock.now_ms) as namespace:
        flavour = Flavour(request.param, namespace)
        yield flavour
        await flavour.close()
