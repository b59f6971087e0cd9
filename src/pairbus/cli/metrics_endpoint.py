"""The endpoint of a command for Prometheus."""

import socket
import ssl
from collections.abc import Callable, Iterable

from rich.console import Console

from pairbus.servicebus.addresses import format_address
from pairbus.telemetry.metrics_request import PATH
from pairbus.telemetry.metrics_server import MetricsServer, PublishedMetrics
from pairbus.telemetry.samples import Sample

Publish = Callable[[Iterable[Sample]], None]


class MetricsEndpoint:
    """An endpoint that listens. It answers from the start of a `with` block to its end."""

    def __init__(
        self, host: str, listener: socket.socket, token: str | None, tls: ssl.SSLContext | None
    ) -> None:
        self._host = host
        self._has_tls = tls is not None
        self._port: int = listener.getsockname()[1]
        self._metrics = PublishedMetrics()
        self._server = MetricsServer(self._metrics, listener, token=token, tls=tls)
        self.publish: Publish = self._metrics.publish
        """Replaces the metrics that are served."""

    @property
    def url(self) -> str:
        """The address of the metrics."""
        scheme = "https" if self._has_tls else "http"
        return f"{scheme}://{format_address(self._host, self._port)}{PATH}"

    def announce(self, out: Console) -> None:
        """Print the address."""
        out.print(f"Metrics for Prometheus: {self.url}", markup=False)

    def __enter__(self) -> "MetricsEndpoint":
        self._server.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.__exit__(*exc)
