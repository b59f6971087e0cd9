"""Tokens of the console: signed, with a role and a time at which they expire. No I/O.

A token is `pbc1.PAYLOAD.SIGNATURE`. The payload is JSON in base64url; the signature is HMAC-SHA256
of `pbc1.PAYLOAD`, with a key that only the console and the command `pairbus console token` have.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from secrets import token_hex
from typing import Final

from pairbus.console.roles import ConsoleRole
from pairbus.errors import ConfigurationError

PREFIX: Final = "pbc1"
KEY_BYTES: Final = 32
MAX_TOKEN_CHARACTERS: Final = 512
MAX_LIFETIME: Final = timedelta(days=366)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleToken:
    """The content of a valid token."""

    id: str
    """Names the token in the audit log. It is no secret."""
    role: ConsoleRole
    expires_at: float
    """Unix time."""
    once: bool = False
    """The token is accepted for one login only."""


class TokenSigner:
    """Issues and verifies tokens with one key."""

    def __init__(self, key: bytes, *, new_id: Callable[[], str] = lambda: token_hex(8)) -> None:
        if len(key) < KEY_BYTES:
            raise ConfigurationError(
                f"The key of the console has {len(key)} bytes, and {KEY_BYTES} are needed. Delete "
                "its file to create a new key."
            )
        self._key = key
        self._new_id = new_id

    def issue(
        self, role: ConsoleRole, lifetime: timedelta, now: float, *, once: bool = False
    ) -> str:
        """Return a new token. Raises ConfigurationError if its lifetime is out of range."""
        if not timedelta() < lifetime <= MAX_LIFETIME:
            raise ConfigurationError(
                f"The lifetime of a token must be above 0 and at most {MAX_LIFETIME.days} days."
            )
        values = {
            "id": self._new_id(),
            "role": role,
            "expires": int(now + lifetime.total_seconds()),
            "once": once,
        }
        signed = f"{PREFIX}.{_encode(json.dumps(values, separators=(',', ':')).encode())}"
        return f"{signed}.{_encode(self._signature(signed))}"

    def verify(self, text: str, now: float) -> ConsoleToken | None:
        """Return the content of a token, or None if it is not valid or has expired."""
        if len(text) > MAX_TOKEN_CHARACTERS or not text.isascii():
            return None
        signed, _, signature = text.rpartition(".")
        if not hmac.compare_digest(_encode(self._signature(signed)), signature):
            return None
        prefix, _, payload = signed.partition(".")
        values = _decode(payload)
        if prefix != PREFIX or values is None:
            return None
        match values:
            case {
                "id": str(id),
                "role": str(role),
                "expires": int(expires),
                "once": bool(once),
            } if role in list(ConsoleRole) and now < expires:
                return ConsoleToken(id=id, role=ConsoleRole(role), expires_at=expires, once=once)
        return None

    def _signature(self, signed: str) -> bytes:
        return hmac.digest(self._key, signed.encode("ascii", "replace"), hashlib.sha256)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _decode(text: str) -> object:
    try:
        return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError):
        return None
