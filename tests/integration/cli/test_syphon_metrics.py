"""`pairbus syphon --metrics-port` before Spark starts."""

import socket
from pathlib import Path

import pytest

from tests.commands import ONE, TWO, run_here

pytestmark = pytest.mark.rule("O1")

PAIRING = ("--primary", ONE, "--secondary", TWO, "--no-ledger")


def refused(*options: str) -> str:
    result = run_here("syphon", *PAIRING, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    return " ".join(result.stderr.split())


def test_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        error = refused("--metrics-port", str(port))

    assert error == (
        f"The metrics endpoint cannot listen on 127.0.0.1 port {port}: Address already in use. "
        "Use another port."
    )


@pytest.mark.rule("O3")
def test_address_that_other_machines_can_reach_needs_tls_and_a_token() -> None:
    error = refused("--metrics-port", "0", "--metrics-host", "0.0.0.0")

    assert "Add --metrics-token-file FILE and --metrics-tls-cert FILE, or listen" in error


def test_token_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    error = refused("--metrics-port", "0", "--metrics-token-file", str(tmp_path / "token"))

    assert error.startswith(f"--metrics-token-file: {tmp_path / 'token'} cannot be read: ")


def test_endpoint_is_closed_if_the_command_fails(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    options = ("--metrics-port", str(port))
    result = run_here("syphon", *PAIRING, *options, PATH=str(tmp_path), JAVA_HOME="")

    assert (result.exit_code, "Spark needs Java" in result.stderr) == (1, True)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 10)


def test_token_file_without_the_port_is_refused() -> None:
    assert refused("--metrics-token-file", "token").endswith("needs --metrics-port PORT.")
