"""A connection on which a client speaks HTTP: reads requests, writes responses, and times out."""

import asyncio
import logging
from collections.abc import Callable

from pairbus.emulator.admin.control import CONTROL_PREFIX
from pairbus.emulator.connections.http import HttpConnection, HttpRequest, HttpResponse
from pairbus.emulator.connections.transports import close_transport
from pairbus.emulator.connections.websocket import (
    AcceptedUpgrade,
    accept_upgrade,
    is_websocket_request,
)
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.emulator.storage.database import StoreFailed
from pairbus.servicebus.entity_paths import covers

logger = logging.getLogger(__name__)

RequestHandler = Callable[[HttpRequest, str], HttpResponse]
"""Responds to a request that was received over `http` or `https`."""

REQUEST_TIMEOUT_S = 30.0
"""Time from the first byte of a request to its last."""
KEEP_ALIVE_TIMEOUT_S = 120.0
"""Time from a response to the next request."""
DISCARD_TIMEOUT_S = 10.0
"""Time for which the rest of a refused request is read and discarded."""


class HttpProtocol:
    """A connection on which a client speaks HTTP. `on_token` is called for a valid token."""

    def __init__(
        self,
        runtime: NamespaceRuntime,
        transport: asyncio.Transport,
        admin: RequestHandler,
        open_websocket: Callable[[AcceptedUpgrade, bytes], None],
        loop: asyncio.AbstractEventLoop,
        on_token: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._transport = transport
        self._admin = admin
        self._open_websocket = open_websocket
        self._loop = loop
        self._on_token = on_token
        self._http = HttpConnection()
        self._scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"
        self._is_new = True
        """True until the first request is complete."""
        self._awaits_request = True
        """True between two requests."""
        self._discards_input = False
        self._deadline = loop.time() + REQUEST_TIMEOUT_S

    def receive(self, data: bytes) -> None:
        if self._discards_input:
            return
        if self._awaits_request:
            self._awaits_request = False
            self._deadline = self._loop.time() + REQUEST_TIMEOUT_S
        request = self._http.receive(data)
        while request is not None:
            if self._is_refused_by_fault(request):
                self._transport.abort()
                return
            upgrade = accept_upgrade(request) if is_websocket_request(request) else None
            if isinstance(upgrade, AcceptedUpgrade):
                self._transport.write(self._http.output())  # responses to earlier requests
                self._open_websocket(upgrade, self._http.trailing_data())
                return
            try:
                response = self._respond(request) if upgrade is None else upgrade
                self._runtime.turn()  # changes are on disk before the client knows of them
            except StoreFailed:
                return
            request = self._http.respond(response)
            self._awaits_request = not self._http.has_partial_request
            timeout_s = KEEP_ALIVE_TIMEOUT_S if self._awaits_request else REQUEST_TIMEOUT_S
            self._deadline = self._loop.time() + timeout_s
        self._write()

    def _is_refused_by_fault(self, request: HttpRequest) -> bool:
        """Return True if a fault refuses the connection. The control API stays reachable, because
        the fault is removed there."""
        is_new, self._is_new = self._is_new, False
        if not is_new or covers(CONTROL_PREFIX, request.path):
            return False
        return self._runtime.faults.fire(("refuse-connections",)) is not None

    def _respond(self, request: HttpRequest) -> HttpResponse:
        try:
            response = self._admin(request, self._scheme)
        except StoreFailed:
            raise
        except Exception:  # a defect of the emulator costs this request, and no other
            logger.exception("%s %s failed.", request.method, request.path[:200])
            return HttpResponse(status=500)
        if response.status != 401:
            self._on_token()
        return response

    def _write(self) -> None:
        self._transport.write(self._http.output())
        if not self._http.closing:
            return
        if not self._http.has_unread_input:
            close_transport(self._transport)
            return
        # The system resets a connection that is closed with unread input, and the client would see
        # that instead of the response.
        self._discards_input = True
        self._deadline = self._loop.time() + DISCARD_TIMEOUT_S
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def tick(self) -> None:
        if self._loop.time() < self._deadline:
            return
        self.refuse("The request did not arrive in time.")

    def refuse(self, reason: str) -> None:
        if not self._discards_input:
            self._http.time_out(reason)
            self._transport.write(self._http.output())
        close_transport(self._transport)

    def resume(self) -> None:
        self._transport.resume_reading()

    def lost(self, reason: str) -> None:
        pass
