"""Names and paths of entities: what is allowed, and when two are the same.

Paths have segments, separated by slashes; case does not matter. A subscription stands below its
topic (`topic/Subscriptions/name`), and so do sub-queues and `$management` below any entity.
"""

import re
from urllib.parse import unquote

from pairbus.errors import ConfigurationError

MAX_PATH = 260
MAX_NAME = 50
SUBSCRIPTIONS = "Subscriptions"
DEFAULT_RULE = "$Default"

# Not "." or "..": clients take them out of a URL before they send it.
_SEGMENT = re.compile(r"(?!\.{1,2}\Z)[\w.~-]+")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*(?P<path>[^?#]*)")


def check_path(kind: str, path: str) -> None:
    """Raises ConfigurationError unless `path` can be the name of a queue or topic."""
    if not 1 <= len(path) <= MAX_PATH:
        raise ConfigurationError(
            f"the name of a {kind} has 1 to {MAX_PATH} characters, not {len(path)}"
        )
    segments = path.split("/")
    for segment in segments:
        if _SEGMENT.fullmatch(segment) is None:
            raise _not_allowed(kind, path)
    if any(segment.lower() == SUBSCRIPTIONS.lower() for segment in segments):
        raise ConfigurationError(
            f"{path!r} cannot be a {kind}: a segment named {SUBSCRIPTIONS} leads to subscriptions"
        )


def check_name(kind: str, name: str) -> None:
    """Raises ConfigurationError unless `name` can be the name of a subscription or rule."""
    if not 1 <= len(name) <= MAX_NAME:
        raise ConfigurationError(
            f"the name of a {kind} has 1 to {MAX_NAME} characters, not {len(name)}"
        )
    is_default = kind == "rule" and name.lower() == DEFAULT_RULE.lower()
    if _SEGMENT.fullmatch(name) is None and not is_default:
        raise _not_allowed(kind, name)


def normalize_path(path: str) -> str:
    """The form in which two spellings of one path are equal."""
    return path.replace("\\", "/").strip("/").lower()


def covers(above: str, path: str) -> bool:
    """Whether `path` is `above` or lies below it. Every path lies below the empty one."""
    above, path = normalize_path(above), normalize_path(path)
    return not above or path == above or path.startswith(above + "/")


def path_from_address(address: str) -> str:
    """The path in an address such as `sb://host:5671/a%2Fb`, or a path as it is, decoded and
    without outer slashes."""
    found = _ADDRESS.match(address.strip())
    return unquote(found["path"] if found else address.strip()).strip("/")


def subscription_path(topic: str, name: str) -> str:
    return f"{topic}/{SUBSCRIPTIONS}/{name}"


def _not_allowed(kind: str, name: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name[:MAX_PATH]!r} cannot be a {kind}: segments are letters, digits, '.', '-', '_' "
        "and '~', with single slashes between them in queues and topics only"
    )
