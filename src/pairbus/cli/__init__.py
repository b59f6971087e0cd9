"""The `pairbus` command."""

import sys

EXTRAS = {
    "pandas": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "jinja2": "report",
    "matplotlib": "report",
}
"""Packages that only some commands need, and what brings them."""


def main() -> None:
    """Run the command line; say what is missing where its packages are not installed."""
    try:
        from pairbus.cli.app import app

        app()
    except ModuleNotFoundError as exc:
        missing = (exc.name or "").partition(".")[0]
        if missing == "pairbus":
            raise
        extra = EXTRAS.get(missing, "all")
        more = ", and Java 17" if extra == "spark" else ""
        sys.exit(f"This command needs {missing}: pip install 'pairbus[{extra}]'{more}")
