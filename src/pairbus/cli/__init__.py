"""The `pairbus` command."""

import sys

from pairbus.extras import install_hint

EXTRAS_OF_COMMANDS = (
    (("console",), "console"),
    (("cost", "report"), "cli,report"),
    (("drill",), "drill"),
    (("emulator",), "cli,emulator"),
    (("syphon", "control"), "cli"),
    (("syphon",), "cli,spark"),
)
"""The extras with all packages that a command needs. Other commands need `cli` only."""


def main() -> None:
    """Run the command line. If a package is not installed, exit with the extra that installs it."""
    try:
        from pairbus.cli.app import app

        app()
    except ModuleNotFoundError as exc:
        hint = install_hint(exc, extras_of_command(sys.argv[1:]))
        if hint is None:
            raise
        sys.exit(f"This command needs {hint}")


def extras_of_command(arguments: list[str]) -> str:
    """Return the extras that a command line needs."""
    for words, extras in EXTRAS_OF_COMMANDS:
        if arguments[: len(words)] == list(words):
            return extras
    return "cli"
