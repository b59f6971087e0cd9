"""The `pairbus` command."""

import sys

from pairbus.extras import install_hint


def main() -> None:
    """Run the command line. If a package is not installed, exit with the extra that installs it."""
    try:
        from pairbus.cli.app import app

        app()
    except ModuleNotFoundError as exc:
        hint = install_hint(exc)
        if hint is None:
            raise
        sys.exit(f"This command needs {hint}")
