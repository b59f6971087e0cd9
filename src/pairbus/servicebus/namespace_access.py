"""The address of a namespace and the source of its tokens, from a connection string or a host."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pairbus.errors import ConfigurationError
from pairbus.servicebus.addresses import LOCALHOST, parse_ip_address, split_host
from pairbus.servicebus.connection_strings import ConnectionString
from pairbus.servicebus.tokens import (
    Credential,
    HeldCredential,
    TokenCredential,
    TokenSource,
    tokens_from,
)

_HOST_NAME: Final = re.compile(r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*")

AnyCredential = TokenSource | TokenCredential | Callable[[], TokenCredential]
"""A credential of azure-identity, a function that creates one, or a token source of pairbus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceAccess:
    """A namespace, and the tokens for it."""

    host: str
    port: int | None = None
    tls: bool = True
    tokens: TokenSource | None = field(default=None, repr=False)
    entity_path: str | None = None
    """The EntityPath of a connection string."""

    @classmethod
    def parse(cls, text: str, credential: AnyCredential | None = None) -> "NamespaceAccess":
        """Return the access for a connection string, or for a host with a credential. Raises
        ConfigurationError. Its message does not quote the text, which may hold a secret."""
        if is_connection_string(text):
            return cls.from_connection_string(text)
        return cls.from_host(text, credential)

    @classmethod
    def from_connection_string(cls, text: str) -> "NamespaceAccess":
        """Return the access for a connection string. Raises ConfigurationError."""
        parsed = ConnectionString.parse(text)
        return cls(
            host=parsed.host,
            port=parsed.port,
            tls=not parsed.emulator,
            tokens=tokens_from(parsed),
            entity_path=parsed.entity_path,
        )

    @classmethod
    def from_host(cls, text: str, credential: AnyCredential | None) -> "NamespaceAccess":
        """Return the access for a host, such as `contoso.servicebus.windows.net` or `host:port`.
        Raises ConfigurationError."""
        host, port = _parse_host(text)
        if credential is None:
            raise ConfigurationError(f"the host {host} needs a credential")
        return cls(host=host, port=port, tokens=token_source(credential))


def is_connection_string(text: str) -> bool:
    """Return False for the host of a namespace."""
    return "=" in text or ";" in text


def _parse_host(text: str) -> tuple[str, int | None]:
    """Return the host and port of a namespace. Raises ConfigurationError."""
    try:
        host, port = split_host(text)
    except ConfigurationError:
        raise _invalid() from None
    is_address = parse_ip_address(host) is not None
    if not is_address and (
        _HOST_NAME.fullmatch(host) is None
        or not ("." in host or port is not None or host == LOCALHOST)
    ):
        raise _invalid()
    if port is not None and not 0 < port < 65536:
        raise _invalid()
    return host, port


def token_source(credential: AnyCredential) -> TokenSource:
    """Return the token source for a credential. Raises ConfigurationError."""
    given: Any = credential
    if hasattr(given, "get_token") and not inspect.isclass(given):
        if inspect.iscoroutinefunction(given.get_token):
            raise ConfigurationError(
                "the credential is asynchronous. Use one of azure.identity, not azure.identity.aio"
            )
        return HeldCredential(given)
    if hasattr(given, "token") and not inspect.isclass(given):
        source: TokenSource = given
        return source
    if callable(given):
        return Credential(given)
    raise ConfigurationError(
        f"the credential is a {type(given).__name__}, which has no method get_token"
    )


def _invalid() -> ConfigurationError:
    return ConfigurationError(
        "it is neither a connection string nor a host such as contoso.servicebus.windows.net"
    )
