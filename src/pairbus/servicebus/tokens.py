"""Tokens for CBS: shared access signatures of ours, ready-made ones, and token credentials."""

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qs, quote_plus
from uuid import uuid4

from pairbus.errors import ConfigurationError

SAS_TYPE = "servicebus.windows.net:sastoken"
JWT_TYPE = "jwt"
SCOPE = "https://servicebus.azure.net/.default"


@dataclass(frozen=True, slots=True)
class Token:
    """A token, its CBS type, and when it expires (seconds since 1970)."""

    text: str = field(repr=False)
    kind: str
    expires_at: float


class TokenSource(Protocol):
    """Gives a token for an audience, an address such as sb://host/queue."""

    def token(self, audience: str, now: float) -> Token: ...


class TokenCredential(Protocol):
    """What the credentials of azure-identity are."""

    def get_token(self, *scopes: str, **kwargs: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class SharedAccessKey:
    """Signs a token for each audience with a key of the namespace or the entity."""

    name: str
    key: str = field(repr=False)
    lifetime_s: float = 3600

    def token(self, audience: str, now: float) -> Token:
        expiry = int(now + self.lifetime_s)
        return Token(sign_token(audience, self.name, self.key, expiry), SAS_TYPE, expiry)


@dataclass(frozen=True, slots=True)
class SharedAccessSignature:
    """A shared access signature that somebody else made. It cannot be renewed."""

    text: str = field(repr=False)

    def token(self, audience: str, now: float) -> Token:
        expiry = parse_qs(self.text.removeprefix("SharedAccessSignature ")).get("se", [""])[0]
        if not expiry.isdecimal():
            raise ConfigurationError("the shared access signature has no expiry (se=…)")
        return Token(self.text, SAS_TYPE, float(expiry))


@dataclass(frozen=True, slots=True)
class Credential:
    """Tokens from a credential of azure-identity, or anything with its `get_token`.

    `make` is called when the first token is needed: a factory can be sent to another process where
    a credential cannot. Copies that were sent are equal to what they were made of, whatever `make`
    is, so that a worker can tell that it has a connection for it.
    """

    make: Callable[[], TokenCredential] = field(compare=False)
    _made: list[TokenCredential] = field(default_factory=list, repr=False, compare=False)
    _key: str = field(default_factory=lambda: uuid4().hex, repr=False)

    def token(self, audience: str, now: float) -> Token:
        if not self._made:
            self._made.append(self.make())
        access = self._made[0].get_token(SCOPE)
        return Token(access.token, JWT_TYPE, float(access.expires_on))

    def __reduce__(self) -> tuple[type["Credential"], tuple[object, ...]]:
        return Credential, (self.make, [], self._key)


def sign_token(audience: str, name: str, key: str, expiry: int) -> str:
    """A shared access signature over the audience, valid until `expiry` (seconds since 1970)."""
    resource = quote_plus(audience)
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={quote_plus(name)}"
