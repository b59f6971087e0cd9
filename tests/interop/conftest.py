"""Fixtures of the interoperability tests: peers as clients and as servers, and our server.

A peer that is missing makes its tests fail, not skip: its adapter is imported here.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from examples.engine.memory_server import MemoryServer
from pairbus.amqp.client import Client, ClientOptions
from tests.garbage import freeze_objects
from tests.interop.limitations import peers_with
from tests.interop.peers import DEADLINE_S, ConnectOptions, PeerClient, PeerServer, ServerOptions
from tests.interop.proton_client import ProtonClient
from tests.interop.proton_server import ProtonServer
from tests.interop.rhea_client import RheaClient
from tests.interop.rhea_server import RheaServer
from tests.interop.sdk_client import SdkAioClient, SdkClient
from tests.interop.server_fixtures import server, start_server, tls_files, watch
from tests.sdk_sleeps import short_sleeps

__all__ = ["freeze_objects", "server", "short_sleeps", "start_server", "tls_files", "watch"]

CLIENTS: dict[str, Callable[[int, ConnectOptions], Any]] = {
    "proton": ProtonClient,
    "rhea": RheaClient,
    "sdk": SdkClient,
    "sdk-aio": SdkAioClient,
}
SERVERS: dict[str, Callable[[ServerOptions], Any]] = {"proton": ProtonServer, "rhea": RheaServer}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with all peers that have the capabilities it needs."""
    capabilities = getattr(metafunc.function, "needs", ())
    for fixture, peers in (("connect", CLIENTS), ("start_peer", SERVERS)):
        if fixture in metafunc.fixturenames and metafunc.module.__name__.startswith(
            "tests.interop."
        ):
            names = peers_with(list(peers), capabilities)
            metafunc.parametrize(fixture, names, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The SDK does not close its sockets when a connection fails."""
    for item in items:
        if "[sdk" in item.name and "interop" in item.nodeid:
            for warning in ("unclosed <s", "unclosed transport", "loop is closed"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{warning}:ResourceWarning"))


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., PeerClient]]:
    """Connects a peer to a server. The peers are closed after the test."""
    with ExitStack() as stack:

        def connect(server: MemoryServer, **options: Any) -> PeerClient:
            client = CLIENTS[request.param](server.port, ConnectOptions(**options))
            stack.callback(client.close)
            return client

        yield connect
    if request.param.startswith("sdk"):
        gc.collect()  # Its unclosed sockets must not be reported for another test.


@pytest.fixture
def start_peer(request: pytest.FixtureRequest) -> Iterator[Callable[..., PeerServer]]:
    """Starts a peer as a server. The servers are stopped after the test."""
    with ExitStack() as stack:

        def start(**options: Any) -> PeerServer:
            server = SERVERS[request.param](ServerOptions(**options))
            stack.callback(server.close)
            return server

        yield start


@pytest.fixture
def open_client() -> Iterator[Callable[..., Client]]:
    """Creates clients of ours for a server. They are closed after the test."""
    with ExitStack() as stack:

        def open_client(peer: PeerServer, **options: Any) -> Client:
            fields = {"host": "localhost", "endpoint_host": "127.0.0.1", "tls": False}
            timeouts = {"connect_timeout_s": DEADLINE_S, "operation_timeout_s": DEADLINE_S}
            client = Client(ClientOptions(port=peer.port, **(fields | timeouts | options)))
            stack.callback(client.close)
            return client

        yield open_client


@pytest.fixture
def peer(start_peer: Callable[..., PeerServer]) -> PeerServer:
    """A peer as a server with default options."""
    return start_peer()
