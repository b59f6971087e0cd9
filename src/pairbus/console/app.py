"""The routes of the console. Each declares the access that it needs."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from pairbus.console.actions import ConsoleActions, PlannedAction
from pairbus.console.audit import AuditLog, AuditUnavailable
from pairbus.console.guard import Denied, Guard, Identity
from pairbus.console.headers import SecuredApplication
from pairbus.console.login import LoginRoutes
from pairbus.console.metrics import console_samples
from pairbus.console.peeking import PeekBudget, PeekRequest, peek_messages
from pairbus.console.redrives import RedriveRefused
from pairbus.console.roles import Access, ConsoleRole
from pairbus.console.routes import (
    Endpoint,
    GuardedRoute,
    body_of,
    identity_of,
    request_facts,
)
from pairbus.console.sender_report import InvalidReport, parse_report
from pairbus.console.senders import TooManySenders
from pairbus.console.sentence import number
from pairbus.console.state import ConsoleState
from pairbus.console.static_files import INDEX, StaticPages
from pairbus.console.stream import SnapshotStream
from pairbus.console.text import clean
from pairbus.cost.money import format_money
from pairbus.errors import AmqpError, ConfigurationError, PairbusError
from pairbus.spark.usage import UsageRecorder
from pairbus.telemetry.prometheus import choose_format, render_metrics

logger = logging.getLogger(__name__)

MAX_HISTORY_S: Final = 24 * 3600
MAX_PEEKS: Final = 4
"""Peeks at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleParts:
    """The objects that the routes use."""

    state: ConsoleState
    guard: Guard
    login: LoginRoutes
    actions: ConsoleActions
    audit: AuditLog
    usage: UsageRecorder


