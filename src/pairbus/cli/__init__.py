"""The `pairbus` command."""

import sys


def main() -> None:
    """Run the command line; say what is missing where its packages are not installed."""
    try:
        from pairbus.cli.app import app
    except ModuleNotFoundError as exc:
        sys.exit(f"The command line needs {exc.name}: pip install 'pairbus[all]'")
    app()
