"""Fixtures for tests against a server on our engine, for tests of peers and of our client."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from examples.engine.frame_log import FrameLog
from examples.engine.memory_server import MemoryServer
from tests.interop.tls import TlsFiles, make_tls_files


@pytest.fixture
def start_server() -> Iterator[Callable[..., MemoryServer]]:
    """Starts a server on our engine.

    A test that expects a peer to violate the protocol clears `violations` after it has checked
    them: violations and failures that are left fail the test.
    """
    servers = []
    with ExitStack() as stack:

        def start(**options: object) -> MemoryServer:
            server = stack.enter_context(MemoryServer(**options))
            servers.append(server)
            return server

        yield start
    for server in servers:
        assert server.failures == [], server.failures
        assert server.violations == [], server.violations


@pytest.fixture
def server(start_server: Callable[..., MemoryServer]) -> MemoryServer:
    """A server with default options."""
    return start_server()


@pytest.fixture
def watch() -> Callable[[MemoryServer], FrameLog]:
    """Records the frames of a server."""

    def watch(server: MemoryServer) -> FrameLog:
        log = FrameLog()
        server.call(lambda: setattr(server, "on_data", log))
        return log

    return watch


@pytest.fixture(scope="session")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """Files for TLS on localhost and 127.0.0.1."""
    return make_tls_files(tmp_path_factory.mktemp("tls"))
