"""Decides if a request is allowed: host, origin, token or session, role, and protection against
cross-site requests. No I/O.

Known attacks and what stops them here: a page of another site that sends a form (content type,
origin, CSRF value, SameSite cookie); DNS rebinding, where the name of another site resolves to this
machine (host names); a stolen link (the login token is for one login and is not sent in a URL).
"""

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from pairbus.console.roles import Access, ConsoleRole
from pairbus.console.sessions import SessionStore, csrf_value
from pairbus.console.tokens import TokenSigner
from pairbus.errors import ConfigurationError
from pairbus.servicebus.addresses import split_host

SAFE_METHODS: Final = ("GET", "HEAD")
CSRF_HEADER: Final = "x-pairbus-csrf"
LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SAME_SITE: Final = ("same-origin", "none")
"""Values of Sec-Fetch-Site: the page itself, and a user who enters an address."""


class Denied(Exception):
    """Raised when a request is not allowed, with the status and a text for the client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """The parts of a request that the decision needs."""

    method: str
    headers: Mapping[str, str]
    """By lower-case name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The authenticated origin of a request."""

    role: ConsoleRole
    actor: str
    """The id of the token."""
    expires_at: float
    csrf: str | None = None
    """Set for a session of a browser."""
    session_secret: str | None = None

    @property
    def label(self) -> str:
        """The role and the id, for the audit log."""
        return f"{self.role} {self.actor}"


class Guard:
    """Checks requests."""

    def __init__(
        self,
        signer: TokenSigner,
        sessions: SessionStore,
        *,
        cookie: str,
        hosts: Iterable[str] = (),
    ) -> None:
        """`hosts` are the names of this console beside those of loopback."""
        self._signer = signer
        self._sessions = sessions
        self.cookie = cookie
        self._hosts = LOOPBACK_HOSTS | {host.lower().rstrip(".") for host in hosts}

    def check(self, facts: RequestFacts, access: Access, now: float) -> Identity | None:
        """Return the identity of a request that is allowed; None for a public route without one.
        Raises Denied."""
        self.check_host(facts)
        is_safe = facts.method in SAFE_METHODS
        if not (is_safe and access is Access.PUBLIC):
            self._check_site(facts)
        if access is Access.PUBLIC:
            return None
        identity = self.identify(facts, now)
        if identity is None:
            raise Denied(401, "Log in, or use a token that has not expired.")
        if not access.allows(identity.role):
            raise Denied(403, f"The role {identity.role} is not allowed to do this.")
        if not is_safe and identity.csrf is not None:
            given = facts.headers.get(CSRF_HEADER, "")
            if not hmac.compare_digest(given.encode(), identity.csrf.encode()):
                raise Denied(403, "The CSRF value is missing or wrong. Reload the page.")
        return identity

    def check_host(self, facts: RequestFacts) -> None:
        """Raise Denied unless the request names this console as its host."""
        try:
            host, _ = split_host(facts.headers.get("host", ""))
        except ConfigurationError:
            raise Denied(400, "The Host header is not valid.") from None
        if host.lower().rstrip(".") not in self._hosts:
            raise Denied(
                421, "This is not a name of the console. Add it with --allowed-host to use it."
            )

    def identify(self, facts: RequestFacts, now: float) -> Identity | None:
        """Return the identity in the token or in the session of a request, or None."""
        scheme, _, text = facts.headers.get("authorization", "").partition(" ")
        if scheme:
            token = self._signer.verify(text.strip(), now) if scheme.lower() == "bearer" else None
            if token is None or token.once:
                return None
            return Identity(role=token.role, actor=token.id, expires_at=token.expires_at)
        secret = self._cookie(facts.headers.get("cookie", ""))
        session = None if secret is None else self._sessions.find(secret, now)
        if secret is None or session is None:
            return None
        return Identity(
            role=session.role,
            actor=session.actor,
            expires_at=session.expires_at,
            csrf=csrf_value(secret),
            session_secret=secret,
        )

    def _check_site(self, facts: RequestFacts) -> None:
        site = facts.headers.get("sec-fetch-site")
        if site is not None and site not in _SAME_SITE:
            raise Denied(403, "Requests of other sites are not allowed.")
        origin = facts.headers.get("origin")
        if origin is not None and _address_of(origin) != facts.headers.get("host"):
            raise Denied(403, "Requests of other sites are not allowed.")

    def _cookie(self, header: str) -> str | None:
        try:
            cookie = SimpleCookie(header).get(self.cookie)
        except CookieError:
            return None
        return None if cookie is None else cookie.value


def _address_of(origin: str) -> str | None:
    """Return the host and port of an Origin header, or None if it has none."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None
