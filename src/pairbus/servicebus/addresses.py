"""What namespaces and their backlog queues are called."""

import ipaddress

from pairbus.errors import ConfigurationError

LOCALHOST = "localhost"
SERVICE_PORTS = (443, 5671, 5672)
"""Every namespace of the service has these three, and is the same behind each."""


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


def namespace_name(host: str) -> str | None:
    """What a namespace is called: the first label of its host. None for a host without a name of
    its own: an address, `localhost`."""
    host, _ = split_host(host)
    label = host.partition(".")[0]
    return None if label == LOCALHOST or parse_ip_address(host) is not None else label


def canonical_address(
    host: str, port: int | None, dialled: str | None = None
) -> tuple[str, int | None]:
    """What a namespace is known by: its host in small letters, and its port where that is an
    unusual one. All ways to write the loopback interface are `localhost`; a host without a name of
    its own is known by the one that is dialled instead."""
    host = host.lower()
    if dialled is not None and namespace_name(host) is None:
        host = dialled.lower()
    number = parse_ip_address(host)
    if number is not None:
        host = LOCALHOST if number.is_loopback else str(number)
    return host, None if port in SERVICE_PORTS else port


def format_address(host: str, port: int | None) -> str:
    """An address as text."""
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


def parse_ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is, if it is one."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
