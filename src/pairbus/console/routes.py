"""Routes that declare the access that they need, and the limits of request bodies."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pairbus.console.guard import SAFE_METHODS, Denied, Guard, Identity, RequestFacts
from pairbus.console.roles import Access

MAX_BODY_BYTES: Final = 64 * 1024
BODY_TIMEOUT_S: Final = 10.0
"""The time for the whole body of a request."""

Endpoint = Callable[[Request], Awaitable[Response]]


class GuardedRoute(Route):
    """A route whose endpoint runs only if the guard allows it. There is no default: every route
    declares its access."""

    def __init__(
        self,
        path: str,
        endpoint: Endpoint,
        *,
        access: Access,
        guard: Guard,
        methods: Collection[str] = ("GET",),
    ) -> None:
        super().__init__(path, endpoint, methods=methods)
        self.methods = set(methods)  # without HEAD, which would keep a live stream open
        self.access = access
        self._guard = guard

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request, read its body, and run the endpoint."""
        try:
            if self.methods and scope["method"] not in self.methods:
                raise Denied(405, "This method is not allowed here.")
            facts = request_facts(scope)
            identity = self._guard.check(facts, self.access, time.time())
            body = None
            if facts.method not in SAFE_METHODS:
                body = await read_json(facts, receive)
        except Denied as exc:
            await denial(exc)(scope, receive, send)
            return
        scope["pairbus.identity"] = identity
        scope["pairbus.body"] = body
        await self.app(scope, receive, send)


def request_facts(scope: Scope) -> RequestFacts:
    """Return the facts of a request. Of several headers with one name the last one counts, except
    for cookies."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if name == "cookie" and name in headers:
            value = f"{headers[name]}; {value}"
        headers[name] = value
    return RequestFacts(method=scope["method"], headers=headers)


def identity_of(request: Request) -> Identity:
    """Return the identity of a request to a route that is not public."""
    identity = request.scope["pairbus.identity"]
    assert isinstance(identity, Identity)
    return identity


def body_of(request: Request) -> dict[str, Any]:
    """Return the body of a request."""
    body: dict[str, Any] = request.scope["pairbus.body"]
    return body


def denial(exc: Denied) -> Response:
    """Return the response to a request that is not allowed. The connection is closed, because the
    body of the request may not have been read."""
    headers = {"Connection": "close"}
    if exc.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="pairbus console"'
    return JSONResponse({"error": exc.text}, exc.status, headers)


async def read_json(facts: RequestFacts, receive: Receive) -> dict[str, Any]:
    """Return the JSON object in the body of a request; an empty body is an empty object. Raises
    Denied."""
    length = facts.headers.get("content-length")
    if length is not None and (not length.isdecimal() or int(length) > MAX_BODY_BYTES):
        raise Denied(413, f"The body has more than {MAX_BODY_BYTES:,} bytes.")
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            data = await _read(receive)
    except TimeoutError:
        raise Denied(408, f"The body did not arrive within {BODY_TIMEOUT_S:g} s.") from None
    if not data:
        return {}
    # A form of another site can send text and form data, but not this type.
    if facts.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Denied(415, "The body must be JSON, with the content type application/json.")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise Denied(400, "The body is not valid JSON.") from None
    if not isinstance(body, dict):
        raise Denied(400, "The body must be a JSON object.")
    return body


async def _read(receive: Receive) -> bytes:
    data = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Denied(400, "The request ended before its body was complete.")
        data += message.get("body", b"")
        if len(data) > MAX_BODY_BYTES:
            raise Denied(413, f"The body has more than {MAX_BODY_BYTES:,} bytes.")
        if not message.get("more_body", False):
            return bytes(data)
