"""A server that stands in for the console: the real page, with snapshots that a test chooses.

The tests of the page use it to show states that a real outage reaches rarely or slowly. It keeps
to the interface of the real server, its headers included, and records what the page requests.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pairbus.console.headers import SECURITY_HEADERS
from tests.browser.snapshots import Snapshot
from tests.browser.states import history

STATIC = Path(__file__).resolve().parents[2] / "src" / "pairbus" / "console" / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
TOKENS = {"viewer-token": "viewer", "operator-token": "operator"}
CSRF = "csrf-value"


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the page for an action."""

    method: str
    path: str
    values: dict[str, Any]
    confirm: bool
    csrf: str | None


Answer = Callable[[Request], tuple[int, dict[str, Any]]]


def answer_action(request: Request) -> tuple[int, dict[str, Any]]:
    if not request.confirm:
        return 200, {"text": f"Will do: {request.path}", "cost": "12 operations, 0.0000 USD"}
    return 200, {"text": f"Done: {request.path}"}


@dataclass
class StandIn:
    """The server. It listens between `start` and `stop`, always on the same port."""

    snapshot: Snapshot
    needs_login: bool = False
    answer: Answer = answer_action
    history: dict[str, list[Any]] | None = None
    """The history, or None for one that ends with the snapshot."""
    requests: list[Request] = field(default_factory=list)
    streams: int = 0
    """The number of open streams."""
    histories: int = 0
    """The number of histories that were sent."""

    def __post_init__(self) -> None:
        self.changed = threading.Condition()
        self.sessions: dict[str, str] = {}
        self._server: ThreadingHTTPServer | None = None
        self.connections: set[socket.socket] = set()
        self._port = 0
        self._thaw = threading.Event()
        self._thaw.set()
        self.version = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"console": self})
        ThreadingHTTPServer.daemon_threads = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Close the port and all connections, as at the end of the process."""
        if self._server is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._server = None
        with self.changed:
            for connection in self.connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self.changed.notify_all()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Answer nothing, and keep all connections open, like a process that was suspended."""
        self._thaw.clear()
        try:
            yield
        finally:
            self._thaw.set()

    def wait_until_thawed(self) -> None:
        self._thaw.wait()

    @property
    def is_running(self) -> bool:
        return self._server is not None

    def show(self, snapshot: Snapshot) -> None:
        """Send a snapshot to all pages."""
        with self.changed:
            self.snapshot = snapshot
            self.version += 1
            self.changed.notify_all()

    def confirmed(self) -> list[Request]:
        """Return the requests that were confirmed, so that the real console would act."""
        with self.changed:
            return [request for request in self.requests if request.confirm]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    console: StandIn

    def setup(self) -> None:
        super().setup()
        with self.console.changed:
            self.console.connections.add(self.connection)

    def finish(self) -> None:
        with self.console.changed:
            self.console.connections.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self.console.wait_until_thawed()
        url = urlsplit(self.path)
        if url.path == "/" or url.path.startswith("/static/"):
            self._send_file(url.path.removeprefix("/static/") if url.path != "/" else "index.html")
        elif url.path == "/healthz":
            self._send(200, {})
        elif (role := self._role()) is None:
            self._send(401, {"error": "Log in first."})
        elif url.path == "/api/session":
            expires = "2026-11-18T17:00:00.000Z"
            self._send(200, {"role": role, "csrf": CSRF, "expires_at": expires})
        elif url.path == "/api/state":
            self._send(200, self.console.snapshot | {"role": role})
        elif url.path == "/api/history":
            seconds = int(dict(parse_qsl(url.query))["since"])
            self._send(200, self.console.history or history(self.console.snapshot, seconds))
            with self.console.changed:
                self.console.histories += 1
        elif url.path == "/api/stream":
            self._stream(role)
        else:
            self._act("GET", {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path == "/login":
            self._log_in(body["token"])
        elif self.path == "/logout":
            self.console.sessions.clear()
            self._send(200, {})
        else:
            self._act("POST", body)

    def do_DELETE(self) -> None:
        self._act("DELETE", {})

    def _act(self, method: str, body: dict[str, Any]) -> None:
        if self._role() is None:
            self._send(401, {"error": "Log in first."})
            return
        url = urlsplit(self.path)
        values = dict(parse_qsl(url.query)) | body
        confirm = values.pop("confirm", None) in (True, "1")
        csrf = self.headers.get("X-Pairbus-Csrf")
        request = Request(method, url.path, values, confirm, csrf)
        with self.console.changed:
            self.console.requests.append(request)
        self._send(*self.console.answer(request))

    def _log_in(self, token: str) -> None:
        if token not in TOKENS:
            self._send(401, {"error": "The token is not valid or has expired."})
            return
        cookie = f"session-{len(self.console.sessions)}"
        self.console.sessions[cookie] = TOKENS[token]
        header = f"session={cookie}; HttpOnly; SameSite=Strict; Path=/"
        self._send(200, {}, {"Set-Cookie": header})

    def _role(self) -> str | None:
        if not self.console.needs_login:
            return str(self.console.snapshot["role"])
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get("session")
        return None if cookie is None else self.console.sessions.get(cookie.value)

    def _stream(self, role: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        console, sent = self.console, -1
        with console.changed:
            console.streams += 1
        try:
            while console.is_running:
                console.wait_until_thawed()
                with console.changed:
                    version, snapshot = console.version, console.snapshot | {"role": role}
                if version != sent:
                    self.wfile.write(f"event: state\ndata: {json.dumps(snapshot)}\n\n".encode())
                    sent = version
                else:
                    self.wfile.write(b": keep-alive\n\n")
                with console.changed:
                    if console.version == sent and console.is_running:
                        console.changed.wait(0.5)
        finally:
            with console.changed:
                console.streams -= 1

    def _send_file(self, name: str) -> None:
        file = (STATIC / name).resolve()
        if not file.is_relative_to(STATIC) or not file.is_file():
            self._send(404, {"error": "No such file."})
            return
        content = file.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", TYPES.get(file.suffix, "text/plain; charset=utf-8"))
        for header, value in SECURITY_HEADERS.items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
