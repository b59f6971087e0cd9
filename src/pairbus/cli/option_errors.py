"""Errors about fields of options objects, in terms of the command line."""

import re
from typing import Final

_FIELD: Final = re.compile(r"([a-z]+(?:_[a-z]+)*)(?= (?:must|is not|cannot)\b)")
_OPTIONS: Final = {
    "backlog_queue_count": "backlog-queues",
    "ping_primary_interval": "ping-interval",
}
"""Fields whose options have other names."""


def with_option(error: Exception) -> str:
    """Return the message of an error. If it starts with the name of a field, the name of its option
    is there instead: the fields of options objects are those of the options."""
    return _FIELD.sub(_option, str(error), count=1) if _FIELD.match(str(error)) else str(error)


def _option(field: re.Match[str]) -> str:
    return f"--{_OPTIONS.get(field[1], field[1].replace('_', '-'))}"
