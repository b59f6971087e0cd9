"""What Spark says when it fails, in a line."""

import re

_BY_PY4J = re.compile(r"An error occurred while calling \S+\n: ")
_COMPLAINT = re.compile(
    r"^(?:\d\d:\d\d:\d\d ERROR \S+: |Exception in thread \S+ \S+: )(.+)", re.MULTILINE
)


def error_summary(error: object) -> str:
    """Of an error that may have a stack of Java in it: the line that says most."""
    text = _BY_PY4J.sub("", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("pairbus.errors.")]
    if ours:
        return ours[-1].partition(": ")[2] or ours[-1]
    return lines[0] if lines else type(error).__name__


def first_logged_error(log: str) -> str | None:
    """Of what Java wrote to its log: what it met first. The errors that follow are of that one."""
    found = _COMPLAINT.search(log)
    return None if found is None else found[1]
