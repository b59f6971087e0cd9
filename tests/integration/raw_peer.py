"""Peers that misbehave: a listening socket, and a script for each connection."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from pairbus.amqp.connection import Connection
from pairbus.amqp.sasl import SaslServer
from pairbus.amqp.settings import ConnectionSettings

DEADLINE_S = 20.0
Script = Callable[[socket.socket, "RawPeer"], None]


class RawPeer:
    """Runs the script for each connection in a thread, until it is closed.

    A script sets `happened` once its fault occurred, so that a test can assert that it did.
    `received` holds the data that the client sent.
    """

    def __init__(self, script: Script) -> None:
        self.happened = threading.Event()
        self.over = threading.Event()
        self.received = bytearray()
        self._script = script
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def close(self) -> None:
        self.over.set()
        # Closing a socket does not wake a thread that waits in accept or recv.
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), "a script did not end"

    def keep_open(self) -> None:
        """Keep the connection open without reading or writing."""
        self.happened.set()
        self.over.wait(DEADLINE_S)

    def read(self, sock: socket.socket) -> bytes:
        """Return the next data of the client, or b"" if it closed the connection."""
        try:
            data = sock.recv(65536)
        except OSError:
            return b""
        self.received += data
        return data

    def _accept(self) -> None:
        while not self.over.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            self._start(lambda sock=sock: self._run(sock))

    def _run(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            self._script(sock, self)

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=f"raw-peer-{self.port}", daemon=True)
        self._threads.append(thread)
        thread.start()


def serve_until(sock: socket.socket, peer: RawPeer, until: type | None) -> Connection:
    """Serve the client until an event of this type, and write the answers to it.

    With None, read and write nothing.
    """
    engine = Connection(
        ConnectionSettings(container_id="raw"), sasl=SaslServer.anonymous(), now=time.monotonic()
    )
    while until is not None:
        data = peer.read(sock)
        events = engine.receive(data, time.monotonic())
        sock.sendall(engine.data_to_send())
        if not data or any(isinstance(event, until) for event in events):
            break
    return engine


def silent_from(until: type | None) -> Script:
    """Return a script that stops reading and writing after such an event."""

    def script(sock: socket.socket, peer: RawPeer) -> None:
        serve_until(sock, peer, until)
        peer.keep_open()

    return script


def send_garbage_after(garbage: bytes, after: type | None) -> Script:
    """Return a script that sends garbage after such an event, and stays connected."""

    def script(sock: socket.socket, peer: RawPeer) -> None:
        serve_until(sock, peer, after)
        sock.sendall(garbage)
        peer.keep_open()

    return script
