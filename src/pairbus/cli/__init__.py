"""The `pairbus` command."""

import sys

EXTRAS = {
    "pandas": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "jinja2": "report",
    "matplotlib": "report",
}
"""Packages that only some commands need, and the extra of pairbus that installs them."""


def main() -> None:
    """Run the command line. If a package is not installed, exit with the extra that installs it."""
    try:
        from pairbus.cli.app import app

        app()
    except ModuleNotFoundError as exc:
        missing = (exc.name or "").partition(".")[0]
        if missing == "pairbus":
            raise
        extra = EXTRAS.get(missing, "all")
        java = ", and install Java 17" if extra == "spark" else ""
        sys.exit(
            f"This command needs the package {missing}. Run: pip install 'pairbus[{extra}]'{java}"
        )
