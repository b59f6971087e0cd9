"""Fixtures of the integration tests: AMQP servers, peers and clients; the SDK in a namespace;
pairings of both flavours."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from examples.engine.memory_server import MemoryServer
from pairbus.amqp.client import Client, Receiver, Sender
from pairbus.emulator.namespace import LocalNamespace
from pairbus.emulator.tiers import NamespaceTier
from pairbus.pairing import console_schedule
from pairbus.spark import connections
from tests.garbage import freeze_objects
from tests.integration.amqp_clients import Connect, options_for
from tests.integration.backlog_queue import BacklogQueue
from tests.integration.clocks import Clock
from tests.integration.console_server import ConsoleServer
from tests.integration.deliveries import Deliveries
from tests.integration.emulator_clients import client_of
from tests.integration.pairs import LISTENS, SENDS, Make, Pair, gather_all
from tests.integration.raw_peer import RawPeer, Script
from tests.integration.reporting_pairs import Reporting, ReportingPair
from tests.integration.sdk_flavours import FLAVOURS, Flavour
from tests.interop.server_fixtures import server, start_server, tls_files, watch
from tests.sdk_sleeps import short_sleeps
from tests.tiers import TEST_TIER

__all__ = ["freeze_objects", "server", "short_sleeps", "start_server", "tls_files", "watch"]


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
def tier() -> NamespaceTier:
    """The tier of the namespaces of the module."""
    return TEST_TIER


@pytest.fixture(scope="module")
def namespace(tier: NamespaceTier) -> Iterator[LocalNamespace]:
    with LocalNamespace("tests", tier=tier) as namespace:
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
def backlog(namespace: LocalNamespace) -> Iterator[BacklogQueue]:
    """A new backlog queue. The namespace also has the destinations: only the queues matter."""
    yield BacklogQueue(namespace)
    namespace.clear_faults()
    connections.close_all()


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
async def own_sdk(
    clock: Clock, tier: NamespaceTier, request: pytest.FixtureRequest
) -> AsyncIterator[Flavour]:
    """The sync and the async SDK in turn, in a namespace for one test, which can move its clock."""
    with LocalNamespace("own", now_ms=clock.now_ms, tier=tier) as namespace:
        flavour = Flavour(request.param, namespace)
        yield flavour
        await flavour.close()


# Consoles.


@pytest.fixture
def start_console() -> Iterator[Callable[..., ConsoleServer]]:
    """Start servers that take reports of senders, with the arguments of `ConsoleServer`."""
    with ExitStack() as stack:

        def start(*args: Any, **options: Any) -> ConsoleServer:
            return stack.enter_context(closing(ConsoleServer(*args, **options)))

        yield start


@pytest.fixture
def quick_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let senders report often, and try again soon after a failure."""
    for name, seconds in (
        ("INTERVAL_S", 0.2),
        ("CHANGE_GAP_S", 0.02),
        ("FIRST_PAUSE_S", 0.05),
        ("MAX_PAUSE_S", 0.1),
    ):
        monkeypatch.setattr(console_schedule, name, seconds)


@pytest_asyncio.fixture
async def reporting_pair(flavour: str) -> AsyncIterator[Reporting]:
    """Make pairings that report to a console."""
    pairs: list[ReportingPair] = []

    async def make(**options: Any) -> ReportingPair:
        pairs.append(ReportingPair(flavour))
        return await pairs[-1].start(**options)

    yield make
    for pair in pairs:
        await pair.close()
        await pair.close_clients()


# Pairings.


@pytest.fixture(scope="module")
def patches() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patches:
        yield patches


@pytest.fixture(scope="module")
def namespaces(
    flavour: str, tier: NamespaceTier
) -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    """A primary and a secondary, shared by the tests of a module with one flavour."""
    rules = (LISTENS, SENDS)
    with (
        LocalNamespace("first", rules=rules, trust_bearer_tokens=True, tier=tier) as primary,
        LocalNamespace("second", rules=rules, trust_bearer_tokens=True, tier=tier) as secondary,
    ):
        yield primary, secondary
    gc.collect()  # sockets of the SDK, whose warnings other test modules do not ignore


@asynccontextmanager
async def pairings(
    flavour: str, primary: LocalNamespace, secondary: LocalNamespace
) -> AsyncIterator[Make]:
    """Yield a function that makes pairings. Afterwards they are closed, and the namespaces are
    started and have no faults."""
    pairs: list[Pair] = []

    async def make(*, start: bool = True, **options: Any) -> Pair:
        pairs.append(Pair(flavour, primary, secondary))
        return await pairs[-1].start(**options) if start else pairs[-1]

    yield make
    for namespace in (primary, secondary):
        namespace.start()
        namespace.clear_faults()
    await gather_all(pair.clean_up() for pair in pairs)
    gc.collect()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _threads() -> None:
    """Let the event loop of the module make many calls of the sync SDK at a time."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(64))


@pytest_asyncio.fixture(loop_scope="module")
async def make(
    flavour: str, namespaces: tuple[LocalNamespace, LocalNamespace], _threads: None
) -> AsyncIterator[Make]:
    """Makes pairings for one test, which needs the event loop of the module."""
    async with pairings(flavour, *namespaces) as make:
        yield make


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(
    flavour: str, namespaces: tuple[LocalNamespace, LocalNamespace], _threads: None
) -> AsyncIterator[Pair]:
    """A pairing of the module, with one backlog queue. Its paths stay in failover."""
    async with pairings(flavour, *namespaces) as make:
        yield await make(
            backlog_queue_count=1,
            backlog_cool_down=timedelta(),  # the tests share the queue
            ping_primary_interval=timedelta(minutes=30),
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def healthy(pair: Pair) -> Any:
    """A sender of the module's pairing whose path is healthy."""
    return pair.sender(pair.queue())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def failed(pair: Pair) -> Any:
    """A sender of the module's pairing whose path is in failover."""
    sender = pair.sender(pair.queue())
    await pair.fail_over(sender)
    pair.new_in_backlog()
    return sender


@pytest.fixture(scope="module")
def deliveries(patches: pytest.MonkeyPatch) -> Deliveries:
    return Deliveries(patches)
