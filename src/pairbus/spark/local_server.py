"""Requests from processes of the same user on this machine, over a Unix socket."""

import contextlib
import threading
from collections.abc import Callable
from multiprocessing.connection import Client, Listener
from pathlib import Path


class LocalServer:
    """Answers requests one after the other, in a thread, until it is closed."""

    def __init__(self, path: Path, answer: Callable[[bytes], bytes], *, timeout_s: float) -> None:
        """The folder of `path` belongs to the user alone. `timeout_s` is the longest wait for a
        request after its process has connected."""
        self.address = str(path)
        self._answer = answer
        self._timeout_s = timeout_s
        self._listener = Listener(self.address, family="AF_UNIX")
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pairbus {path.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        with contextlib.suppress(OSError):  # wakes the thread
            Client(self.address, family="AF_UNIX").close()
        self._thread.join(self._timeout_s)
        self._listener.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(OSError, EOFError), self._listener.accept() as connection:
                if not self._closed.is_set() and connection.poll(self._timeout_s):
                    connection.send_bytes(self._answer(connection.recv_bytes()))


def request(address: str, payload: bytes, *, timeout_s: float) -> bytes:
    """Return the answer of the server to a request. Raises OSError if there is none."""
    try:
        with Client(address, family="AF_UNIX") as connection:
            connection.send_bytes(payload)
            if not connection.poll(timeout_s):
                raise TimeoutError(f"no answer within {timeout_s:g} s")
            return connection.recv_bytes()
    except EOFError as exc:
        raise ConnectionResetError("the server closed the connection") from exc
