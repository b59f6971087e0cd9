"""Write docs/cli.md from the commands themselves.

    cli_docs.py            write the page
    cli_docs.py --check    change nothing; fail if the page is stale

What it says is what `--help` says, whatever the terminal and the machine.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from pairbus.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "cli.md"
STALE = "docs/cli.md is not what the commands say: run 'make docs'."
EXAMPLE, EXIT_STATUS = "Example: ", "Exit status: "
HEAD = """# The command line

`pip install 'pairbus[all]'` brings the command `pairbus`. This page is what its `--help` says; it
is made by `make docs`. Connection strings are best kept in the environment, where no list of
processes shows them.
"""


def page() -> str:
    """The whole page."""
    root = get_command(app)
    context = typer.Context(root, info_name="pairbus")
    sections = list(_sections(root, context))
    toc = [f"- [`{name}`](#{name.replace(' ', '-')}): {line}" for name, line, _ in sections]
    return "\n".join([HEAD, *toc, "", *(text for *_, text in sections)])


def _sections(command: Any, context: Any) -> Iterator[tuple[str, str, str]]:
    """Name, first sentence and text of each command that does something."""
    below = getattr(command, "commands", None)
    if below is None:
        paragraphs = _paragraphs(command.help)
        yield context.command_path, paragraphs[0], _section(command, context, paragraphs)
        return
    for name, inner in below.items():
        yield from _sections(inner, typer.Context(inner, info_name=name, parent=context))


def _section(command: Any, context: Any, paragraphs: list[str]) -> str:
    name = context.command_path
    parts = [f"## {name}", *(one for one in paragraphs if not one.startswith(EXIT_STATUS))]
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    for kind in ("argument", "option"):
        rows = [_row(one) for one in shown if one.param_type_name == kind]
        if rows:
            head = f"| {kind} | | default | environment |\n| --- | --- | --- | --- |"
            parts.append("\n".join([head, *rows]))
    parts += [_exit_statuses(one) for one in paragraphs if one.startswith(EXIT_STATUS)]
    if command.epilog:
        parts.append(f"Example:\n\n```\n{command.epilog.removeprefix(EXAMPLE)}\n```")
    return "\n\n".join(parts) + "\n"


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = parameter.metavar or parameter.name.upper()
    else:
        name = ", ".join((*parameter.opts, *parameter.secondary_opts))
    cells = (
        f"`{name}`",
        " ".join((parameter.help or "").split()),
        _default(parameter),
        f"`{parameter.envvar}`" if parameter.envvar else "",
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(parameter: Any) -> str:
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    if parameter.required:
        return "required"
    default = parameter.default
    if default is None or isinstance(default, bool):
        return ""
    return f"{default:g}" if isinstance(default, float) else str(default)


def _exit_statuses(paragraph: str) -> str:
    """As a list, where it is one."""
    said = paragraph.removeprefix(EXIT_STATUS)
    parts = re.split(r"; (?=\d)", said.rstrip("."))
    found = [re.fullmatch(r"(\d+)[,:]? ?(.*)", part) for part in parts]
    if len(parts) < 2 or not all(found):
        return f"Exit status: {said}"
    rows = [f"- `{one[1]}` {one[2]}".rstrip() for one in found if one is not None]
    return "\n".join([EXIT_STATUS.strip(), "", *rows])


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text or "") if part.strip()]


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/cli.md from the commands.")
    parser.add_argument("--check", action="store_true", help="change nothing, fail if it is stale")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page, if it is elsewhere")
    options = parser.parse_args()
    text = page()
    if not options.check:
        options.page.write_text(text, encoding="utf-8")
        return 0
    current = options.page.read_text(encoding="utf-8") if options.page.exists() else ""
    if current != text:
        print(STALE, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
