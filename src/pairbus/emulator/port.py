"""A TCP port that stays reserved while nothing listens on it."""

import contextlib
import socket
import sys


class ReservedPort:
    """A port that the operating system gives to no other program between `reserve` and `close`.

    While nothing listens on it, connections are refused. A server that asks for this number (with
    `SO_REUSEADDR`) may listen. Outside Linux the port is not reserved; only its number is kept.
    """

    def __init__(self, host: str, number: int = 0) -> None:
        self.number = number
        self._host = host
        self._socket: socket.socket | None = None

    def reserve(self) -> None:
        """Reserve the port, or any free one if the number is 0. Can be called again."""
        # Elsewhere a bound socket keeps the server from listening on the same port.
        if sys.platform != "linux" or self._socket is not None:
            return
        bound = socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # the server that listens reports it with the reason
            bound.bind((self._host, self.number))
            self.number = bound.getsockname()[1]
            self._socket = bound
            return
        bound.close()

    def close(self) -> None:
        """Release the port. Can be called again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
