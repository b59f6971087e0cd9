"""Every code block of the documentation is run by a test, or says why not."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pairbus.cli.app import app
from pairbus.emulator import EmulatorProcess
from tests.documentation import ROOT, Block, blocks_of, pages, pairbus_commands, read_blocks

GENERATED = ROOT / "docs" / "reference" / "cli.md"
TUTORIAL = ROOT / "docs" / "tutorial"
BLOCKS = [block for page in pages() for block in read_blocks(page) if block.is_code]
OWN = [
    block
    for block in BLOCKS
    if block.runner is None
    and block.excuse is None
    and ROOT / block.page != GENERATED
    and TUTORIAL not in (ROOT / block.page).parents
]
"""The blocks that this file runs. Those of the tutorial are run by test_tutorial.py."""
SHELL = [block for block in BLOCKS if block.language in ("bash", "console")]
PAIRED = """
import os

from azure.servicebus import ServiceBusClient
from pairbus import SendAvailabilityOptions, pair_namespace

client = ServiceBusClient.from_connection_string(os.environ["PAIRBUS_PRIMARY"])
options = SendAvailabilityOptions(
    secondary=os.environ["PAIRBUS_SECONDARY"], primary_name=os.environ["PAIRBUS_PRIMARY_NAME"]
)
bus = pair_namespace(client, options)
"""
"""Defines `bus` for examples that are about a paired client, and do not show how to get one."""
TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def emulator() -> Iterator[EmulatorProcess]:
    with EmulatorProcess("orders", "secondary", queues=["orders"]) as emulator:
        yield emulator


@pytest.fixture
def environment(emulator: EmulatorProcess, tmp_path: Path) -> dict[str, str]:
    """The variables of a pairing, in a folder of its own."""
    primary, secondary = emulator.namespaces.values()
    return {
        "PAIRBUS_PRIMARY": primary.connection_string,
        "PAIRBUS_SECONDARY": secondary.connection_string,
        "PAIRBUS_PRIMARY_NAME": "orders",
        "PAIRBUS_BACKLOG_QUEUES": "10",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "COLUMNS": "200",
    }


def of_language(*languages: str) -> pytest.MarkDecorator:
    chosen = [block for block in OWN if block.language in languages]
    return pytest.mark.parametrize("block", chosen, ids=lambda block: block.place)


def undefined(code: str) -> set[str]:
    """Return the names that an example uses and does not assign."""
    names = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)]
    assigned = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return {name.id for name in names} - assigned


def parse_error(arguments: list[str]) -> str | None:
    """Return why a command line of `pairbus` is invalid, without running it."""
    command: Any = get_command(app)
    context, rest = None, arguments
    try:
        while True:
            context = command.make_context("pairbus", list(rest), parent=context)
            rest = [*context._protected_args, *context.args]
            if not hasattr(command, "commands") or not rest:
                return None
            _, command, rest = command.resolve_command(context, rest)
    except Exception as exc:  # noqa: BLE001 any error means that the documentation is wrong
        return f"{type(exc).__name__}: {exc}"


def test_every_block_has_a_language_and_a_runner():
    assert {block.language for block in OWN} <= {"bash", "python", "toml"}
    assert [block.place for block in BLOCKS if not block.language] == []
    assert len(BLOCKS) > 100


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.runner], ids=lambda block: block.place
)
def test_named_test_reads_the_page(block: Block):
    assert block.runner is not None
    text = (ROOT / block.runner).read_text(encoding="utf-8")

    assert Path(block.page).name in text


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables that commands require."""
    monkeypatch.setenv("PAIRBUS_PRIMARY", "one.example")
    monkeypatch.setenv("PAIRBUS_SECONDARY", "two.example")


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.place)
@pytest.mark.usefixtures("addresses")
def test_commands_have_options_that_exist(block: Block):
    commands = pairbus_commands(block.code)

    assert [error for words in commands if (error := parse_error(words))] == []


@of_language("bash")
def test_commands_run(
    block: Block,
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)  # commands may write files
    commands = pairbus_commands(block.code)
    assert commands, f"{block.place} has no command of pairbus. Mark it: <!-- not run: … -->"
    for words in commands:
        result = CliRunner().invoke(app, words, env=environment, input="n\n")
        # 1: a problem is reported; 2: the command line is wrong.
        assert result.exit_code in (0, 1), f"{words}: {result.output}"
        assert result.exception is None or isinstance(result.exception, SystemExit), words


@of_language("python")
def test_examples_in_python_run(block: Block, environment: dict[str, str], tmp_path: Path):
    script = tmp_path / "example.py"
    code = block.code if "bus" not in undefined(block.code) else PAIRED + block.code
    script.write_text(code, encoding="utf-8")
    result = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr


@of_language("toml")
def test_configuration_files_are_valid(block: Block, tmp_path: Path):
    assert tomllib.loads(block.code)
    path = tmp_path / "pairbus.toml"
    path.write_text(block.code, encoding="utf-8")
    (tmp_path / "ca.pem").touch()
    result = CliRunner().invoke(app, ["status", "--config", str(path), "--pairing", "none"])

    assert result.exit_code == 2
    assert "none" in result.output


def test_comment_before_a_block_names_its_test_or_its_reason():
    text = (
        "<!-- run by tests/a.py -->\n```python\n1\n```\n\n"
        "1. Text\n\n   <!-- not run: needs Azure -->\n   ```bash\n   pairbus status\n   ```\n\n"
        "```bash\npairbus status\n```\n"
    )

    first, second, third = blocks_of(text, "a.md")

    assert (first.runner, first.excuse, first.line) == ("tests/a.py", None, 2)
    assert (second.runner, second.excuse, second.code) == (None, "needs Azure", "pairbus status\n")
    assert (third.runner, third.excuse) == (None, None)


@pytest.mark.usefixtures("addresses")
@pytest.mark.parametrize("words", [["status", "--no-such"], ["no-such"], ["backlog", "no-such"]])
def test_invalid_command_lines_are_found(words: list[str]):
    assert parse_error(words)
    assert parse_error(["status", "--timeout", "10"]) is None
