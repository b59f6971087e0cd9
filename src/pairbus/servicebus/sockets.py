"""Connecting a TCP socket within a deadline."""

import socket
from collections.abc import Callable

Clock = Callable[[], float]
"""Returns the time in seconds, such as `time.monotonic`."""


def connect_socket(host: str, port: int, deadline: float, clock: Clock) -> socket.socket:
    """Connect to the first address that answers. Each address gets an equal share of the time.

    Raises OSError, and TimeoutError at the deadline. Resolving the name of the host is not bounded.
    """
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    error: OSError = TimeoutError("the timeout expired")
    for tried, (family, socket_type, protocol, _, address) in enumerate(addresses):
        timeout = (deadline - clock()) / (len(addresses) - tried)
        if timeout <= 0:
            break
        sock = socket.socket(family, socket_type, protocol)
        try:
            sock.settimeout(timeout)
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as exc:
            sock.close()
            error = exc
    raise error
