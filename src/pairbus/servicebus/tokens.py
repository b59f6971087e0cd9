"""Tokens for a namespace: signed with a shared access key, ready-made, or from a credential.

A token source gives a token for an audience, a URL such as `sb://host/queue`. The AMQP client puts
tokens on the `$cbs` node; the administration client sends them in the Authorization header.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol
from urllib.parse import parse_qs, quote_plus
from uuid import uuid4

from pairbus.errors import ConfigurationError, NotAuthorized, PairbusError, Unavailable
from pairbus.servicebus.connection_strings import ConnectionString

SAS_TYPE: Final = "servicebus.windows.net:sastoken"
JWT_TYPE: Final = "jwt"
AUDIENCE: Final = "https://servicebus.azure.net"
"""The audience of Entra ID tokens."""
SCOPE: Final = f"{AUDIENCE}/.default"
"""The scope of Entra ID tokens."""
SAS_PREFIX: Final = "SharedAccessSignature "


@dataclass(frozen=True, slots=True)
class Token:
    """A token, its type as CBS names it, and the time when it expires (seconds since 1970)."""

    text: str = field(repr=False)
    kind: str
    expires_at: float


class TokenSource(Protocol):
    """Returns a token for an audience."""

    def token(self, audience: str, now: float) -> Token: ...


class TokenCredential(Protocol):
    """The interface of the credentials of azure-identity."""

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
    """A ready-made shared access signature. It cannot be renewed."""

    text: str = field(repr=False)

    def token(self, audience: str, now: float) -> Token:
        expiry = parse_qs(self.text.removeprefix(SAS_PREFIX)).get("se", [""])[0]
        if not expiry.isdecimal():
            raise ConfigurationError("the shared access signature has no expiry (se=…)")
        return Token(self.text, SAS_TYPE, float(expiry))


@dataclass(frozen=True, slots=True)
class Credential:
    """Returns tokens of a credential of azure-identity, or of any object with its `get_token`.

    `make` is called when the first token is needed: a factory can be sent to another process where
    a credential cannot. Copies that were pickled compare equal to the original, whatever `make` is,
    so that a Spark worker can reuse a connection that it has.
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


@dataclass(frozen=True, slots=True)
class HeldCredential:
    """Returns tokens of a credential that stays in this process. It cannot be pickled: a syphon
    sends the tokens of such a credential to Spark's workers, never the credential."""

    credential: TokenCredential = field(repr=False)

    def token(self, audience: str, now: float) -> Token:
        access = self.credential.get_token(SCOPE)
        return Token(access.token, JWT_TYPE, float(access.expires_on))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a credential stays in its process")


def tokens_from(connection_string: ConnectionString) -> TokenSource | None:
    """Return the token source for the key or signature of a connection string, if it has one."""
    if connection_string.key_name is not None and connection_string.key is not None:
        return SharedAccessKey(connection_string.key_name, connection_string.key)
    if connection_string.signature is not None:
        return SharedAccessSignature(connection_string.signature)
    return None


def acquire_token(source: TokenSource, audience: str, now: float) -> Token:
    """Return a token of a source. Raises NotAuthorized if the identity provider rejects the
    request, and Unavailable for any other error of a credential."""
    try:
        return source.token(audience, now)
    except PairbusError:
        raise
    except Exception as exc:  # a credential of the application may raise anything
        # Credentials of azure-identity give the HTTP status if the request itself was rejected.
        rejected = getattr(exc, "status_code", None) in (400, 401, 403, 404)
        kind = NotAuthorized if rejected else Unavailable
        # Errors of azure-identity have many lines; the first one tells what happened.
        reason = next(iter(str(exc).splitlines()), type(exc).__name__)
        raise kind(f"no token for {audience} could be acquired: {reason}") from exc


def authorization_header(token: Token) -> str:
    """Return the value of the Authorization header that carries a token. Raises ConfigurationError
    for a token that no header can carry, without quoting it."""
    if not (token.text.isascii() and token.text.isprintable()):
        raise ConfigurationError("the token has line breaks or characters other than ASCII")
    return token.text if token.kind == SAS_TYPE else f"Bearer {token.text}"


def sign_token(audience: str, key_name: str, key: str, expiry: int) -> str:
    """Return a shared access signature for an audience, valid until `expiry` (seconds since
    1970)."""
    resource = quote_plus(audience)
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest))
    return f"{SAS_PREFIX}sr={resource}&sig={signature}&se={expiry}&skn={quote_plus(key_name)}"
