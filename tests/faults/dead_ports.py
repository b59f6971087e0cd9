"""Ports that refuse or never accept connections."""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from tests.faults.namespace_process import Namespace


@dataclass(frozen=True)
class UnservedPort:
    """A port at which no namespace listens."""

    namespace: Namespace
    port: int

    @property
    def ca_file(self) -> str:
        return self.namespace.ca_file

    @property
    def connection_string(self) -> str:
        return self.namespace.connection_string.replace(f":{self.namespace.port}", f":{self.port}")


@contextlib.contextmanager
def dead_port() -> Iterator[int]:
    """Yield a port that refuses connections."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """Yield a port whose connections are never accepted, because its backlog is full."""
    with socket.socket() as listener, contextlib.ExitStack() as pending:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(4):
            connection = pending.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
        with socket.socket() as probe:
            probe.settimeout(0.5)
            try:
                probe.connect(("127.0.0.1", port))
            except TimeoutError:
                pass
            else:
                raise AssertionError("the backlog is not full")
        yield port