class ConsoleApplication:
    """The ASGI application of the console."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._parts = parts
        self._state = parts.state
        self._stream = SnapshotStream(parts.state)
        self._pages = StaticPages()
        self._peeks = asyncio.Semaphore(MAX_PEEKS)
        self._peek_budget = PeekBudget()
        self.routes = self._routes()
        starlette = Starlette(
            routes=self.routes,
            exception_handlers={
                HTTPException: _http_error,
                PairbusError: _pairbus_error,
                Exception: _server_error,
            },
            lifespan=self._lifespan,
        )
        starlette.router.redirect_slashes = False
        self.app = SecuredApplication(starlette, parts.guard)

    def _routes(self) -> list[GuardedRoute]:
        login = self._parts.login

        def route(
            path: str, endpoint: Endpoint, access: Access, method: str = "GET"
        ) -> GuardedRoute:
            return GuardedRoute(
                path, endpoint, access=access, guard=self._parts.guard, methods=(method,)
            )

        return [
            route("/", self._page, Access.PUBLIC),
            route("/static/{name:path}", self._page, Access.PUBLIC),
            route("/healthz", self._health, Access.PUBLIC),
            route("/login", login.login, Access.PUBLIC, "POST"),
            route("/logout", login.logout, Access.READ, "POST"),
            route("/api/session", login.session, Access.READ),
            route("/api/state", self._get_state, Access.READ),
            route("/api/stream", self._get_stream, Access.READ),
            route("/api/history", self._get_history, Access.READ),
            route("/api/peek", self._peek, Access.READ),
            route("/metrics", self._metrics, Access.READ),
            route("/api/reports", self._report, Access.REPORT, "POST"),
            route("/api/syphon", self._syphon, Access.ACT, "POST"),
            route("/api/redrive", self._redrive, Access.ACT, "POST"),
            route("/api/redrive/{id}", self._cancel_redrive, Access.ACT, "DELETE"),
            route("/api/paths/mark-healthy", self._mark_healthy, Access.ACT, "POST"),
        ]

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._state.collector.start()
        updates = asyncio.create_task(self._stream.run())
        try:
            yield
        finally:
            updates.cancel()
            await asyncio.to_thread(self._state.redrives.close)
            await asyncio.to_thread(self._state.collector.close)
            self._state.database.close()

    @property
    def watchers(self) -> int:
        """The number of open pages."""
        return self._state.watchers

    @property
    def inspection_operations(self) -> int:
        """The number of billed operations of the inspections so far."""
        return self._state.collector.counter.operations

    async def close_streams(self) -> None:
        """End all live streams, so that the server can shut down."""
        await self._stream.close()

    # Pages and reading.

    async def _page(self, request: Request) -> Response:
        page = self._pages.get(request.path_params.get("name", INDEX))
        if page is None:
            raise HTTPException(404, "This page does not exist.")
        content, media_type = page
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _get_state(self, request: Request) -> Response:
        return JSONResponse(self._stream.snapshot(identity_of(request).role))

    async def _get_stream(self, request: Request) -> Response:
        if self._stream.is_full:
            raise HTTPException(503, "Too many pages are open.")
        facts, guard, state = request_facts(request.scope), self._parts.guard, self._state

        def is_valid() -> bool:
            with contextlib.suppress(Denied):
                return guard.check(facts, Access.READ, state.now()) is not None
            return False

        events = self._stream.events(identity_of(request).role, is_valid)
        return StreamingResponse(events, media_type="text/event-stream")

    async def _get_history(self, request: Request) -> Response:
        text = request.query_params.get("since", "3600")
        if not (text.isascii() and text.isdecimal()):
            raise ConfigurationError("since must be a number of seconds.")
        seconds = min(int(text[:9]), MAX_HISTORY_S)
        return JSONResponse(self._state.history.since(seconds, self._state.now()))

    async def _metrics(self, request: Request) -> Response:
        knowledge = self._state.knowledge(self._state.now())
        samples = console_samples(knowledge, self._state.target.known_primary_name())
        exposition = choose_format(request.headers.get("accept", ""))
        content = render_metrics(samples, exposition)
        return Response(content, headers={"Content-Type": exposition.value})

    async def _peek(self, request: Request) -> Response:
        identity, query = identity_of(request), request.query_params
        peek = PeekRequest.parse(
            self._state.target,
            query.get("queue", ""),
            query.get("count", "10"),
            dead_letters=query.get("dead_letters") == "1",
            bodies=query.get("bodies") == "1",
        )
        if peek.bodies and identity.role is not ConsoleRole.OPERATOR:
            raise HTTPException(403, "Bodies are shown to operators only.")
        if query.get("confirm") != "1":
            price = self._state.price
            money = format_money(price.money(peek.count))
            cost = f"Up to {number(peek.count)} operations, {money} {price.prices.currency}."
            return JSONResponse({"text": peek.description, "cost": cost})
        if not self._peek_budget.take(peek.count, self._state.now()):
            raise HTTPException(429, "Too many messages were peeked. Try again in a minute.")
        if peek.bodies:
            details = {"queue": peek.path, "count": peek.count, "dead_letters": peek.dead_letters}
            await self._record("peek at bodies", identity, request, details)
        async with self._peeks:
            result = await asyncio.to_thread(
                peek_messages, self._state.target, self._parts.usage, peek
            )
        return JSONResponse(result)

    async def _report(self, request: Request) -> Response:
        report = parse_report(body_of(request))
        commands = self._state.senders.accept(report, self._state.now())
        return JSONResponse({"commands": [command.to_json() for command in commands]})

    # Actions.

    async def _syphon(self, request: Request) -> Response:
        plan = await asyncio.to_thread(self._parts.actions.syphon, body_of(request))
        return await self._carry_out(plan, request)

    async def _redrive(self, request: Request) -> Response:
        inspection = self._state.collector.inspection
        plan = self._parts.actions.redrive(body_of(request), inspection)
        return await self._carry_out(plan, request)

    async def _cancel_redrive(self, request: Request) -> Response:
        plan = self._parts.actions.cancel_redrive(request.path_params["id"])
        return await self._carry_out(plan, request)

    async def _mark_healthy(self, request: Request) -> Response:
        state = self._state
        plan = self._parts.actions.mark_healthy(body_of(request), state.senders, state.now())
        # The registry belongs to the event loop's thread.
        return await self._carry_out(plan, request, in_thread=False)

    async def _carry_out(
        self, plan: PlannedAction, request: Request, *, in_thread: bool = True
    ) -> Response:
        """Answer with the text to confirm, or do it after it was recorded in the audit log."""
        confirmed = body_of(request).get("confirm") is True
        if not (confirmed or request.query_params.get("confirm") == "1"):
            return JSONResponse(plan.to_json())
        identity = identity_of(request)
        await self._record(plan.name, identity, request, plan.details)
        result = await asyncio.to_thread(plan.run) if in_thread else plan.run()
        self._state.add_event(f"{identity.label}: {plan.name}. {result.get('text', '')}")
        return JSONResponse(dict(result))

    async def _record(
        self, action: str, identity: Identity, request: Request, details: Mapping[str, Any]
    ) -> None:
        address = "" if request.client is None else request.client.host
        await asyncio.to_thread(
            self._parts.audit.write,
            action,
            actor=identity.label,
            address=address,
            details=details,
        )


async def _http_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    return JSONResponse({"error": exc.detail}, exc.status_code)


async def _pairbus_error(_: Request, exc: Exception) -> Response:
    """Return the status for an error of an action."""
    text = exc.description if isinstance(exc, AmqpError) else str(exc)
    status = next((status for kind, status in _STATUS.items() if isinstance(exc, kind)), 500)
    return JSONResponse({"error": clean(text, 1000)}, status)


async def _server_error(_: Request, exc: Exception) -> Response:
    # The text of an unexpected error stays in the log: it may contain secrets.
    return JSONResponse({"error": "The console failed. See its log."}, 500)


_STATUS: Final[Mapping[type[PairbusError], int]] = {
    AuditUnavailable: 503,
    TooManySenders: 503,
    RedriveRefused: 409,
    InvalidReport: 400,
    ConfigurationError: 400,
    AmqpError: 502,
}
