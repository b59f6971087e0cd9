"""Authorization: shared access rules, the tokens that they sign, and the rights of a token.

A shared access signature is verified in full: the signature with both keys of the rule that it
names, the expiry, and the path that it covers. A token for the namespace covers every entity. One
for an entity also covers the paths below it (`/Subscriptions/x`, `/$management`,
`/$DeadLetterQueue`). A token for the host of another namespace is refused.

Other tokens are verified by the token issuer of the namespace (see `token_issuer`). Those of
Microsoft Entra ID cannot be verified without its keys. They are refused, unless the namespace
trusts all bearer tokens.

Tokens and keys appear in no `repr` and in no error.
"""

import base64
import binascii
import hmac
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from urllib.parse import quote_plus, unquote_plus

from pairbus.errors import ConfigurationError, NotAuthorized
from pairbus.servicebus.entity_paths import (
    covers,
    normalize_path,
    path_from_address,
    without_management_node,
)

GRACE_S = 300.0
"""Time for which an expired token is still accepted. The SDK's administration client renews its
token only 60 seconds after it has expired."""

MAX_TOKEN = 16384
UNKNOWN_ISSUER = (
    "InvalidIssuer: this is neither a shared access signature nor a token of the emulator's issuer."
    " Use one of these, or start the namespace with trust_bearer_tokens."
)
_SIGNATURE, _BEARER = "sharedaccesssignature", "bearer"


class Right(StrEnum):
    """A right that a rule grants."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedAccessRule:
    """A named pair of keys with rights over the namespace or over one entity."""

    name: str
    primary_key: str = field(repr=False)
    secondary_key: str | None = field(default=None, repr=False)
    rights: frozenset[Right] = frozenset(Right)
    created_at: datetime | None = None
    modified_at: datetime | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= 256:
            raise ConfigurationError(
                "The name of an authorization rule must have 1 to 256 characters, not"
                f" {len(self.name)}."
            )
        for kind, key in (("primary", self.primary_key), ("secondary", self.secondary_key)):
            if key is not None and not 1 <= len(key) <= 256:
                raise ConfigurationError(
                    f"The {kind} key of rule {self.name!r} must have 1 to 256 characters, not"
                    f" {len(key)}."
                )
        if not self.rights:
            raise ConfigurationError(f"Rule {self.name!r} grants no right. Add one.")
        if Right.MANAGE in self.rights and self.rights != frozenset(Right):
            raise ConfigurationError(
                f"Rule {self.name!r} grants Manage. It must also grant Send and Listen."
            )

    def has_key(self, key: str) -> bool:
        """Return True if it is one of the two keys, compared in constant time."""
        return any(hmac.compare_digest(own.encode(), key.encode()) for own in self._keys())

    def signed(self, text: str, signature: bytes) -> bool:
        """Return True if one of the two keys has signed the text with this signature."""
        expected = (hmac.digest(key.encode(), text.encode(), "sha256") for key in self._keys())
        return any(hmac.compare_digest(digest, signature) for digest in expected)

    def _keys(self) -> list[str]:
        return [key for key in (self.primary_key, self.secondary_key) if key is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Rights that a token or a key grants, over a path and all paths below it, until a time."""

    issuer: str
    """The name of the rule, for logs."""
    path: str
    """An empty path is the whole namespace."""
    rights: frozenset[Right]
    expires_at: float = math.inf
    """Expiry of the token, in seconds since 1970."""

    def allows(self, path: str, right: Right) -> bool:
        return right in self.rights and covers(self.path, path)

    def expired(self, now: float, grace_s: float = GRACE_S) -> bool:
        return now >= self.expires_at + grace_s


