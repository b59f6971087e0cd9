"""Who may do what: shared access rules, the tokens they sign, and the rights that a token carries.

A shared access signature is checked in full: its signature against both keys of the rule that it
names, its expiry, and what it covers. A token for the namespace covers every entity; one for an
entity covers what lies below it (`/Subscriptions/x`, `/$management`, `/$DeadLetterQueue`). The host
is not compared: a local namespace is reached by many names.

Other tokens (the JWTs of Microsoft Entra ID) are signed by somebody whose keys are not at hand.
They are refused, unless the namespace was told to trust them unseen.

Tokens and keys are in no `repr` and in no error.
"""

import base64
import binascii
import hmac
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from urllib.parse import quote_plus, unquote_plus

from pairbus.errors import ConfigurationError, NotAuthorized
from pairbus.servicebus.entity_paths import covers, normalize_path, path_from_address

GRACE_S = 300.0
"""How long an expired token still counts: the SDK's administration client renews its token only
60 seconds after it has expired."""

MAX_TOKEN = 16384
_SIGNATURE, _BEARER = "sharedaccesssignature", "bearer"


class Right(StrEnum):
    """What a rule grants."""

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
                f"the name of an authorization rule has 1 to 256 characters, not {len(self.name)}"
            )
        for which, key in (("primary", self.primary_key), ("secondary", self.secondary_key)):
            if key is not None and not 1 <= len(key) <= 256:
                raise ConfigurationError(
                    f"the {which} key of rule {self.name!r} has 1 to 256 characters, not {len(key)}"
                )
        if not self.rights:
            raise ConfigurationError(f"rule {self.name!r} grants nothing: give it a right")
        if Right.MANAGE in self.rights and self.rights != frozenset(Right):
            raise ConfigurationError(
                f"rule {self.name!r} grants Manage, and so has to grant Send and Listen too"
            )

    def has_key(self, key: str) -> bool:
        """Whether it is one of the two keys, compared in constant time."""
        return any(hmac.compare_digest(own.encode(), key.encode()) for own in self._keys())

    def signed(self, text: str, signature: bytes) -> bool:
        """Whether one of the two keys gives this signature over the text."""
        made = (hmac.digest(key.encode(), text.encode(), "sha256") for key in self._keys())
        return any(hmac.compare_digest(one, signature) for one in made)

    def _keys(self) -> list[str]:
        return [key for key in (self.primary_key, self.secondary_key) if key is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a token or a key gives: rights over a path and all below it, until a time."""

    who: str
    """The name of the rule, for logs."""
    path: str
    """Empty: the whole namespace."""
    rights: frozenset[Right]
    expires_at: float = math.inf
    """Seconds since 1970, as the token says."""

    def allows(self, path: str, right: Right) -> bool:
        return right in self.rights and covers(self.path, path)

    def expired(self, now: float, grace_s: float = GRACE_S) -> bool:
        return now >= self.expires_at + grace_s


class Authority:
    """Turns tokens and keys into claims. `entity_rules` gives the rules of an entity by its path
    (in lower case), none where there is no entity."""

    def __init__(
        self,
        rules: Iterable[SharedAccessRule],
        *,
        entity_rules: Callable[[str], Iterable[SharedAccessRule]] = lambda _: (),
        trust_bearer_tokens: bool = False,
    ) -> None:
        self._rules = tuple(rules)
        self._entity_rules = entity_rules
        self._trust_bearer_tokens = trust_bearer_tokens

    def claims_of_token(self, token: str, now: float) -> Claims:
        """What a token from CBS or from an Authorization header gives. Its kind is told by its
        content: the SDK sends shared access signatures over CBS with type `jwt`.

        Raises NotAuthorized where it is malformed, expired, signed by nobody known, or not ours.
        """
        token = token.strip()
        scheme, _, rest = token.partition(" ")
        if scheme.lower() == _BEARER:
            # The SDK's administration client also calls a signature that it was given a bearer.
            token = rest.strip()
            scheme, _, rest = token.partition(" ")
        if not token:
            raise NotAuthorized("MissingToken: the request carries no token")
        if len(token) > MAX_TOKEN:
            raise NotAuthorized(f"MalformedToken: a token has at most {MAX_TOKEN} characters")
        if scheme.lower() == _SIGNATURE:
            claims = self._claims_of_signature(rest)
        elif self._trust_bearer_tokens:
            expiry = _expiry_of_jwt(token)
            claims = Claims(who="bearer", path="", rights=frozenset(Right), expires_at=expiry)
        else:
            raise NotAuthorized(
                "InvalidIssuer: this is not a shared access signature, and a local namespace "
                "cannot check tokens of Microsoft Entra ID; use a shared access key, or start the "
                "namespace with trust_bearer_tokens"
            )
        if claims.expired(now):
            raise NotAuthorized(f"ExpiredToken: the token of {claims.who!r} has expired")
        return claims

    def claims_of_key(self, name: str, key: str) -> Claims:
        """What SASL PLAIN gives, where the user is a rule of the namespace and the password one of
        its keys. Raises NotAuthorized."""
        for rule in self._rules:
            if rule.name == name and rule.has_key(key):
                return Claims(who=rule.name, path="", rights=rule.rights)
        raise NotAuthorized("no rule of the namespace has this name and this key")

    def _claims_of_signature(self, text: str) -> Claims:
        fields = _fields(text)
        resource, expiry = fields["sr"], fields["se"]
        try:
            signature = base64.b64decode(unquote_plus(fields["sig"]), validate=True)
        except (binascii.Error, ValueError):
            raise NotAuthorized("MalformedToken: sig is not base64") from None
        if not (expiry.isascii() and expiry.isdecimal() and len(expiry) <= 15):
            raise NotAuthorized("MalformedToken: se is not a number of seconds since 1970")
        path = _resource_path(resource)
        # The SDK encodes the name twice.
        names = {unquote_plus(fields["skn"]), unquote_plus(unquote_plus(fields["skn"]))}
        for rule in self._rules_over(path):
            if rule.name not in names:
                continue
            for spelled in _spellings(resource):
                if rule.signed(f"{spelled}\n{expiry}", signature):
                    return Claims(
                        who=rule.name, path=path, rights=rule.rights, expires_at=float(expiry)
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
    """The four fields of a signature, still encoded: the signature is over the encoded resource."""
    fields: dict[str, str] = {}
    for part in text.split("&"):
        name, _, value = part.partition("=")
        name = name.strip().lower()
        if name in fields:
            raise NotAuthorized(f"MalformedToken: {name[:8]} is there twice")
        fields[name] = value.strip()
    for name in ("sr", "sig", "se", "skn"):
        if not fields.get(name):
            raise NotAuthorized(f"MalformedToken: the signature has no {name}=…")
    return fields


def _resource_path(resource: str) -> str:
    """The path in `sr`, with or without scheme, in the form that `normalize_path` gives."""
    address = unquote_plus(resource)
    if "://" not in address:
        address = f"sb://{address}"
    return normalize_path(path_from_address(address))


def _spellings(resource: str) -> list[str]:
    """What may have been signed: the resource as it was sent, or encoded with capital letters, as
    Python does, or small ones, as .NET does."""
    encoded = quote_plus(unquote_plus(resource))
    small = "%".join(
        [
            part if not at else part[:2].lower() + part[2:]
            for at, part in enumerate(encoded.split("%"))
        ]
    )
    return list(dict.fromkeys((resource, encoded, small)))


def _expiry_of_jwt(token: str) -> float:
    """What an unchecked token says of its expiry; never, where it says nothing."""
    parts = token.split(".")
    if len(parts) != 3:
        return math.inf
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return math.inf
    expiry = claims.get("exp") if isinstance(claims, dict) else None
    return float(expiry) if isinstance(expiry, int) and 0 <= expiry < 10**15 else math.inf
