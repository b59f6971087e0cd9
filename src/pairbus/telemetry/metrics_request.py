"""The answer to a request for metrics: host, token, method and path. No I/O.

Labels name destinations, so other machines need a token. Without one, the host of a request must be
this machine: the name of a web site that resolves to it (DNS rebinding) is rejected.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from pairbus.errors import ConfigurationError
from pairbus.listeners import is_loopback_host
from pairbus.servicebus.addresses import split_host
from pairbus.telemetry.prometheus import ExpositionFormat, choose_format

PATH: Final = "/metrics"
METHODS: Final = ("GET", "HEAD")
MAX_HEAD_BYTES: Final = 16 * 1024
"""The request line and the headers of a request."""
_PLAIN: Final = "text/plain; charset=utf-8"

Render = Callable[[ExpositionFormat], bytes | None]
"""Returns the metrics as text, or None if they are not up to date."""


class RejectedScrape(Exception):
    """Raised for a request that is not allowed or not valid, with the status of the answer."""

    def __init__(self, status: HTTPStatus, text: str, *headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers


@dataclass(frozen=True, slots=True)
class _MetricsRequest:
    method: str
    path: str
    headers: dict[str, str]
    """By lower-case name. Of several headers with one name, the last one."""


def respond(head: bytes, token: str | None, render: Render) -> bytes:
    """Return the answer to a request, of which `head` is the request line and the headers. The
    connection is closed after it. `token`: None if no token is needed."""
    method = "GET"
    try:
        request = _parse(head)
        method = request.method
        _check(request, token)
        exposition = choose_format(request.headers.get("accept", ""))
        content = render(exposition)
        if content is None:
            raise RejectedScrape(
                HTTPStatus.SERVICE_UNAVAILABLE, "The status of the syphon is not up to date."
            )
    except RejectedScrape as exc:
        return rejection(exc, with_body=method != "HEAD")
    return _answer(HTTPStatus.OK, exposition.value, content, with_body=method != "HEAD")


def rejection(exc: RejectedScrape, *, with_body: bool = True) -> bytes:
    """Return the answer to a request that was rejected."""
    return _answer(exc.status, _PLAIN, f"{exc.text}\n".encode(), *exc.headers, with_body=with_body)


def too_large() -> RejectedScrape:
    """Return the error for a request that is too large."""
    return RejectedScrape(
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        f"The headers have more than {MAX_HEAD_BYTES:,} bytes.",
    )


def _parse(head: bytes) -> _MetricsRequest:
    line, *fields = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise RejectedScrape(HTTPStatus.BAD_REQUEST, "This is not a valid request of HTTP/1.1.")
    headers: dict[str, str] = {}
    for field in fields:
        name, _, value = field.partition(":")
        headers[name.lower()] = value.strip()
    return _MetricsRequest(words[0], words[1].partition("?")[0], headers)


def _check(request: _MetricsRequest, token: str | None) -> None:
    if token is None:
        _check_host(request.headers.get("host", ""))
    elif not _has_token(request.headers.get("authorization", ""), token):
        raise RejectedScrape(
            HTTPStatus.UNAUTHORIZED,
            "Send the token of --metrics-token-file in the header Authorization: Bearer TOKEN.",
            'WWW-Authenticate: Bearer realm="pairbus metrics"',
        )
    if request.path != PATH:
        raise RejectedScrape(HTTPStatus.NOT_FOUND, f"The metrics are at {PATH}.")
    if request.method not in METHODS:
        allowed = ", ".join(METHODS)
        raise RejectedScrape(
            HTTPStatus.METHOD_NOT_ALLOWED, f"The metrics can be read with {allowed}.",
            f"Allow: {allowed}",
        )  # fmt: skip


def _check_host(text: str) -> None:
    try:
        host, _ = split_host(text)
    except ConfigurationError:
        raise RejectedScrape(HTTPStatus.BAD_REQUEST, "The Host header is not valid.") from None
    if not is_loopback_host(host):
        raise RejectedScrape(
            HTTPStatus.MISDIRECTED_REQUEST,
            "Without a token, the host must be localhost or a loopback address. Start the syphon "
            "with --metrics-token-file to use another name.",
        )


def _has_token(authorization: str, token: str) -> bool:
    scheme, _, credentials = authorization.partition(" ")
    is_equal = hmac.compare_digest(credentials.strip().encode(), token.encode())
    return is_equal and scheme.lower() == "bearer"


def _answer(
    status: HTTPStatus, content_type: str, content: bytes, *headers: str, with_body: bool
) -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(content)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        *headers,
    ]
    head = "".join(f"{line}\r\n" for line in (*lines, "")).encode()
    return head + content if with_body else head
