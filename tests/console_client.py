"""A client of the console over real HTTP, as a browser or a script uses it."""

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ConsoleClient:
    """Sends requests, with a bearer token or with the cookie of a session."""

    def __init__(
        self,
        port: int,
        *,
        token: str | None = None,
        host: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.port = port
        self.host = host or f"127.0.0.1:{port}"
        self._token = token
        self._tls = tls
        self.cookies: dict[str, str] = {}
        self.csrf = ""

    def request(self, method: str, path: str, body: Any = None, **headers: str | None) -> Answer:
        """Send a request. `body` is sent as JSON unless it is bytes. Underscores in names of
        headers stand for hyphens; None leaves a header out."""
        with closing(self._connect()) as connection:
            self._send(connection, method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
            fields = {name.lower(): value for name, value in response.getheaders()}
            for name, morsel in SimpleCookie(fields.get("set-cookie", "")).items():
                self.cookies[name] = morsel.value
            return Answer(response.status, fields, content)

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.request("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str | None) -> Answer:
        return self.request("POST", path, {} if body is None else body, **headers)

    def login(self, token: str) -> Answer:
        """Log in as a browser does, and keep the cookie and the CSRF value."""
        answer = self.post("/login", {"token": token})
        if answer.status == 200:
            self.csrf = answer.json["csrf"]
        return answer

    def events(self) -> "EventStream":
        """Open the live stream."""
        connection = self._connect()
        self._send(connection, "GET", "/api/stream", None, {})
        return EventStream(connection)

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        return http.client.HTTPSConnection("localhost", self.port, timeout=30, context=self._tls)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Any,
        headers: dict[str, str | None],
    ) -> None:
        sent: dict[str, str | None] = {"Host": self.host}
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token}"
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if method not in ("GET", "HEAD") and self.csrf:
            sent["X-Pairbus-Csrf"] = self.csrf
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        fields = {name: value for name, value in sent.items() if value is not None}
        connection.request(method, path, body, fields)


class EventStream:
    """The snapshots of a live stream."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self.response = connection.getresponse()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        event = ""
        for line in self.response:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                event = value
            elif name == "data" and event == "state":
                yield json.loads(value)

    def __enter__(self) -> "EventStream":
        return self

    def __exit__(self, *exc: object) -> None:
        self.response.close()
        self._connection.close()


def report(
    *,
    state: str = "healthy",
    path: str = "orders",
    sender: str = "sender-1",
    primary_name: str = "orders",
    process: int = 4711,
    since: str = "2026-11-17T16:59:00.000Z",
    throttled: int = 3,
    **changes: Any,
) -> dict[str, Any]:
    """Return a report of a sender with one path."""
    return {
        "version": 1,
        "time": "2026-11-17T17:00:00.000Z",
        "sender": {
            "id": sender,
            "host": "web-1",
            "process": process,
            "application": "shop",
            "started_at": "2026-11-17T16:00:00.000Z",
            "pairbus": "0.2.0",
        },
        "primary": "orders.servicebus.windows.net",
        "secondary": "orders-dr.servicebus.windows.net",
        "primary_name": primary_name,
        "backlog_queues": 10,
        "secondary_available": True,
        "paths": [
            {
                "path": path,
                "state": state,
                "since": since,
                "cause": None if state == "healthy" else "ServiceBusConnectionError: refused",
            }
        ],
        "counts": {"sent": 10, "stored": 2, "failed": 1, "throttled": throttled},
        "events": [],
        **changes,
    }
