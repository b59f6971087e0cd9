"""Sessions of browsers: a secret in a cookie, and a value against cross-site requests.

The database holds hashes of the secrets, and the value is computed from the secret. A session
survives a restart of the console, and ends at logout, or at the latest when its token expires.
"""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Final

from pairbus.console.roles import ConsoleRole
from pairbus.console.storage import ConsoleDatabase
from pairbus.console.tokens import ConsoleToken

MAX_SESSION_S: Final = 12 * 3600
MAX_SESSIONS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession:
    """A session, without its secret."""

    role: ConsoleRole
    actor: str
    """The id of the token, for the audit log."""
    expires_at: float


class SessionStore:
    """The open sessions, and the login links that were used."""

    def __init__(
        self,
        database: ConsoleDatabase,
        now: float,
        *,
        new_secret: Callable[[], str] = lambda: token_urlsafe(32),
    ) -> None:
        self._database = database
        self._new_secret = new_secret
        rows = database.read("SELECT key, role, actor, expires_at FROM sessions")
        self._sessions = {
            key: BrowserSession(role=ConsoleRole(role), actor=actor, expires_at=expires_at)
            for key, role, actor, expires_at in rows
            if expires_at > now
        }
        rows = database.read("SELECT id, expires_at FROM used_tokens")
        self._used = {id: expires_at for id, expires_at in rows if expires_at > now}

    def create(self, token: ConsoleToken, now: float) -> tuple[str, BrowserSession] | None:
        """Return the secret and the new session of a token. None if the token is for one login and
        was used, or if its role cannot log in."""
        if token.role is ConsoleRole.SENDER or (token.once and not self._use(token, now)):
            return None
        self._expire(now)
        if len(self._sessions) >= MAX_SESSIONS:
            oldest = min(self._sessions, key=lambda key: self._sessions[key].expires_at)
            self._remove(oldest)
        longest = now + MAX_SESSION_S
        secret = self._new_secret()
        session = BrowserSession(
            role=token.role,
            actor=token.id,
            expires_at=longest if token.once else min(longest, token.expires_at),
        )
        key = _key(secret)
        self._sessions[key] = session
        self._database.write(
            (
                "INSERT INTO sessions VALUES (?, ?, ?, ?)",
                (key, session.role.value, session.actor, session.expires_at),
            ),
            ("DELETE FROM sessions WHERE expires_at <= ?", (now,)),
            ("DELETE FROM used_tokens WHERE expires_at <= ?", (now,)),
        )
        return secret, session

    def find(self, secret: str, now: float) -> BrowserSession | None:
        """Return the session of a secret, or None if it has none or has expired."""
        session = self._sessions.get(_key(secret))
        return None if session is None or now >= session.expires_at else session

    def end(self, secret: str) -> None:
        """End a session. It can be called again."""
        key = _key(secret)
        if key in self._sessions:
            self._remove(key)

    def _remove(self, key: bytes) -> None:
        del self._sessions[key]
        self._database.write(("DELETE FROM sessions WHERE key = ?", (key,)))

    def _expire(self, now: float) -> None:
        self._used = {id: expires for id, expires in self._used.items() if expires > now}
        self._sessions = {
            key: session for key, session in self._sessions.items() if session.expires_at > now
        }

    def _use(self, token: ConsoleToken, now: float) -> bool:
        """Return True if a token for one login was not used before."""
        if token.id in self._used:
            return False
        self._used[token.id] = token.expires_at
        self._database.write(
            ("INSERT OR IGNORE INTO used_tokens VALUES (?, ?)", (token.id, token.expires_at))
        )
        return True


def csrf_value(secret: str) -> str:
    """Return the value against cross-site requests of the session with a secret."""
    return hmac.digest(secret.encode("utf-8", "replace"), b"csrf", hashlib.sha256).hex()


def _key(secret: str) -> bytes:
    # A hash: the time that a lookup takes tells nothing about the secret.
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
