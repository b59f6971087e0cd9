"""HTTP/1.1 for the administration API, without I/O: takes bytes, and returns requests and bytes.

h11 implements the protocol. This module limits sizes, collects bodies, and answers invalid input
with an error and the end of the connection. Requests are returned one at a time, so that a client
that pipelines requests gets the responses in order.
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
    """A request with its whole body. Headers and body are not in `repr`: they may hold secrets."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Names in lower case."""
    body: bytes = field(default=b"", repr=False)

    @property
    def path(self) -> str:
        """The decoded path without outer slashes. `a%2Fb` and `a/b` are the same entity."""
        return unquote(self._split()[0]).strip("/")

    @property
    def query(self) -> dict[str, str]:
        """The parameters. The last value of a repeated one counts."""
        return dict(parse_qsl(self._split()[1], keep_blank_values=True))

    def header(self, name: str) -> str | None:
        """Return the first header with this name."""
        return next((value for key, value in self.headers if key == name.lower()), None)

    def _split(self) -> tuple[str, str]:
        if self.target.startswith("/"):
            path, _, query = self.target.partition("?")
            return path, query
        try:
            url = urlsplit(self.target)  # the absolute form, as for proxies
        except ValueError:
            return "", ""
        return url.path, url.query


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """A response. Its length is added when it is written."""

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class HttpConnection:
    """The server's side of one connection.

    `receive` takes input (b"" at its end), and returns a request once it is complete. `respond`
    answers it, and returns the next request if it has arrived already. After each of these calls
    the output must be written, and then the connection closed if `closing` is True.
    """

    def __init__(self, *, max_header: int = MAX_HEADER, max_body: int = MAX_BODY) -> None:
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=max_header)
        self._max_header = max_header
        self._max_body = max_body
        self._request: h11.Request | None = None
        self._body = bytearray()
        self._output = bytearray()
        self._waiting = False
        self._ahead = 0  # bytes that arrived before the last request was answered
        self._bodiless = False
        self.closing = False
        self.has_unread_input = False
        """True if a request was refused before its end: the client may still be sending it."""

    def receive(self, data: bytes) -> HttpRequest | None:
        if self._waiting:
            self._ahead += len(data)
        if self.closing or self._ahead > self._max_header + self._max_body:
            self.closing = True
            return None
        try:
            self._h11.receive_data(data)
        except h11.RemoteProtocolError:  # input after its end
            self.closing = True
            return None
        return None if self._waiting else self._next()

    def respond(self, response: HttpResponse) -> HttpRequest | None:
        """Answer the last request. Raises StateError if there is none."""
        if not self._waiting:
            raise StateError("There is no request to respond to.")
        self._waiting, self._ahead = False, 0
        self._write(response)
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            self.closing = True
            return None
        self._h11.start_next_cycle()
        return self._next()

    def time_out(self, reason: str) -> None:
        """End the connection, and answer a request of which a part has arrived."""
        if self.has_partial_request and not self.closing:
            self._refuse(408, reason)
        self.closing = True

    @property
    def has_partial_request(self) -> bool:
        """True if a part of a request has arrived."""
        return self._request is not None or bool(self._h11.trailing_data[0])

    def trailing_data(self) -> bytes:
        """Return the input after a request that asks for another protocol."""
        return self._h11.trailing_data[0]

    def output(self) -> bytes:
        """Return the bytes to write, once."""
        data = bytes(self._output)
        self._output.clear()
        return data

    def _next(self) -> HttpRequest | None:
        try:
            return self._read_request()
        except h11.RemoteProtocolError as exc:
            self._refuse(exc.error_status_hint, "The request is not valid HTTP/1.1.")
        except _TooLarge as exc:
            self._refuse(exc.status, str(exc))
        return None

    def _read_request(self) -> HttpRequest | None:
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > self._max_body:
                    raise _TooLarge(413, f"The body exceeds the limit of {self._max_body} bytes.")
            elif isinstance(event, h11.EndOfMessage):
                return self._complete()
            elif isinstance(event, h11.ConnectionClosed):
                self.closing = True
                return None
            else:
                self._continue()
                return None

    def _begin(self, event: h11.Request) -> None:
        self._request, self._bodiless = event, event.method == b"HEAD"
        # h11 limits only a head that arrives in pieces.
        lengths = [len(name) + len(value) + 4 for name, value in event.headers]
        if len(event.target) + sum(lengths) > self._max_header:
            raise _TooLarge(
                431, f"The head of the request exceeds the limit of {self._max_header} bytes."
            )
        content_length = next((v for name, v in event.headers if name == b"content-length"), b"0")
        if int(content_length) > self._max_body:
            raise _TooLarge(413, f"The body exceeds the limit of {self._max_body} bytes.")

    def _continue(self) -> None:
        if self._h11.they_are_waiting_for_100_continue:
            response = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self._output += self._h11.send(response) or b""

    def _complete(self) -> HttpRequest:
        event, body = self._request, bytes(self._body)
        assert event is not None, "h11 reports the end of a request after its head"
        self._request, self._waiting = None, True
        self._body.clear()
        return HttpRequest(
            method=event.method.decode("ascii"),
            target=event.target.decode("ascii"),
            headers=tuple((k.decode("ascii"), v.decode("latin-1")) for k, v in event.headers),
            body=body,
        )

    def _refuse(self, status: int, reason: str) -> None:
        """Answer invalid input, if the state allows it, and end the connection."""
        self.closing = self.has_unread_input = True
        if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            close = (("Connection", "close"),)
            body = f"{reason}\n".encode()
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
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
