"""Names and paths of entities: the allowed characters, and when two spellings are equal.

A path has segments, separated by slashes, and is case-insensitive. A subscription is below its
topic (`topic/Subscriptions/name`); sub-queues and the `$management` node are below any entity.
"""

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from pairbus.errors import ConfigurationError
from pairbus.servicebus.limits import MAX_NAME, MAX_PATH

SUBSCRIPTIONS: Final = "Subscriptions"
DEAD_LETTER_QUEUE: Final = "$DeadLetterQueue"
TRANSFER_DEAD_LETTER_QUEUE: Final = "$Transfer/$DeadLetterQueue"
MANAGEMENT_NODE: Final = "$management"
CBS_NODE: Final = "$cbs"
"""The node of a connection that takes tokens (claims-based security)."""
DEFAULT_RULE: Final = "$Default"
"""The rule that a new subscription has unless it is created with another one."""

# Not "." or "..": HTTP clients remove such segments from a URL before they send it.
_SEGMENT = re.compile(r"(?!\.{1,2}\Z)[\w.~-]+")
_STARTS_AND_ENDS_ALPHANUMERIC = re.compile(r"[^\W_](?:.*[^\W_])?", re.DOTALL)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*(?P<path>[^?#]*)")
_MANAGEMENT_SUFFIX = f"/{MANAGEMENT_NODE}"


def check_path(kind: str, path: str) -> None:
    """Raise ConfigurationError unless `path` is a valid path of a queue or topic."""
    if not 1 <= len(path) <= MAX_PATH:
        raise ConfigurationError(
            f"the name of a {kind} must have 1 to {MAX_PATH} characters, not {len(path)}"
        )
    segments = path.split("/")
    for segment in segments:
        if _SEGMENT.fullmatch(segment) is None:
            raise _invalid_name(kind, path)
    _check_ends(kind, path)
    if any(segment.lower() == SUBSCRIPTIONS.lower() for segment in segments):
        raise ConfigurationError(
            f"{path!r} cannot be a {kind} name: the segment {SUBSCRIPTIONS!r} is reserved for "
            "subscriptions"
        )


def check_name(kind: str, name: str) -> None:
    """Raise ConfigurationError unless `name` is a valid name of a subscription or rule."""
    if not 1 <= len(name) <= MAX_NAME:
        raise ConfigurationError(
            f"the name of a {kind} must have 1 to {MAX_NAME} characters, not {len(name)}"
        )
    is_default = kind == "rule" and name.lower() == DEFAULT_RULE.lower()
    if is_default:
        return
    if _SEGMENT.fullmatch(name) is None:
        raise _invalid_name(kind, name)
    _check_ends(kind, name)


def check_namespace_name(name: str) -> None:
    """Raise ConfigurationError unless `name` can be the name of a local namespace."""
    valid = _SEGMENT.fullmatch(name) and _STARTS_AND_ENDS_ALPHANUMERIC.fullmatch(name)
    if not valid or len(name) > MAX_NAME:
        raise ConfigurationError(
            f"{name[:MAX_PATH]!r} cannot be the name of a namespace: use at most {MAX_NAME} letters"
            " and digits, with '.', '-', '_' and '~' between them."
        )


@lru_cache(maxsize=1024)  # Every delivery needs it several times, and there are few paths.
def normalize_path(path: str) -> str:
    """Return the form in which two spellings of one path are equal."""
    return path.replace("\\", "/").strip("/").lower()


def covers(ancestor: str, path: str) -> bool:
    """Return True if `path` is `ancestor` or below it. The empty path covers every path."""
    ancestor, path = normalize_path(ancestor), normalize_path(path)
    return not ancestor or path == ancestor or path.startswith(ancestor + "/")


def path_from_address(address: str) -> str:
    """Return the path of an address such as `sb://host:5671/a%2Fb`, or of a bare path, with
    percent-encoding decoded and without outer slashes."""
    match = _ADDRESS.match(address.strip())
    return unquote(match["path"] if match else address.strip()).strip("/")


def subscription_path(topic: str, name: str) -> str:
    """Return the path of a subscription."""
    return f"{topic}/{SUBSCRIPTIONS}/{name}"


def dead_letter_path(path: str) -> str:
    """Return the path of the dead-letter queue of an entity."""
    return f"{path}/{DEAD_LETTER_QUEUE}"


def management_path(path: str) -> str:
    """Return the address of the `$management` node of an entity."""
    return f"{path}{_MANAGEMENT_SUFFIX}"


def without_management_node(path: str) -> str:
    """Return the path of the entity, for the address of its `$management` node or its own path."""
    return path.removesuffix(_MANAGEMENT_SUFFIX)


def _check_ends(kind: str, name: str) -> None:
    if _STARTS_AND_ENDS_ALPHANUMERIC.fullmatch(name) is None:
        raise ConfigurationError(
            f"{name!r} cannot be a {kind} name: it must start and end with a letter or digit"
        )


def _invalid_name(kind: str, name: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name[:MAX_PATH]!r} cannot be a {kind} name: segments have letters, digits, '.', '-', "
        "'_' and '~'; only queue and topic names have several segments, with single slashes "
        "between them"
    )
