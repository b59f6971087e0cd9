"""The `pairbus` command."""

import sys

from pairbus.extras import install_hint

DRILL = "drill"
"""The command, and the extra with the packages of all extras that it needs."""


def main() -> None:
    """Run the command line. If a package is not installed, exit with the extra that installs it."""
    try:
        from pairbus.cli.app import app

        app()
    except ModuleNotFoundError as exc:
        hint = install_hint(exc, DRILL if sys.argv[1:2] == [DRILL] else None)
        if hint is None:
            raise
        sys.exit(f"This command needs {hint}")
