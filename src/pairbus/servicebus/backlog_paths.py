"""Paths of backlog queues: `{primary}/x-servicebus-transfer/{index}` in the secondary namespace."""

import re

from pairbus.errors import ConfigurationError
from pairbus.servicebus.entity_paths import SUBSCRIPTIONS
from pairbus.servicebus.limits import MAX_PATH

TRANSFER_SEGMENT = "x-servicebus-transfer"

# The first segment of a path starts with a letter or digit.
_PRIMARY_NAME = re.compile(r"[a-z0-9][a-z0-9._~-]*", re.ASCII | re.IGNORECASE)
# An index has no leading zeros, and no more digits than a path has characters.
_INDEX = re.compile(r"0|[1-9][0-9]{0,259}", re.ASCII)


def backlog_paths(primary_name: str, count: int) -> list[str]:
    """Return the paths of the backlog queues in the secondary. Raises ConfigurationError if the
    name cannot be a segment of a path."""
    if _PRIMARY_NAME.fullmatch(primary_name) is None or (
        primary_name.lower() == SUBSCRIPTIONS.lower()
    ):
        raise ConfigurationError(
            f"{primary_name[:MAX_PATH]!r} cannot name the primary in the paths of backlog queues: "
            "set primary_name to letters, digits, '.', '-', '_' and '~', a letter or digit first"
        )
    paths = [backlog_path(primary_name, index) for index in range(count)]
    if any(len(path) > MAX_PATH for path in paths):
        raise ConfigurationError(
            f"a primary_name of {len(primary_name)} characters makes the paths of backlog queues "
            f"longer than {MAX_PATH}: set a shorter one"
        )
    return paths


def backlog_prefix(primary_name: str) -> str:
    """Return the prefix that the paths of all backlog queues of a primary share."""
    return f"{primary_name}/{TRANSFER_SEGMENT}/"


def backlog_path(primary_name: str, index: int) -> str:
    """Return the path of one backlog queue."""
    return f"{backlog_prefix(primary_name)}{index}"


def backlog_index(primary_name: str, path: str) -> int | None:
    """Return the index of a backlog queue of a primary, or None for the path of any other queue.
    Paths are case-insensitive, as in Service Bus."""
    prefix = backlog_prefix(primary_name)
    if not path.lower().startswith(prefix.lower()):
        return None
    index = _INDEX.fullmatch(path, len(prefix))
    return None if index is None else int(index[0])
