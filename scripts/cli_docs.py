"""Generate docs/reference/cli.md from the help texts of the commands.

    cli_docs.py            write the page
    cli_docs.py --check    write nothing; fail if the page is out of date

The page depends neither on the terminal nor on the machine.
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
PAGE = ROOT / "docs" / "reference" / "cli.md"
OUT_OF_DATE = (
    "docs/reference/cli.md does not match the help texts of the commands. Run 'make docs'."
)
EXAMPLE, EXIT_STATUS = "Example: ", "Exit status: "
HEAD = """# The command line

This page has the help texts of the command `pairbus`; `make docs` generates it. Put connection
strings into environment variables: arguments are visible in process lists.
[Installation](../how-to/install.md) lists the packages that commands need.
"""


def page() -> str:
    """Return the whole page."""
    root = get_command(app)
    context = typer.Context(root, info_name="pairbus")
    sections = list(_sections(root, context))
    toc = [f"- [`{name}`](#{name.replace(' ', '-')}): {line}" for name, line, _ in sections]
    return "\n".join([HEAD, *toc, "", *(text for *_, text in sections)])


def _sections(command: Any, context: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the first sentence and the text of each command, without groups that are not
    commands themselves."""
    subcommands = getattr(command, "commands", None)
    if subcommands is None or command.invoke_without_command:
        paragraphs = _paragraphs(command.help)
        yield context.command_path, paragraphs[0], _section(command, context, paragraphs)
    if subcommands is None:
        return
    for name, inner in subcommands.items():
        yield from _sections(inner, typer.Context(inner, info_name=name, parent=context))


def _section(command: Any, context: Any, paragraphs: list[str]) -> str:
    name = context.command_path
    parts = [f"## {name}", *(text for text in paragraphs if not text.startswith(EXIT_STATUS))]
    visible = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    for kind in ("argument", "option"):
        rows = [_row(parameter) for parameter in visible if parameter.param_type_name == kind]
        if rows:
            head = f"| {kind} | meaning | default | environment |\n| --- | --- | --- | --- |"
            parts.append("\n".join([head, *rows]))
    parts += [_exit_statuses(text) for text in paragraphs if text.startswith(EXIT_STATUS)]
    if command.epilog:
        parts.append(f"Example:\n\n```bash\n{command.epilog.removeprefix(EXAMPLE)}\n```")
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
    """Return the exit statuses as a Markdown list, if there are several."""
    text = paragraph.removeprefix(EXIT_STATUS)
    parts = re.split(r"; (?=\d)", text.rstrip("."))
    matches = [re.fullmatch(r"(\d+)[,:]? ?(.*)", part) for part in parts]
    if len(parts) < 2 or not all(matches):
        return f"Exit status: {text}"
    rows = [f"- `{match[1]}` {match[2]}".rstrip() for match in matches if match is not None]
    return "\n".join([EXIT_STATUS.strip(), "", *rows])


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text or "") if part.strip()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the page is out of date"
    )
    parser.add_argument("--page", type=Path, default=PAGE, help="path of the page")
    options = parser.parse_args()
    text = page()
    if not options.check:
        options.page.write_text(text, encoding="utf-8")
        return 0
    current = options.page.read_text(encoding="utf-8") if options.page.exists() else ""
    if current != text:
        print(OUT_OF_DATE, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
