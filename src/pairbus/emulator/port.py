"""The TCP port of a namespace: reserved while nothing listens on it, and kept across restarts."""

import contextlib
import errno
import logging
import socket
import sys
from pathlib import Path

from pairbus.errors import ConfigurationError, StateError
from pairbus.servicebus.addresses import format_address

FILE_NAME = "port"
"""The file of a data folder that has the port on which the namespace listened last."""

logger = logging.getLogger(__name__)


class ReservedPort:
    """A port that the operating system gives to no other program between `reserve` and `close`.

    While nothing listens on it, connections are refused. A server that asks for this number (with
    `SO_REUSEADDR`) may listen. Outside Linux the port is not reserved; only its number is kept.

    With a `folder`, the number 0 stands for the port that the folder was last served on, if any.
    """

    def __init__(self, host: str, number: int = 0, *, folder: Path | None = None) -> None:
        self._file = None if folder is None else folder / FILE_NAME
        self._is_kept = number == 0
        self.number = number or _read_port(self._file)
        self._host = host
        self._socket: socket.socket | None = None

    def reserve(self) -> None:
        """Reserve the port, or any free one if the number is 0. Can be called again."""
        # Elsewhere a bound socket keeps the server from listening on the same port.
        if sys.platform != "linux" or self._socket is not None:
            return
        bound = socket.socket(self._family)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # the server that listens reports it with the reason
            bound.bind((self._host, self.number))
            self.number = bound.getsockname()[1]
            self._socket = bound
            return
        bound.close()

    def listen(self) -> socket.socket:
        """Reserve the port, listen on it, and write its number to the folder.

        Raises StateError if another program has the port, and ConfigurationError if this process
        cannot listen on it.
        """
        self.reserve()
        try:
            listening = socket.create_server((self._host, self.number), family=self._family)
        except OSError as exc:
            raise self._cannot_listen(exc) from exc
        self.number = listening.getsockname()[1]
        self._write_file()
        return listening

    def close(self) -> None:
        """Release the port. Can be called again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def _family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self._host else socket.AF_INET

    def _cannot_listen(self, exc: OSError) -> ConfigurationError | StateError:
        address = format_address(self._host, self.number)
        if exc.errno != errno.EADDRINUSE:
            reason = "unknown host" if isinstance(exc, socket.gaierror) else exc.strerror
            return ConfigurationError(
                f"Could not listen on {address}: {reason}. Choose another host or port."
            )
        if self._is_kept and self._file is not None:
            return StateError(
                f"{address} is in use by another program, and was the address of data folder"
                f" {self._file.parent}: stop that program, or choose another port."
            )
        return StateError(
            f"{address} is in use by another program: stop it, or choose another port."
        )

    def _write_file(self) -> None:
        if self._file is None or _read_port(self._file) == self.number:
            return
        try:
            self._file.write_text(f"{self.number}\n")
        except OSError as exc:
            logger.warning("The next start may use another port: %s", exc)


def _read_port(file: Path | None) -> int:
    """Return the number in a file, or 0 if there is none."""
    if file is None:
        return 0
    try:
        text = file.read_text().strip()
    except (OSError, ValueError):
        return 0
    return int(text) if text.isascii() and text.isdecimal() and int(text[:6]) <= 65535 else 0
