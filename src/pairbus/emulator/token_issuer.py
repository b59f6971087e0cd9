"""Tokens like those of Microsoft Entra ID, for tests: JWTs that a local key signs.

    issuer = TokenIssuer("data/token-key.pem")
    client = ServiceBusClient(host, issuer.credential(Role.SENDER), …)

A namespace verifies signature, audience, issuer and validity. The rights follow from the roles in
the token. (Azure looks up the roles of an identity; its tokens do not have them.) Every process
that can read the key file can issue tokens, and every namespace with this file accepts them.

Tokens and keys appear in no `repr` and in no error.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from pairbus.emulator.auth import GRACE_S, UNKNOWN_ISSUER, Claims, Right
from pairbus.errors import ConfigurationError, NotAuthorized
from pairbus.servicebus.tokens import AUDIENCE

ISSUER: Final = "https://sts.pairbus.invalid/"
KEY_FILE: Final = "token-key.pem"
"""Name of the key file in the folder of a namespace or of an emulator."""
_ALGORITHM: Final = "ES256"  # A key for RS256 takes a tenth of a second to create.
_LIFETIME_S: Final = 3600.0


class Role(StrEnum):
    """A built-in role of Azure."""

    SENDER = "Azure Service Bus Data Sender"
    RECEIVER = "Azure Service Bus Data Receiver"
    OWNER = "Azure Service Bus Data Owner"


_RIGHTS = {
    Role.SENDER: frozenset({Right.SEND}),
    Role.RECEIVER: frozenset({Right.LISTEN}),
    Role.OWNER: frozenset(Right),
}


class IssuedToken(NamedTuple):
    """A token and its expiry in seconds since 1970, with the names of azure-core's AccessToken."""

    token: str
    expires_on: int


class TokenIssuer:
    """Issues and verifies tokens with the key in a file, which is created if it does not exist."""

    def __init__(self, key_file: Path | str, *, now_ms: Callable[[], int] | None = None) -> None:
        """`now_ms` is the clock in milliseconds since 1970; None is that of the system. Raises
        ConfigurationError if the file is not a key of the emulator."""
        self.key_file = Path(key_file).absolute()
        self._now_ms = _system_ms if now_ms is None else now_ms
        self._key = _load_key(self.key_file)

    def issue(
        self,
        *roles: Role | str,
        audience: str = AUDIENCE,
        lifetime_s: float = _LIFETIME_S,
        starts_in_s: float = 0.0,
    ) -> IssuedToken:
        """Return a new token with these roles. It is valid from `starts_in_s` seconds from now."""
        import jwt  # not at the start of every emulator

        now = self._now_ms() / 1000
        expires_on = int(now + starts_in_s + lifetime_s)
        claims = {
            "iss": ISSUER,
            "aud": audience,
            "iat": int(now),
            "nbf": int(now + starts_in_s),
            "exp": expires_on,
            "jti": str(uuid4()),
            "roles": [Role(role).value for role in roles],
        }
        return IssuedToken(jwt.encode(claims, self._key, algorithm=_ALGORITHM), expires_on)

    def credential(
        self, *roles: Role | str, lifetime_s: float = _LIFETIME_S
    ) -> "EmulatorCredential":
        """Return a credential for the sync SDK. Without roles it has the role Data Owner."""
        return EmulatorCredential(self, roles or (Role.OWNER,), lifetime_s)

    def async_credential(
        self, *roles: Role | str, lifetime_s: float = _LIFETIME_S
    ) -> "AsyncEmulatorCredential":
        """Return a credential for the async SDK. Without roles it has the role Data Owner."""
        return AsyncEmulatorCredential(self.credential(*roles, lifetime_s=lifetime_s))

    @property
    def identity_header(self) -> str:
        """The secret for tokens over HTTP (`IDENTITY_HEADER` of azure-identity)."""
        key = self._key.private_numbers().private_value.to_bytes(32, "big")
        return hashlib.sha256(b"identity header" + key).hexdigest()

    def verify(self, token: str, now: float) -> Claims:
        """Return the claims of a token. Raises NotAuthorized."""
        import jwt

        try:
            claims = jwt.decode(
                token,
                self._key.public_key(),
                algorithms=[_ALGORITHM],
                audience=[AUDIENCE, f"{AUDIENCE}/"],
                issuer=ISSUER,
                # The time is that of the namespace, and is checked below.
                options={
                    "require": ["exp", "nbf"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
            starts_at, expires_at = float(claims["nbf"]), float(claims["exp"])
        except jwt.InvalidSignatureError:
            raise NotAuthorized("InvalidSignature: the token has an invalid signature") from None
        except jwt.InvalidAudienceError:
            raise NotAuthorized(
                f"InvalidAudience: the audience of the token is not {AUDIENCE}"
            ) from None
        except (jwt.PyJWTError, TypeError, ValueError):  # its text can quote the token
            raise NotAuthorized(UNKNOWN_ISSUER) from None
        if now < starts_at - GRACE_S:
            raise NotAuthorized("InvalidToken: the token is not valid yet")
        return Claims(
            issuer=ISSUER, path="", rights=_rights_of(claims.get("roles")), expires_at=expires_at
        )


class EmulatorCredential:
    """A `TokenCredential`. Each call issues a new token."""

    def __init__(self, issuer: TokenIssuer, roles: Iterable[Role | str], lifetime_s: float) -> None:
        self._issuer = issuer
        self._roles = tuple(Role(role) for role in roles)
        self._lifetime_s = lifetime_s

    def get_token(self, *scopes: str, **options: object) -> IssuedToken:
        """Return a token for the first scope."""
        audience = (scopes[0] if scopes else AUDIENCE).removesuffix("/.default")
        return self._issuer.issue(*self._roles, audience=audience, lifetime_s=self._lifetime_s)

    def close(self) -> None:
        """Do nothing. Credentials of azure-identity close their connections here."""


class AsyncEmulatorCredential:
    """An `AsyncTokenCredential`."""

    def __init__(self, credential: EmulatorCredential) -> None:
        self._credential = credential

    async def __aenter__(self) -> "AsyncEmulatorCredential":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def get_token(self, *scopes: str, **options: object) -> IssuedToken:
        """Return a token for the first scope."""
        return self._credential.get_token(*scopes, **options)

    async def close(self) -> None:
        """Do nothing. Credentials of azure-identity close their connections here."""


def _system_ms() -> int:
    return time.time_ns() // 1_000_000


def _rights_of(roles: Any) -> frozenset[Right]:
    """Return the rights of all roles. Unknown roles grant none."""
    known = [role for role in Role if isinstance(roles, list) and role in roles]
    return frozenset().union(*(_RIGHTS[role] for role in known))


def _load_key(file: Path) -> ec.EllipticCurvePrivateKey:
    if not file.exists():
        _create_key(file)
    try:
        key = load_pem_private_key(file.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigurationError(
            f"{file} is not a key of the emulator. Delete it to get a new one."
        )
    return key


def _create_key(file: Path) -> None:
    """Create the file unless another process does so at the same time."""
    key = ec.generate_private_key(ec.SECP256R1())
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    temporary = file.with_name(f"{file.name}.{uuid4().hex}.new")
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
        with contextlib.suppress(FileExistsError):
            file.hardlink_to(temporary)
    finally:
        temporary.unlink()
