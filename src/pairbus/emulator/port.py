"""A port that stays ours while nobody listens on it."""

import contextlib
import socket
import sys


class HeldPort:
    """From `hold` to `close` nobody else is given the port. Connections are refused there, and
    whoever asks for this very number may listen. Where a port cannot be held it is a number."""

    def __init__(self, host: str, number: int = 0) -> None:
        self.number = number
        self._host = host
        self._socket: socket.socket | None = None

    def hold(self) -> None:
        """Take the port, a free one where none is named. Can be called again."""
        if sys.platform != "linux":  # elsewhere two sockets of one port get in each other's way
            return
        if self._socket is not None:
            return
        held = socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # whoever listens says why it cannot be had
            held.bind((self._host, self.number))
            self.number = held.getsockname()[1]
            self._socket = held
            return
        held.close()

    def close(self) -> None:
        """Give it up. Can be called again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
