"""Connections to a console that send bytes of their own."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.integration.console.sites import Site


@contextmanager
def raw(site: Site, data: bytes, *, receive_buffer: int | None = None) -> Iterator[socket.socket]:
    """Connect without HTTP, and send some bytes."""
    with closing(socket.socket()) as connection:
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", site.port))
        connection.sendall(data)
        yield connection


def is_closed(connection: socket.socket, timeout_s: float = 30.0) -> bool:
    connection.settimeout(timeout_s)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
