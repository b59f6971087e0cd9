"""docs/cli.md is what the commands say, and every command says what its user needs."""

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
from scripts.cli_docs import PAGE, STALE, page

ROOT = Path(__file__).resolve().parent.parent


def commands() -> Iterator[tuple[str, ...]]:
    """Every command and every group of them, by its words."""

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, (*words, name))

    yield from walk(get_command(app), ())


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "cli_docs.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONUTF8": "1", **environment},
    )


def test_the_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), STALE


def test_a_stale_page_is_named_with_the_command_that_renews_it(tmp_path: Path) -> None:
    copy = tmp_path / "cli.md"

    absent = run("--check", "--page", str(copy))
    written = run("--page", str(copy))
    fresh = run("--check", "--page", str(copy))
    copy.write_text(copy.read_text(encoding="utf-8").replace("status", "state"), encoding="utf-8")
    stale = run("--check", "--page", str(copy))

    assert [one.returncode for one in (absent, written, fresh, stale)] == [1, 0, 0, 1]
    assert "make docs" in stale.stderr
    assert absent.stderr == stale.stderr


def test_the_page_depends_neither_on_the_terminal_nor_on_the_machine(tmp_path: Path) -> None:
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
    ended = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "300"})
    last = [line.strip() for line in ended.stdout.splitlines() if line.strip()][-1]

    assert ended.exit_code == 0
    assert re.match(rf"Example: (\S+=… )*pairbus {' '.join(words)}".rstrip(), last), last


def test_the_page_has_every_option_of_every_command_with_its_variable() -> None:
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
def test_commands_tell_their_exit_statuses(words: tuple[str, ...]) -> None:
    section = page().partition(f"## pairbus {' '.join(words)}\n")[2].partition("\n## ")[0]

    assert "Exit status:\n\n- `0` " in section
    assert "\n- `2` a wrong option\n" in section


def test_options_that_commands_share_are_said_alike() -> None:
    said: dict[str, set[str]] = {}
    for line in page().splitlines():
        cells = [cell.strip() for cell in line.split(" | ")]
        if line.startswith("| `--") and cells[-1].rstrip(" |") in (
            "`PAIRBUS_PRIMARY`",
            "`PAIRBUS_SECONDARY`",
        ):
            said.setdefault(cells[0], set()).add(cells[1])

    assert said["| `--secondary`"] == {
        "Connection string of the secondary; better in the environment."
    }
    assert all("Connection string of the primary; " in one for one in said["| `--primary`"])
