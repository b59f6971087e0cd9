"""Check that a tag is the version of the package, and that CHANGELOG.md has a date for it.

python -m scripts.release_check v0.2.0
"""

import re
import sys
from pathlib import Path

import pairbus

CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"
HEADING = re.compile(r"^## \[(?P<version>[^]]+)\] - (?P<date>.+)$", re.MULTILINE)
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def release_problem(tag: str, version: str, changelog: str) -> str | None:
    """Return the reason why a version cannot be released, or None."""
    if tag != f"v{version}":
        return f"The tag is {tag!r}, and the version of the package is {version}."
    newest = HEADING.search(changelog)
    if newest is None or newest["version"] != version:
        return f"The newest section of CHANGELOG.md is not that of {version}."
    if not DATE.fullmatch(newest["date"]):
        return f"CHANGELOG.md has no date for {version}, but {newest['date']!r}."
    return None


if __name__ == "__main__":
    sys.exit(
        release_problem(
            (sys.argv[1:] or [""])[0],
            pairbus.__version__,
            CHANGELOG.read_text(encoding="utf-8"),
        )
    )
