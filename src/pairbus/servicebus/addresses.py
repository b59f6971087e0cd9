"""What namespaces and their backlog queues are called."""

import ipaddress
import re

from pairbus.errors import ConfigurationError

LOCALHOST = "localhost"
TRANSFER = "x-servicebus-transfer"
MAX_PATH = 260
USUAL_PORTS = (443, 5671, 5672)
"""Every namespace of the service has these three, and is the same behind each."""

# A path begins with a letter or digit.
_NAME = re.compile(r"[a-z0-9][a-z0-9._~-]*", re.ASCII | re.IGNORECASE)
_SUBSCRIPTIONS = "subscriptions"
# As the pairing writes it: no leading zeros. A path has at most 260 characters.
_INDEX = re.compile(r"0|[1-9][0-9]{0,259}", re.ASCII)


def split_host(address: str) -> tuple[str, int | None]:
    """The host and port of `host`, `host:port`, `[v6]:port` or an address such as
    `sb://host:port/`, the host in small letters. Raises ConfigurationError."""
    rest = address.strip().rpartition("//")[2].partition("/")[0].lower()
    host, colon, port = rest, "", ""
    if rest.startswith("["):
        host, _, colon_and_port = rest[1:].partition("]")
        colon, port = colon_and_port[:1], colon_and_port[1:]
    elif rest.count(":") == 1:
        host, colon, port = rest.partition(":")
    host = host.rstrip(".")
    if not host or (colon and not (port.isascii() and port.isdecimal())):
        raise ConfigurationError(f"{rest!r} is not a host, or a host and a port")
    return host, int(port) if port else None


def name_of(host: str) -> str | None:
    """What a namespace is called: the first label of its host. None for a host without a name of
    its own: an address, `localhost`."""
    host, _ = split_host(host)
    label = host.partition(".")[0]
    return None if label == LOCALHOST or ip_address_of(host) is not None else label


def known_address(
    host: str, port: int | None, dialled: str | None = None
) -> tuple[str, int | None]:
    """What a namespace is known by: its host in small letters, and its port where that is an
    unusual one. All ways to write the loopback interface are `localhost`; a host without a name of
    its own is known by the one that is dialled instead."""
    host = host.lower()
    if dialled is not None and name_of(host) is None:
        host = dialled.lower()
    number = ip_address_of(host)
    if number is not None:
        host = LOCALHOST if number.is_loopback else str(number)
    return host, None if port in USUAL_PORTS else port


def label_of(host: str, port: int | None) -> str:
    """An address as text."""
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


def backlog_paths(primary_name: str, count: int) -> list[str]:
    """The paths of the backlog queues in the secondary. Raises ConfigurationError where the name
    cannot be a part of a path."""
    if _NAME.fullmatch(primary_name) is None or primary_name.lower() == _SUBSCRIPTIONS:
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
    """Return the beginning that the paths of all backlog queues of a primary share."""
    return f"{primary_name}/{TRANSFER}/"


def backlog_path(primary_name: str, index: int) -> str:
    """Return the path of one backlog queue."""
    return f"{backlog_prefix(primary_name)}{index}"


def backlog_index(primary_name: str, path: str) -> int | None:
    """Return the index of a backlog queue of a primary; None for the path of any other queue.
    Service Bus does not distinguish upper and lower case in paths."""
    prefix = backlog_prefix(primary_name)
    if not path.lower().startswith(prefix.lower()):
        return None
    index = _INDEX.fullmatch(path, len(prefix))
    return None if index is None else int(index[0])


def ip_address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is, if it is one."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
