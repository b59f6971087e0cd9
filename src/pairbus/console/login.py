"""Login and logout of browsers: a token is exchanged for a session cookie."""

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pairbus.backlog.json_values import iso_time
from pairbus.console.audit import AuditLog
from pairbus.console.guard import Guard
from pairbus.console.routes import body_of, identity_of
from pairbus.console.sessions import SessionStore, csrf_value
from pairbus.console.tokens import TokenSigner

MAX_RECORDED_FAILURES: Final = 10
"""Failed logins of a minute that the audit log records. More would fill the disk."""


class LoginRoutes:
    """The endpoints of sessions."""

    def __init__(
        self,
        signer: TokenSigner,
        sessions: SessionStore,
        guard: Guard,
        audit: AuditLog,
        *,
        secure: bool,
        now: Callable[[], float],
    ) -> None:
        """`secure`: the console uses TLS, so the cookie is not sent without it."""
        self._signer = signer
        self._sessions = sessions
        self._guard = guard
        self._audit = audit
        self._secure = secure
        self._now = now
        self._failures: list[float] = []

    async def login(self, request: Request) -> Response:
        """Exchange a token for a session."""
        now = self._now()
        text = body_of(request).get("token")
        token = self._signer.verify(text, now) if isinstance(text, str) else None
        created = None if token is None else self._sessions.create(token, now)
        if token is None or created is None:
            await self._record_failure(request, now)
            error = "The token is not valid for a login, was used, or has expired."
            return JSONResponse({"error": error}, 401)
        secret, session = created
        await self._record("login", f"{session.role} {session.actor}", request)
        response = JSONResponse(_to_json(session.role, csrf_value(secret), session.expires_at))
        response.set_cookie(
            self._guard.cookie,
            secret,
            max_age=max(1, int(session.expires_at - now)),
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="strict",
        )
        return response

    async def logout(self, request: Request) -> Response:
        """End the session."""
        identity = identity_of(request)
        if identity.session_secret is not None:
            self._sessions.end(identity.session_secret)
            await self._record("logout", identity.label, request)
        response = JSONResponse({"text": "Logged out."})
        response.delete_cookie(
            self._guard.cookie, path="/", secure=self._secure, httponly=True, samesite="strict"
        )
        return response

    async def session(self, request: Request) -> Response:
        """Return the role, the CSRF value and the end of the session."""
        identity = identity_of(request)
        return JSONResponse(_to_json(identity.role, identity.csrf, identity.expires_at))

    async def _record_failure(self, request: Request, now: float) -> None:
        self._failures = [time for time in self._failures if now - 60 < time <= now]
        if len(self._failures) < MAX_RECORDED_FAILURES:
            self._failures.append(now)
            await self._record("failed login", "unknown", request)

    async def _record(self, action: str, actor: str, request: Request) -> None:
        address = "" if request.client is None else request.client.host
        await asyncio.to_thread(self._audit.write, action, actor=actor, address=address)


def _to_json(role: str, csrf: str | None, expires_at: float) -> dict[str, str | None]:
    return {"role": role, "csrf": csrf, "expires_at": iso_time(int(expires_at * 1000))}
