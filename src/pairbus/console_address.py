"""The address of a console, and the token that a sender shows it. No I/O."""

import ipaddress
import re
from dataclasses import dataclass
from typing import TypeGuard
from urllib.parse import urlsplit

from pairbus.errors import ConfigurationError

_PRINTABLE = re.compile(r"[\x21-\x7e]+")
"""ASCII without spaces and control characters, which could add headers to a request."""
_MAX_TOKEN = 4096


@dataclass(frozen=True, slots=True)
class ConsoleAddress:
    """The host and port of a console, and the path below which it is served."""

    host: str
    port: int
    tls: bool
    path: str = ""
    """Without a slash at the end; empty if the console is served at the root."""

    @property
    def is_loopback(self) -> bool:
        """True if the console runs on this computer."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.path}"


def parse_console_address(url: object) -> ConsoleAddress:
    """Return the address of a console. Raises ConfigurationError, whose text does not repeat the
    URL: it may contain a password."""
    if not isinstance(url, str):
        raise ConfigurationError(f"console must be a URL, not {type(url).__name__}")
    if not _PRINTABLE.fullmatch(url):
        raise ConfigurationError("console must be a URL in ASCII, without spaces")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError as exc:
        raise ConfigurationError("console is not a valid URL: check its host and port") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigurationError("console must be a URL such as https://console.example.com")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError("console must not contain a password. Use console_token.")
    if parts.query or parts.fragment:
        raise ConfigurationError("console must be a URL without a query and a fragment")
    tls = parts.scheme == "https"
    default_port = 443 if tls else 80
    address = ConsoleAddress(
        host, default_port if port is None else port, tls, parts.path.rstrip("/")
    )
    if not tls and not address.is_loopback:
        raise ConfigurationError(
            f"console must use https, because {host} is not a loopback address: the token would "
            "be sent in clear text"
        )
    return address


def check_console_options(
    console: object, token: object, ca_file: object, application: object
) -> None:
    """Check the options of reports to a console. Raises ConfigurationError, whose text does not
    contain the token."""
    if console is None:
        for name, value in (
            ("console_token", token),
            ("console_ca_file", ca_file),
            ("console_application", application),
        ):
            if value is not None:
                raise ConfigurationError(f"{name} needs console, the address of the console")
        return
    address = parse_console_address(console)
    if token is None and not address.is_loopback:
        raise ConfigurationError(
            f"console_token is missing: {address.host} is not a loopback address. Create a token "
            "for senders on the console."
        )
    if token is not None and not callable(token) and not is_token(token):
        raise ConfigurationError(
            "console_token must be a string of 1 to 4096 ASCII characters without spaces, or a "
            "function that returns one"
        )
    if ca_file is not None and not address.tls:
        raise ConfigurationError("console_ca_file needs an address that begins with https://")
    if application is not None and (not isinstance(application, str) or not application.strip()):
        raise ConfigurationError("console_application must be a name that is not empty")


def is_token(token: object) -> TypeGuard[str]:
    """Return whether a value can be the token in a header."""
    return (
        isinstance(token, str)
        and len(token) <= _MAX_TOKEN
        and _PRINTABLE.fullmatch(token) is not None
    )
