"""docs/reference/cli.md matches the commands, and every command has complete help."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pairbus.cli.app import app
from scripts.cli_docs import OUT_OF_DATE, PAGE, page

ROOT = Path(__file__).resolve().parent.parent


def commands() -> Iterator[tuple[str, ...]]:
    """Yield the words of every command and every group of commands."""

    def visit(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        for name, inner in getattr(command, "commands", {}).items():
            yield from visit(inner, (*words, name))

    yield from visit(get_command(app), ())


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "cli_docs.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONUTF8": "1", **environment},
    )


def test_page_matches_the_commands() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), OUT_OF_DATE


def test_check_fails_for_a_page_that_is_missing_or_out_of_date(tmp_path: Path) -> None:
    copy = tmp_path / "cli.md"

    missing = run("--check", "--page", str(copy))
    written = run("--page", str(copy))
    current = run("--check", "--page", str(copy))
    copy.write_text(copy.read_text(encoding="utf-8").replace("status", "state"), encoding="utf-8")
    outdated = run("--check", "--page", str(copy))

    assert [result.returncode for result in (missing, written, current, outdated)] == [1, 0, 0, 1]
    assert "make docs" in outdated.stderr
    assert missing.stderr == outdated.stderr


def test_page_depends_neither_on_the_terminal_nor_on_the_machine(tmp_path: Path) -> None:
    narrow = run(
        *("--page", str(tmp_path / "a.md")),
        COLUMNS="20",
        HOME=str(tmp_path),
        XDG_STATE_HOME=str(tmp_path / "s"),
    )
    wide = run("--page", str(tmp_path / "b.md"), COLUMNS="500", PAIRBUS_PRIMARY="Endpoint=x")
    text = (tmp_path / "a.md").read_text(encoding="utf-8")

    assert (narrow.returncode, wide.returncode) == (0, 0), narrow.stderr + wide.stderr
    assert text == (tmp_path / "b.md").read_text(encoding="utf-8")
    assert str(ROOT) not in text
    assert str(Path.home()) not in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_help_ends_with_an_example_that_names_the_command(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "300"})
    last = [line.strip() for line in result.stdout.splitlines() if line.strip()][-1]

    assert result.exit_code == 0
    assert re.match(rf"Example: (\S+=… )*pairbus {' '.join(words)}".rstrip(), last), last


def test_page_has_every_option_of_every_command_with_its_variable() -> None:
    text = page()
    for words in commands():
        name = " ".join(("pairbus", *words))
        command: Any = get_command(app)
        for word in words:
            command = command.commands[word]
        if hasattr(command, "commands"):
            continue
        section = text.partition(f"## {name}\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert f"`{parameter.opts[0]}" in section, (name, parameter.opts)
            if parameter.envvar:
                assert f"`{parameter.envvar}`" in section
        assert "Example:" in section


@pytest.mark.parametrize(
    "words", [("status",), ("syphon",), ("backlog", "list"), ("backlog", "destinations")]
)
def test_page_has_the_exit_statuses_of_commands(words: tuple[str, ...]) -> None:
    section = page().partition(f"## pairbus {' '.join(words)}\n")[2].partition("\n## ")[0]

    assert "Exit status:\n\n- `0` " in section
    assert "\n- `2` invalid option\n" in section


def test_shared_options_have_the_same_help_in_all_commands() -> None:
    helps: dict[str, set[str]] = {}
    for line in page().splitlines():
        cells = [cell.strip() for cell in line.split(" | ")]
        if line.startswith("| `--") and cells[-1].rstrip(" |") in (
            "`PAIRBUS_PRIMARY`",
            "`PAIRBUS_SECONDARY`",
        ):
            helps.setdefault(cells[0], set()).add(cells[1])

    assert helps["| `--secondary`"] == {
        (
            "Connection string of the secondary, or its host for Microsoft Entra ID. Pass a "
            "connection string in the variable PAIRBUS_SECONDARY: arguments are visible in process "
            "lists."
        )
    }
    assert all("host" in text and "of the primary" in text for text in helps["| `--primary`"])
