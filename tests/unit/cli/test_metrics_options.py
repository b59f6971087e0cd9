"""The options of the endpoint for Prometheus."""

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pairbus.cli.console import consoles
from pairbus.cli.metrics_endpoint import MetricsEndpoint
from pairbus.cli.metrics_options import MetricsOptions
from pairbus.errors import ConfigurationError

pytestmark = pytest.mark.rule("O1")


def opened(**options: Any) -> MetricsEndpoint:
    endpoint = MetricsOptions(metrics_port=0, **options).open()
    assert endpoint is not None
    return endpoint


def test_no_port_is_no_endpoint() -> None:
    assert MetricsOptions().open() is None


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"metrics_host": "0.0.0.0"}, "--metrics-host"),
        ({"metrics_token_file": Path("token")}, "--metrics-token-file"),
        ({"metrics_tls_cert": Path("cert")}, "--metrics-tls-cert"),
        ({"metrics_tls_key": Path("key")}, "--metrics-tls-key"),
    ],
)
def test_other_options_need_the_port(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} needs --metrics-port PORT"):
        MetricsOptions(**options).open()


def test_loopback_needs_no_token(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = consoles()
    with opened() as endpoint:
        endpoint.announce(out)

    assert capsys.readouterr().out == f"Metrics for Prometheus: {endpoint.url}\n"
    assert endpoint.url.startswith("http://127.0.0.1:")


@pytest.mark.rule("O3")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "syphon.example"])
def test_address_that_other_machines_can_reach_needs_tls_and_a_token(
    host: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    for options, missing in (
        ({}, "--metrics-token-file FILE and --metrics-tls-cert FILE"),
        ({"metrics_token_file": file}, "--metrics-tls-cert FILE"),
        ({"metrics_tls_cert": file}, "--metrics-token-file FILE"),
    ):
        with pytest.raises(ConfigurationError, match=f"reach {host}.* Add {missing}, or listen"):
            opened(metrics_host=host, **options)


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"\xff\xfe", b"x" * 5000])
def test_file_without_a_valid_token_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"^--metrics-token-file: "):
        opened(metrics_token_file=path)


def test_missing_files_are_errors(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for options in (
        {"metrics_token_file": missing},
        {"metrics_tls_cert": missing},
        {"metrics_tls_key": missing},
    ):
        with pytest.raises(ConfigurationError):
            opened(**options)


def test_port_that_is_taken_is_an_error() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port}: .* Use another port"):
            MetricsOptions(metrics_port=port).open()
