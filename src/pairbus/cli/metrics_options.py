"""The options of the endpoint for Prometheus."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairbus.console_address import is_token
from pairbus.errors import ConfigurationError
from pairbus.listeners import is_loopback_host, open_listener, tls_context

if TYPE_CHECKING:
    from pairbus.cli.metrics_endpoint import MetricsEndpoint

DEFAULT_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsOptions:
    """The options of the endpoint."""

    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Serve metrics for Prometheus on this port, at /metrics. 0: a free one.",
            min=0,
            max=65535,
        ),
    ] = None
    metrics_host: Annotated[
        str,
        typer.Option(
            help="Address of --metrics-port. One that other machines can reach needs TLS and a "
            "token, because metrics name destinations."
        ),
    ] = DEFAULT_HOST
    metrics_token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that a scrape must send: `credentials_file` in the "
            "configuration of Prometheus.",
            dir_okay=False,
        ),
    ] = None
    metrics_tls_cert: Annotated[
        Path | None,
        typer.Option(
            help="PEM file with a certificate, to serve metrics with TLS.", dir_okay=False
        ),
    ] = None
    metrics_tls_key: Annotated[
        Path | None,
        typer.Option(
            help="PEM file with the private key, if it is not in --metrics-tls-cert.",
            dir_okay=False,
        ),
    ] = None

    def open(self) -> "MetricsEndpoint | None":
        """Return the endpoint, or None without --metrics-port. Raises ConfigurationError if an
        option is not valid, or if the port is taken."""
        from pairbus.cli.metrics_endpoint import MetricsEndpoint

        if self.metrics_port is None:
            self._check_not_used()
            return None
        if not is_loopback_host(self.metrics_host):
            self._check_protected()
        token = None
        if self.metrics_token_file is not None:
            token = read_token(self.metrics_token_file)
        tls = None
        if self.metrics_tls_cert is not None:
            key = self.metrics_tls_key
            tls = tls_context(str(self.metrics_tls_cert), None if key is None else str(key))
        elif self.metrics_tls_key is not None:
            raise ConfigurationError("--metrics-tls-key needs --metrics-tls-cert FILE.")
        listener = open_listener(self.metrics_host, self.metrics_port, "The metrics endpoint")
        return MetricsEndpoint(self.metrics_host, listener, token, tls)

    def _check_protected(self) -> None:
        values = {
            "--metrics-token-file FILE": self.metrics_token_file,
            "--metrics-tls-cert FILE": self.metrics_tls_cert,
        }
        missing = [name for name, value in values.items() if value is None]
        if missing:
            raise ConfigurationError(
                f"Other machines can reach {self.metrics_host}, and metrics name destinations. Add "
                f"{' and '.join(missing)}, or listen on {DEFAULT_HOST}."
            )

    def _check_not_used(self) -> None:
        values = {
            "--metrics-host": self.metrics_host != DEFAULT_HOST,
            "--metrics-token-file": self.metrics_token_file is not None,
            "--metrics-tls-cert": self.metrics_tls_cert is not None,
            "--metrics-tls-key": self.metrics_tls_key is not None,
        }
        for name, is_used in values.items():
            if is_used:
                raise ConfigurationError(f"{name} needs --metrics-port PORT.")


def read_token(path: Path) -> str:
    """Return the token in a file. Raises ConfigurationError."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as exc:
        raise ConfigurationError(f"--metrics-token-file: {path} cannot be read: {exc}.") from exc
    if not is_token(token):
        raise ConfigurationError(
            f"--metrics-token-file: {path} must contain a token of 1 to 4096 ASCII characters "
            "without spaces."
        )
    return token
