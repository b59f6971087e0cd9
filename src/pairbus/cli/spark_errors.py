"""Errors in the log of Spark."""

import re

_LOGGED_ERROR = re.compile(
    r"^(?:\d\d:\d\d:\d\d ERROR \S+: |Exception in thread \S+ \S+: )(.+)", re.MULTILINE
)


def first_logged_error(log: str) -> str | None:
    """Return the first error in a log of Spark. The errors after it are usually consequences."""
    match = _LOGGED_ERROR.search(log)
    return None if match is None else match[1]