class Authority:
    """Verifies tokens and keys, and returns their claims.

    `entity_rules` returns the rules of an entity by its path in lower case, or none if there is no
    such entity. `accepts_host` returns True if an address is one of this namespace. `verify_bearer`
    returns the claims of a bearer token, or raises NotAuthorized. Without `local_authentication`,
    shared access keys and signatures are refused.
    """

    def __init__(
        self,
        rules: Iterable[SharedAccessRule],
        *,
        entity_rules: Callable[[str], Iterable[SharedAccessRule]] = lambda _: (),
        trust_bearer_tokens: bool = False,
        accepts_host: Callable[[str], bool] = lambda _: True,
        verify_bearer: Callable[[str, float], Claims] | None = None,
        local_authentication: bool = True,
    ) -> None:
        self._verify_bearer = verify_bearer
        self._local_authentication = local_authentication
        self._accepts_host = accepts_host
        self._rules = tuple(rules)
        self._entity_rules = entity_rules
        self._trust_bearer_tokens = trust_bearer_tokens

    def claims_of_token(self, token: str, now: float) -> Claims:
        """Return the claims of a token from CBS or from an Authorization header.

        The kind of token is detected from its content, because the SDK sends shared access
        signatures over CBS with type `jwt`. Raises NotAuthorized if the token is malformed,
        expired, not signed by a known rule, or of another kind.
        """
        token = token.strip()
        scheme, _, rest = token.partition(" ")
        if scheme.lower() == _BEARER:
            # The SDK's administration client sends a ready-made signature as a bearer token.
            token = rest.strip()
            scheme, _, rest = token.partition(" ")
        if not token:
            raise NotAuthorized("MissingToken: the request has no token")
        if len(token) > MAX_TOKEN:
            raise NotAuthorized(f"MalformedToken: the token is longer than {MAX_TOKEN} characters")
        if scheme.lower() == _SIGNATURE:
            self._require_local_authentication()
            claims = self._claims_of_signature(rest)
        elif self._trust_bearer_tokens:
            expiry = _expiry_of_jwt(token)
            claims = Claims(issuer="bearer", path="", rights=frozenset(Right), expires_at=expiry)
        elif self._verify_bearer is not None:
            claims = self._verify_bearer(token, now)
        else:
            raise NotAuthorized(UNKNOWN_ISSUER)
        if claims.expired(now):
            raise NotAuthorized(f"ExpiredToken: the token of {claims.issuer!r} has expired")
        return claims

    def claims_of_key(self, name: str, key: str) -> Claims:
        """Return the claims of SASL PLAIN, with a rule of the namespace as the user and one of its
        keys as the password. Raises NotAuthorized."""
        self._require_local_authentication()
        for rule in self._rules:
            if rule.name == name and rule.has_key(key):
                return Claims(issuer=rule.name, path="", rights=rule.rights)
        raise NotAuthorized("No rule of the namespace has this name and key.")

    def _require_local_authentication(self) -> None:
        if not self._local_authentication:
            raise NotAuthorized(
                "LocalAuthDisabled: shared access keys and signatures are disabled for this "
                "namespace. Use a bearer token."
            )

    def _claims_of_signature(self, text: str) -> Claims:
        fields = _fields(text)
        resource, expiry = fields["sr"], fields["se"]
        try:
            signature = base64.b64decode(unquote_plus(fields["sig"]), validate=True)
        except (binascii.Error, ValueError):
            raise NotAuthorized("MalformedToken: sig is not base64") from None
        if not (expiry.isascii() and expiry.isdecimal() and len(expiry) <= 15):
            raise NotAuthorized("MalformedToken: se is not a number of seconds since 1970")
        address = _resource_address(resource)
        path = _resource_path(address)
        # The SDK encodes the name twice.
        names = {unquote_plus(fields["skn"]), unquote_plus(unquote_plus(fields["skn"]))}
        for rule in self._rules_over(path):
            if rule.name not in names:
                continue
            for spelling in _spellings(resource):
                if rule.signed(f"{spelling}\n{expiry}", signature):
                    if not self._accepts_host(address):
                        raise NotAuthorized("InvalidAudience: the token is for another namespace")
                    return Claims(
                        issuer=rule.name, path=path, rights=rule.rights, expires_at=float(expiry)
                    )
        raise NotAuthorized(
            "InvalidSignature: no rule over this resource has the token's name and signature"
        )

    def _rules_over(self, path: str) -> Iterable[SharedAccessRule]:
        yield from self._rules
        segments = path.split("/") if path else []
        for count in range(1, len(segments) + 1):
            yield from self._entity_rules("/".join(segments[:count]))


def _fields(text: str) -> dict[str, str]:
    """Return the four fields of a signature, still encoded, because the encoded form is signed."""
    fields: dict[str, str] = {}
    for part in text.split("&"):
        name, _, value = part.partition("=")
        name = name.strip().lower()
        if name in fields:
            raise NotAuthorized(f"MalformedToken: {name[:8]} occurs twice")
        fields[name] = value.strip()
    for name in ("sr", "sig", "se", "skn"):
        if not fields.get(name):
            raise NotAuthorized(f"MalformedToken: the signature has no {name}=…")
    return fields


def _resource_address(resource: str) -> str:
    """Return the address in `sr`, which may have a scheme or not."""
    address = unquote_plus(resource)
    return address if "://" in address else f"sb://{address}"


def _resource_path(address: str) -> str:
    """Return the normalized path of an address.

    The JavaScript SDK names the `$management` node for requests about the entity."""
    return without_management_node(normalize_path(path_from_address(address)))


def _spellings(resource: str) -> list[str]:
    """Return the forms of a resource that may have been signed: the resource as it was sent, and
    percent-encoded with upper-case digits (as in Python) and with lower-case ones (as in .NET)."""
    encoded = quote_plus(unquote_plus(resource))
    lower = re.sub("%..", lambda escape: escape[0].lower(), encoded)
    return list(dict.fromkeys((resource, encoded, lower)))


def _expiry_of_jwt(token: str) -> float:
    """Return the expiry that a token claims, or infinity if it has none."""
    parts = token.split(".")
    if len(parts) != 3:
        return math.inf
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return math.inf
    expiry = claims.get("exp") if isinstance(claims, dict) else None
    return float(expiry) if isinstance(expiry, int) and 0 <= expiry < 10**15 else math.inf
