"""The commands `pairbus console` and `pairbus console token`."""

import json
import re
import ssl
from pathlib import Path

import pytest

from pairbus.console.server import open_listener
from tests.backlog import Backlog
from tests.commands import LOCAL, TWO, run, run_here, started
from tests.console_client import ConsoleClient
from tests.messages import numbered
from tests.waiting import wait_until

LINK = re.compile(r"(http://127\.0\.0\.1:(\d+)/)#token=(\S+)")


def options(backlog: Backlog, folder: Path) -> tuple[str, ...]:
    return ("--port", "0", "--folder", str(folder), "--no-ledger", *backlog.arguments)


@pytest.mark.rule("O2", "O3")
def test_console_prints_a_link_for_one_login(backlog: Backlog, tmp_path: Path):
    backlog.put(backlog.path("orders"), numbered(7))
    arguments = ("console", *options(backlog, tmp_path))
    with started(*arguments, **backlog.variables) as console:
        line = console.read_until("#token=")
        match = LINK.search(line)
        assert match is not None
        browser = ConsoleClient(int(match[2]))

        assert browser.login(match[3]).status == 200
        assert ConsoleClient(int(match[2])).login(match[3]).status == 401
        wait_until(
            lambda: browser.get("/api/state").json["backlog"]["messages"] == 7,
            "the backlog to be counted",
        )
        console.interrupt()
        status, _, err = console.wait()

    assert (status, err) == (0, "")
    assert {"key", "audit.jsonl", f"{backlog.name}.sqlite3"} <= {
        file.name for file in tmp_path.iterdir()
    }


@pytest.mark.rule("O3")
def test_tokens_of_the_command_have_roles(backlog: Backlog, tmp_path: Path):
    tokens = {
        role: run("console", "token", "--role", role, "--folder", str(tmp_path)).stdout.strip()
        for role in ("sender", "viewer", "operator")
    }
    arguments = ("console", "--json", *options(backlog, tmp_path))
    with started(*arguments, **backlog.variables) as console:
        address = json.loads(console.read_until("{"))
        port = int(address["url"].rsplit(":")[-1].strip("/"))

        statuses = {
            role: ConsoleClient(port, token=token).get("/api/state").status
            for role, token in tokens.items()
        }

    assert statuses == {"sender": 403, "viewer": 200, "operator": 200}
    assert address["ca_file"] is None


@pytest.mark.rule("O3")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org"])
def test_address_that_others_can_reach_needs_tls(tmp_path: Path, host: str):
    result = run_here(
        "console", "--host", host, "--folder", str(tmp_path), "--primary-name", "one",
        PAIRBUS_SECONDARY=TWO,
    )  # fmt: skip

    assert result.exit_code == 2
    assert "needs TLS" in result.stderr


@pytest.mark.rule("O3")
def test_address_with_tls_prints_no_login_link(backlog: Backlog, tmp_path: Path):
    arguments = ("console", "--json", "--host", "0.0.0.0", "--emulator-certificate")
    token = run("console", "token", "--role", "viewer", "--folder", str(tmp_path)).stdout.strip()
    with started(*arguments, *options(backlog, tmp_path), **backlog.variables) as console:
        address = json.loads(console.read_until("{"))
        context = ssl.create_default_context(cafile=address["ca_file"])
        port = int(address["url"].rsplit(":")[-1].strip("/"))
        client = ConsoleClient(port, token=token, tls=context, host=f"localhost:{port}")

        assert address["login_url"] is None
        assert address["url"].startswith("https://")
        assert client.get("/api/state").status == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("token", "--role", "admin"), "'admin' is not valid"),
        (("token", "--role", "viewer", "--valid", "soon"), "--valid must be a duration"),
        (("token", "--role", "viewer", "--valid", "900d"), "at most 366 days"),
        (("--primary-name", "one"), "--secondary is missing"),
        (("--secondary", TWO), "--primary-name"),
        (("--secondary", TWO, "--primary-name", "one", "--tier", "gold"), "Unknown tier"),
        (("--secondary", TWO, "--primary", LOCAL), "does not name a namespace"),
        (
            ("--secondary", TWO, "--primary-name", "one", "--tls-cert", "/none.pem"),
            "/none.pem cannot be used",
        ),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, arguments: tuple[str, ...], message: str):
    folder = ("--folder", str(tmp_path))
    is_token = arguments[0] == "token"
    result = run_here(
        "console", *(arguments if is_token else folder), *(folder if is_token else arguments)
    )

    assert result.exit_code == 2
    assert message in result.stderr


def test_port_that_is_taken_is_refused(tmp_path: Path):
    listener = open_listener("127.0.0.1", 0)
    try:
        result = run_here(
            "console", "--port", str(listener.getsockname()[1]), "--folder", str(tmp_path),
            "--no-ledger", "--primary-name", "one", PAIRBUS_SECONDARY=TWO,
        )  # fmt: skip
    finally:
        listener.close()

    assert result.exit_code == 2
    assert "Use another port" in result.stderr
