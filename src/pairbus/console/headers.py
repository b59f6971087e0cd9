"""Headers of every response, and the check of the host for every request."""

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pairbus.console.guard import Denied, Guard
from pairbus.console.routes import denial, request_facts

SECURITY_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
DEFAULT_HEADERS: Final = {"Cache-Control": "no-store"}
MAX_HEADER_BYTES: Final = 16 * 1024
"""The size of the path, the query and the headers of a request."""


class SecuredApplication:
    """Wraps the whole application, so that error pages have the headers too."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self.inner = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request. WebSockets are refused."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                for name, value in DEFAULT_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            if _head_bytes(scope) > MAX_HEADER_BYTES:
                raise Denied(431, f"The headers have more than {MAX_HEADER_BYTES:,} bytes.")
            self._guard.check_host(request_facts(scope))
        except Denied as exc:
            await denial(exc)(scope, receive, send_with_headers)
            return
        await self.inner(scope, receive, send_with_headers)


def _head_bytes(scope: Scope) -> int:
    lines = sum(len(name) + len(value) for name, value in scope["headers"])
    return len(scope["raw_path"]) + len(scope["query_string"]) + lines
