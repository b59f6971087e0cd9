"""HTTP/1.1 for the administration API, without I/O: bytes in, requests out, and back.

h11 knows the protocol; this bounds what it may hold, gathers bodies, and turns bad input into an
answer and a closed connection. One request is given out at a time; a client that sends several at
once gets its answers in order.
"""

from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from pairbus.errors import StateError

MAX_HEADER = 16 * 1024
MAX_BODY = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request with its whole body. Headers and body are not shown: they hold tokens and keys."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Names in lower case."""
    body: bytes = field(default=b"", repr=False)

    @property
    def path(self) -> str:
        """The path, decoded, without outer slashes: `a%2Fb` and `a/b` are the same entity."""
        return unquote(self._split()[0]).strip("/")

    @property
    def query(self) -> dict[str, str]:
        """The last value of each parameter."""
        return dict(parse_qsl(self._split()[1], keep_blank_values=True))

    def header(self, name: str) -> str | None:
        """The first header of this name."""
        return next((value for key, value in self.headers if key == name.lower()), None)

    def _split(self) -> tuple[str, str]:
        if self.target.startswith("/"):
            path, _, query = self.target.partition("?")
            return path, query
        try:
            url = urlsplit(self.target)  # the absolute form, which proxies are sent
        except ValueError:
            return "", ""
        return url.path, url.query


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """An answer. The length is added when it is written."""

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class HttpConnection:
    """The server's side of one connection.

    `receive` takes what was read (b"" at the end) and gives a request when one is complete; each is
    answered by `respond`, which gives the next one if it is there already. After either call,
    `output` is what to write; then, where `closing` is true, the connection is to be closed.
    """

    def __init__(self, *, max_header: int = MAX_HEADER, max_body: int = MAX_BODY) -> None:
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=max_header)
        self._max_header = max_header
        self._max_body = max_body
        self._request: h11.Request | None = None
        self._body = bytearray()
        self._output = bytearray()
        self._waiting = False
        self._ahead = 0  # bytes that came before the last request was answered
        self._bodiless = False
        self.closing = False

    def receive(self, data: bytes) -> HttpRequest | None:
        if self._waiting:
            self._ahead += len(data)
        if self.closing or self._ahead > self._max_header + self._max_body:
            self.closing = True
            return None
        try:
            self._h11.receive_data(data)
        except h11.RemoteProtocolError:  # data after the end
            self.closing = True
            return None
        return None if self._waiting else self._next()

    def respond(self, response: HttpResponse) -> HttpRequest | None:
        """Raises StateError where no request waits for an answer."""
        if not self._waiting:
            raise StateError("no request waits for an answer")
        self._waiting, self._ahead = False, 0
        self._write(response)
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            self.closing = True
            return None
        self._h11.start_next_cycle()
        return self._next()

    def output(self) -> bytes:
        """What is to be written, given out once."""
        data = bytes(self._output)
        self._output.clear()
        return data

    def _next(self) -> HttpRequest | None:
        try:
            return self._gather()
        except h11.RemoteProtocolError as exc:
            self._refuse(exc.error_status_hint, "the request is not HTTP/1.1")
        except _TooLarge as exc:
            self._refuse(exc.status, str(exc))
        return None

    def _gather(self) -> HttpRequest | None:
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > self._max_body:
                    raise _TooLarge(413, f"a body has at most {self._max_body} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return self._take()
            elif isinstance(event, h11.ConnectionClosed):
                self.closing = True
                return None
            else:
                self._continue()
                return None

    def _begin(self, event: h11.Request) -> None:
        self._request, self._bodiless = event, event.method == b"HEAD"
        # h11 bounds a head that is incomplete; this one came in one piece.
        lengths = [len(name) + len(value) + 4 for name, value in event.headers]
        if len(event.target) + sum(lengths) > self._max_header:
            raise _TooLarge(431, f"the head of a request has at most {self._max_header} bytes")
        announced = next((v for name, v in event.headers if name == b"content-length"), b"0")
        if int(announced) > self._max_body:
            raise _TooLarge(413, f"a body has at most {self._max_body} bytes")

    def _continue(self) -> None:
        if self._h11.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self._output += self._h11.send(go_on) or b""

    def _take(self) -> HttpRequest:
        event, body = self._request, bytes(self._body)
        assert event is not None, "h11 ends no message that it did not begin"
        self._request, self._waiting = None, True
        self._body.clear()
        return HttpRequest(
            method=event.method.decode("ascii"),
            target=event.target.decode("ascii"),
            headers=tuple((k.decode("ascii"), v.decode("latin-1")) for k, v in event.headers),
            body=body,
        )

    def _refuse(self, status: int, why: str) -> None:
        """Answers bad input, as far as the state allows, and gives up the connection."""
        self.closing = True
        if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            close = (("Connection", "close"),)
            body = f"{why}\n".encode()
            self._write(
                HttpResponse(status=status, body=body, content_type="text/plain", headers=close)
            )

    def _write(self, response: HttpResponse) -> None:
        headers = [*response.headers, ("Content-Length", str(len(response.body)))]
        if response.content_type is not None:
            headers.append(("Content-Type", response.content_type))
        reason = HTTPStatus(response.status).phrase.encode("ascii")
        events: list[h11.Event] = [
            h11.Response(status_code=response.status, headers=headers, reason=reason)
        ]
        if not self._bodiless:
            events.append(h11.Data(data=response.body))
        for event in [*events, h11.EndOfMessage()]:
            self._output += self._h11.send(event) or b""


class _TooLarge(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
