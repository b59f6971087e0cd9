"""Hosts and ports of namespaces."""

import ipaddress
from typing import Final

from pairbus.errors import ConfigurationError

LOCALHOST: Final = "localhost"
HTTPS_PORT: Final = 443
AMQPS_PORT: Final = 5671
AMQP_PORT: Final = 5672
SERVICE_PORTS: Final = (HTTPS_PORT, AMQPS_PORT, AMQP_PORT)
"""Every namespace of the service listens on these three ports."""


def split_host(address: str) -> tuple[str, int | None]:
    """Return the host, in lower case, and the port of `host`, `host:port`, `[v6]:port` or a URL
    such as `sb://host:port/`. Raises ConfigurationError."""
    netloc = address.strip().rpartition("//")[2].partition("/")[0].lower()
    host, colon, port = netloc, "", ""
    if netloc.startswith("["):
        host, _, colon_and_port = netloc[1:].partition("]")
        colon, port = colon_and_port[:1], colon_and_port[1:]
    elif netloc.count(":") == 1:
        host, colon, port = netloc.partition(":")
    host = host.rstrip(".")
    if not host or (colon and not (port.isascii() and port.isdecimal())):
        raise ConfigurationError(f"{netloc!r} is not a host, or a host and a port")
    return host, int(port) if port else None


def namespace_name(host: str) -> str | None:
    """Return the name of a namespace, the first label of its host, or None for a host that does
    not name one: an IP address or `localhost`."""
    host, _ = split_host(host)
    label = host.partition(".")[0]
    return None if label == LOCALHOST or parse_ip_address(host) is not None else label


def canonical_address(
    host: str, port: int | None, endpoint_host: str | None = None
) -> tuple[str, int | None]:
    """Return a host and a port by which two spellings of one namespace are equal.

    The host is in lower case, and every loopback address is `localhost`. The port is None if it is
    one of the service's own, unless the host does not name a namespace: emulators on one host
    have different ports. Such a host is replaced by `endpoint_host`, the host to connect to
    instead, if there is one.
    """
    host = host.lower()
    if endpoint_host is not None and namespace_name(host) is None:
        host = endpoint_host.lower()
    ip_address = parse_ip_address(host)
    if ip_address is not None:
        host = LOCALHOST if ip_address.is_loopback else str(ip_address)
    return host, None if port in SERVICE_PORTS and namespace_name(host) else port


def format_address(host: str, port: int | None) -> str:
    """Return `host` or `host:port`, with brackets around an IPv6 address."""
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


def ascii_host(host: str) -> str:
    """Return a host in ASCII, for a request to a server or a proxy, where the name is not resolved
    first. Raises ConfigurationError."""
    try:
        name = host.encode("idna").decode()
    except UnicodeError as exc:
        raise ConfigurationError(f"{host!r} is not a valid host name: {exc}") from exc
    if not name.isprintable() or " " in name:
        raise ConfigurationError(f"{host!r} is not a valid host name")
    return name


def parse_ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address that a host is, or None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
