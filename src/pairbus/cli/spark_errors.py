"""Extract one informative line from the errors of Spark."""

import re

_PY4J_PREFIX = re.compile(r"An error occurred while calling \S+\n: ")
_LOGGED_ERROR = re.compile(
    r"^(?:\d\d:\d\d:\d\d ERROR \S+: |Exception in thread \S+ \S+: )(.+)", re.MULTILINE
)


def error_summary(error: object) -> str:
    """Return the most informative line of a Spark error, which may contain a Java stack trace."""
    text = _PY4J_PREFIX.sub("", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    pairbus_lines = [line for line in lines if line.startswith("pairbus.errors.")]
    if pairbus_lines:
        return pairbus_lines[-1].partition(": ")[2] or pairbus_lines[-1]
    return lines[0] if lines else type(error).__name__


def first_logged_error(log: str) -> str | None:
    """Return the first error in a log of Spark. The errors after it are usually consequences."""
    match = _LOGGED_ERROR.search(log)
    return None if match is None else match[1]
