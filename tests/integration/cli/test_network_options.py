"""`--transport`, `--proxy` and `--ca-file` of the commands."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backlog import Backlog
from tests.commands import ONE, TWO, run_here
from tests.messages import message
from tests.proxies import PASSWORD, USERNAME, ProxyProcess

StartProxy = Callable[..., ProxyProcess]
COMMANDS = (["status"], ["backlog", "list"], ["backlog", "peek"], ["backlog", "destinations"])
commands = pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
NETWORK_VARIABLES = ("PAIRBUS_TRANSPORT", "PAIRBUS_PROXY", "PAIRBUS_CA_FILE")


@pytest.fixture(autouse=True)
def _no_network_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NETWORK_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def ca_file(backlog: Backlog, tmp_path: Path) -> str:
    """The certificates of both namespaces in one file."""
    files = [Path(namespace.ca_file) for namespace in (backlog.primary, backlog.secondary)]
    path = tmp_path / "ca.pem"
    path.write_text("".join(file.read_text() for file in files))
    return str(path)


def with_tls(backlog: Backlog) -> dict[str, str]:
    return {
        name: value.replace("UseDevelopmentEmulator=true;", "")
        for name, value in backlog.variables.items()
    }


@pytest.mark.rule("A2", "A3", "A4")
@pytest.mark.parametrize("transport", ["tcp", "websocket"])
@commands
def test_command_uses_the_transport_the_proxy_and_the_ca_file(
    backlog: Backlog, start_proxy: StartProxy, ca_file: str, command: list[str], transport: str
) -> None:
    backlog.put("orders", [message("m")])
    process = start_proxy(protected=True)
    url = f"http://{USERNAME}:{PASSWORD}@127.0.0.1:{process.port}"

    result = run_here(
        *command,
        *backlog.arguments,
        *("--transport", transport, "--ca-file", ca_file),
        **with_tls(backlog),
        PAIRBUS_PROXY=url,
    )

    assert (result.exit_code, result.stderr) == (3 if command == ["status"] else 0, "")
    assert "1" in result.stdout
    assert f"localhost:{backlog.secondary.port}" in process.targets


@pytest.mark.rule("A1")
@pytest.mark.parametrize("command", [*COMMANDS, ["syphon", "--dry-run"]], ids=" ".join)
def test_command_takes_hosts_and_the_default_credential(
    backlog: Backlog, ca_file: str, command: list[str]
) -> None:
    if "syphon" in command:
        backlog.arguments = backlog.arguments[:-2]  # no --timeout
    backlog.put("orders", [message("m")])
    hosts = {
        f"PAIRBUS_{role.upper()}": f"localhost:{getattr(backlog, role).port}"
        for role in ("primary", "secondary")
    }

    result = run_here(
        *command,
        *backlog.arguments,
        *("--ca-file", ca_file),
        **hosts,
        AZURE_TOKEN_CREDENTIALS="ManagedIdentityCredential",
        IDENTITY_ENDPOINT=backlog.primary.identity_endpoint,
        IDENTITY_HEADER=backlog.primary.token_issuer.identity_header,
    )

    assert (result.exit_code, result.stderr) == (3 if command == ["status"] else 0, "")
    assert "1" in result.stdout


@pytest.mark.rule("A1")
@pytest.mark.parametrize("command", [*COMMANDS, ["syphon"]], ids=" ".join)
def test_host_without_azure_identity_is_one_sentence(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.amqp.client.default_credential.find_spec", lambda name: None)

    result = run_here(*command, "--primary", ONE, "--secondary", "two.servicebus.windows.net")

    assert result.exit_code == 2
    assert result.stderr == (
        "A host instead of a connection string needs azure-identity. Run: pip install "
        "'pairbus[entra]'\n"
    )


def test_wrong_password_of_the_proxy_is_one_sentence(
    backlog: Backlog, start_proxy: StartProxy
) -> None:
    process = start_proxy(protected=True)
    url = f"http://{USERNAME}:wrong-one@127.0.0.1:{process.port}"

    result = run_here("backlog", "list", *backlog.arguments, "--proxy", url, **backlog.variables)

    assert result.exit_code == 1
    assert result.stderr == (
        f"The backlog could not be read: proxy 127.0.0.1:{process.port} rejected the user name or "
        "the password (401 Unauthorized). Correct them in the URL of the proxy.\n"
    )


def test_namespace_of_an_unknown_ca_is_an_error(backlog: Backlog) -> None:
    variables = with_tls(backlog)

    result = run_here("status", *backlog.arguments, **variables)

    assert result.exit_code == 1
    assert "certificate verify failed" in result.stdout


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--transport", "udp"], "--transport: 'udp' is not valid. Use tcp or websocket."),
        (["--proxy", "socks5://me:hidden@proxy"], "--proxy: the URL of the proxy is not"),
        (["--ca-file", "no/such/file"], "--ca-file"),
    ],
)
@pytest.mark.parametrize("command", [*COMMANDS, ["syphon"]], ids=" ".join)
def test_invalid_option_is_an_error_with_exit_status_2(
    command: list[str], options: list[str], error: str
) -> None:
    result = run_here(*command, "--primary", ONE, "--secondary", TWO, *options)

    assert result.exit_code == 2
    assert error in result.stderr
    assert "hidden" not in result.output
