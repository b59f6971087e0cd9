"""Each extra of pairbus works by itself, and a missing package is reported with its extra.

A process in which the packages of all other extras cannot be imported stands for an environment
without them. `make wheel` tests real environments.
"""

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pairbus.extras import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 120.0
SHARED = {
    "console": {"h11", "rich", "typer"},
    "report": {"pandas", "pyarrow", "pyspark"},
    "websocket": {"websockets"},
}
"""Modules that an extra installs, but for which `EXTRAS` names another one."""

BLOCK = """
import sys
from importlib.abc import MetaPathFinder

blocked = set(sys.argv.pop(1).split(","))

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Finder())
"""
COMMAND = "from pairbus.cli import main; main()"
HELP = """
from typer.main import get_command
from typer.testing import CliRunner
from pairbus.cli.app import app

def check(command, *path):
    result = CliRunner().invoke(app, [*path, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage: " in result.stdout
    for name, inner in getattr(command, "commands", {}).items():
        check(inner, *path, name)

check(get_command(app))
"""
SECONDARY = "Endpoint=sb://b.example/;SharedAccessKeyName=k;SharedAccessKey=a2V5"
EMULATOR = """
from pairbus.emulator import EmulatorProcess, LocalNamespace
with LocalNamespace() as namespace:
    namespace.create_queue("orders")
    assert namespace.meter() == {}
    assert namespace.credential().get_token("https://servicebus.azure.net/.default").token
"""
WEBSOCKET = """
from pairbus.amqp.client import ClientOptions
from pairbus.amqp.client.websocket_transport import WebSocketTransport
ClientOptions.from_connection_string(
    "Endpoint=sb://a.example/;SharedAccessKeyName=k;SharedAccessKey=a2V5", transport="websocket"
)
import websocket
"""


def run_with(extra: str, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a program that can import the packages of one extra only."""
    blocked = {module for module, other in EXTRAS.items() if other != extra}
    blocked -= SHARED.get(extra, set())
    return subprocess.run(
        [sys.executable, "-c", BLOCK + program, ",".join(sorted(blocked)), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("extra", "program"),
    [
        ("cli", HELP),
        ("console", "import pairbus.console.assembly, pairbus.console.running"),
        ("emulator", EMULATOR),
        ("report", "import pairbus.cost.report, pairbus.cost.page, pairbus.cost.plots"),
        ("spark", "import pairbus.syphon, pairbus.cost.report"),
        ("websocket", WEBSOCKET),
        ("", "from pairbus import pair_namespace"),
    ],
)
def test_extra_works_by_itself(extra: str, program: str) -> None:
    result = run_with(extra, program)

    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("extra", "program", "arguments", "hint"),
    [
        ("", COMMAND, (), "This command needs the package typer. Run: pip install 'pairbus[cli]'"),
        (
            "",
            COMMAND,
            ("drill",),
            "This command needs the package typer. Run: pip install 'pairbus[drill]', and install",
        ),
        (
            "",
            COMMAND,
            ("syphon", "--once"),
            "This command needs the package typer. Run: pip install 'pairbus[cli,spark]', and",
        ),
        (
            "",
            COMMAND,
            ("emulator", "stop", "primary"),
            "This command needs the package typer. Run: pip install 'pairbus[cli,emulator]'",
        ),
        (
            "cli",
            COMMAND,
            ("emulator",),
            "This command needs the package lark. Run: pip install 'pairbus[emulator]'",
        ),
        (
            "cli",
            COMMAND,
            ("console", "--secondary", SECONDARY, "--primary-name", "orders"),
            "This command needs the package starlette. Run: pip install 'pairbus[console]'",
        ),
        (  # before it starts or stops any namespace
            "cli",
            COMMAND,
            ("drill",),
            "This command needs the package pyspark. Run: pip install 'pairbus[drill]', and",
        ),
        (
            "cli",
            COMMAND,
            ("drill", "--console"),
            "This command needs the package starlette. Run: pip install 'pairbus[drill]'",
        ),
        (
            "",
            "from pairbus.emulator import LocalNamespace",
            (),
            "The emulator needs the package lark. Run: pip install 'pairbus[emulator]'",
        ),
        (
            "",
            "import pairbus.syphon",
            (),
            "The syphon needs the package pyarrow. Run: pip install 'pairbus[spark]'",
        ),
        (
            "",
            "import pairbus.cost.report",
            (),
            "The cost report needs the package pyspark. Run: pip install 'pairbus[spark]'",
        ),
    ],
)
def test_missing_package_is_reported_with_its_extra(
    extra: str, program: str, arguments: tuple[str, ...], hint: str
) -> None:
    result = run_with(extra, program, *arguments)

    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].removeprefix("ModuleNotFoundError: ").startswith(hint)


def test_every_package_of_an_extra_is_known() -> None:
    modules = packages_distributions()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for extra in set(EXTRAS.values()):
        for line in extras[extra]:
            name = Requirement(line).name
            known = {other.lower() for module in EXTRAS for other in modules.get(module, ())}
            assert name in known | {"pairbus"}, extra
