"""Options of several commands that tell how to reach the namespaces."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from pairbus.amqp.client.options import TransportKind
from pairbus.errors import ConfigurationError
from pairbus.servicebus.proxy import Proxy

Transport = Annotated[
    str,
    typer.Option(
        "--transport",
        envvar="PAIRBUS_TRANSPORT",
        metavar="[tcp|websocket]",
        help="tcp: AMQP over TCP, port 5671. websocket: AMQP over WebSockets, port 443.",
        show_envvar=True,
    ),
]
ProxyUrl = Annotated[
    str | None,
    typer.Option(
        "--proxy",
        envvar="PAIRBUS_PROXY",
        metavar="URL",
        help="HTTP proxy for both namespaces, such as http://proxy:3128. Prefer the variable "
        "PAIRBUS_PROXY for a URL with a user name and a password.",
        show_envvar=True,
        show_default="none; HTTPS_PROXY for websocket and administration",
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        envvar="PAIRBUS_CA_FILE",
        help="File with the CA certificates to trust for both namespaces.",
        show_envvar=True,
        show_default="those of the system",
        exists=True,
        dir_okay=False,
    ),
]


def check_ca_file(path: Path) -> None:
    """Raise ConfigurationError if a file has no certificates. Otherwise each connection would fail,
    as if its namespace were not available."""
    try:
        ssl.create_default_context(cafile=path)
    except OSError as exc:  # also ssl.SSLError
        is_read = isinstance(exc, ssl.SSLError)
        reason = "it has no certificate in PEM format" if is_read else exc.strerror
        raise ConfigurationError(
            f"--ca-file: {path} cannot be used: {reason}. Use a PEM file with the CA certificates."
        ) from exc


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """These options, as a group of a command."""

    transport: Transport = "tcp"
    proxy: ProxyUrl = None
    ca_file: CaFile = None

    def client_fields(self) -> dict[str, Any]:
        """Return the fields of ClientOptions. Raises ConfigurationError."""
        if self.transport not in get_args(TransportKind):
            raise ConfigurationError(
                f"--transport: {self.transport!r} is not valid. Use tcp or websocket."
            )
        try:
            proxy = None if not self.proxy else Proxy.from_url(self.proxy)
        except ConfigurationError as exc:
            raise ConfigurationError(f"--proxy: {exc}.") from None
        if self.ca_file is not None:
            check_ca_file(self.ca_file)
        return {
            "transport": self.transport,
            "proxy": proxy,
            # Spark workers have other working directories.
            "ca_file": None if self.ca_file is None else str(self.ca_file.absolute()),
        }
