"""A small HTTP server that takes reports of senders, as a console does, or misbehaves."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

DEADLINE_S = 60.0

GARBAGE = bytes(range(256)) * 8


@dataclass(frozen=True, slots=True)
class Request:
    """A request that the server read."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int
    """The number of its connection, counted from 1."""

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.body)
        return report


Behaviour = Callable[["ConsoleServer", socket.socket], None]
"""Answers a request. The connection is closed if it raises OSError."""


def response(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def answer(*commands: dict[str, Any]) -> Behaviour:
    """Accept the report, and answer with commands."""
    body = json.dumps({"commands": commands}).encode()
    return lambda server, sock: sock.sendall(response("200 OK", body))


def send(data: bytes) -> Behaviour:
    """Answer with bytes."""
    return lambda server, sock: sock.sendall(data)


def send_and_close(data: bytes) -> Behaviour:
    def behave(server: "ConsoleServer", sock: socket.socket) -> None:
        sock.sendall(data)
        raise ConnectionAbortedError

    return behave


def hang(server: "ConsoleServer", sock: socket.socket) -> None:
    """Do not answer until the server is closed."""
    server.over.wait(DEADLINE_S)


def repeat(begin: bytes, data: bytes, pause_s: float = 0.0) -> Behaviour:
    """Send the same bytes without end, until the client closes the connection."""

    def behave(server: "ConsoleServer", sock: socket.socket) -> None:
        sock.sendall(begin)
        try:
            while not server.over.wait(pause_s):
                sock.sendall(data)
        except OSError:
            server.abandoned.set()
            raise

    return behave


@dataclass
class ConsoleServer:
    """Answers each request with the current behaviour. `tls` holds its certificate; with
    `greeting`, that is called with each connection instead of a TLS handshake."""

    behaviour: Behaviour = field(default_factory=answer)
    tls: ssl.SSLContext | None = None
    greeting: Behaviour | None = None
    host: str = "127.0.0.1"
    port: int = 0

    def __post_init__(self) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.open_connections = 0
        self.in_flight = 0
        """The number of requests that are being answered."""
        self.over = threading.Event()
        self.abandoned = threading.Event()
        """Set when a client closed the connection during an answer that has no end."""
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((self.host, self.port))
        self.port = self._listener.getsockname()[1]
        self._start(self._accept)

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://localhost:{self.port}"

    @property
    def reports(self) -> list[dict[str, Any]]:
        return [request.report for request in list(self.requests)]

    def close(self) -> None:
        self.over.set()
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    def _start(self, work: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, name="console server", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.over.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(sock)
            self._start(self._serve, sock, self.connections)

    def _serve(self, sock: socket.socket, number: int) -> None:
        with self._counted("open_connections"), contextlib.suppress(OSError, ValueError):
            try:
                if self.greeting is not None:
                    self.greeting(self, sock)
                if self.tls is not None:
                    sock = self.tls.wrap_socket(sock, server_side=True)
                    self._sockets.append(sock)
                with sock.makefile("rb") as file:
                    while (request := read_request(file, number)) is not None:
                        self.requests.append(request)
                        with self._counted("in_flight"):
                            self.behaviour(self, sock)
            finally:
                sock.close()

    @contextlib.contextmanager
    def _counted(self, name: str) -> Iterator[None]:
        with self._lock:
            setattr(self, name, getattr(self, name) + 1)
        try:
            yield
        finally:
            with self._lock:
                setattr(self, name, getattr(self, name) - 1)


def read_request(file: Any, number: int) -> Request | None:
    """Return the next request of a connection, or None at its end."""
    line = file.readline().decode().strip()
    if not line:
        return None
    headers = {}
    while header := file.readline().decode().strip():
        name, _, value = header.partition(": ")
        headers[name.lower()] = value
    body = file.read(int(headers["content-length"]))
    return Request(line, headers, body, number)


OK = b"HTTP/1.1 200 OK\r\n"
DRIP_S = 0.05

FAULTS: dict[str, dict[str, Any]] = {
    "hangs": {"behaviour": hang},
    "hangs before it reads": {"greeting": hang},
    "closes the connection": {"behaviour": send_and_close(b"")},
    "closes the connection before it reads": {"greeting": send_and_close(b"")},
    "answers garbage": {"behaviour": send_and_close(GARBAGE)},
    "answers garbage before it reads": {"greeting": send(GARBAGE)},
    "answers a body that is not JSON": {"behaviour": send(response("200 OK", GARBAGE))},
    "answers JSON that is not an object": {"behaviour": send(response("200 OK", b"[1]"))},
    "answers deeply nested JSON": {"behaviour": send(response("200 OK", b"[" * 60_000))},
    "answers 500": {"behaviour": send(response("500 Internal Server Error", b"{}"))},
    "answers 503": {"behaviour": send(response("503 Busy", b"", "Retry-After: 999999"))},
    "answers 401": {"behaviour": send(response("401 Unauthorized", b"{}"))},
    "answers 404": {"behaviour": send(response("404 Not Found", b"<html>"))},
    "answers 204": {"behaviour": send(b"HTTP/1.1 204 No Content\r\n\r\n")},
    "ends in the middle of the body": {
        "behaviour": send_and_close(OK + b"Content-Length: 900\r\n\r\n{}")
    },
    "announces a huge body": {
        "behaviour": repeat(OK + b"Content-Length: 999999999999\r\n\r\n", b" " * 65_536)
    },
    "answers an endless body": {"behaviour": repeat(OK + b"\r\n", b" " * 65_536)},
    "answers endless chunks": {
        "behaviour": repeat(
            OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b" " * 4096 + b"\r\n"
        )
    },
    "answers endless headers": {"behaviour": repeat(OK, b"Name: value\r\n")},
    "answers an endless status line": {"behaviour": repeat(b"HTTP/1.1 200 ", b"x" * 65_536)},
    "answers endless interim responses": {
        "behaviour": repeat(b"", b"HTTP/1.1 100 Continue\r\n\r\n")
    },
    "sends a byte of the headers at a time": {"behaviour": repeat(OK + b"Name: ", b"x", DRIP_S)},
    "sends a byte of the body at a time": {
        "behaviour": repeat(OK + b"Content-Length: 9000\r\n\r\n", b" ", DRIP_S)
    },
}
"""Consoles that misbehave, as arguments of `ConsoleServer`."""
