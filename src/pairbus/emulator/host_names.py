"""The hosts by which clients may address a namespace."""

import socket
from collections.abc import Iterable

from pairbus.errors import ConfigurationError
from pairbus.servicebus.addresses import LOCALHOST, namespace_name, parse_ip_address, split_host


def is_loopback(host: str) -> bool:
    address = parse_ip_address(host)
    return host.lower() == LOCALHOST if address is None else address.is_loopback


def is_any(host: str) -> bool:
    """Return True if a server on this host listens on every interface."""
    address = parse_ip_address(host)
    return not host if address is None else address.is_unspecified


class HostNames:
    """The hosts that a token may be for.

    These are the host on which the namespace listens, `host_names`, every loopback address, and
    every host whose first label is the name of the namespace. If the namespace listens on every
    interface, the name of the machine and all IP addresses are among them, too.
    """

    def __init__(self, name: str, host: str, host_names: Iterable[str]) -> None:
        self._name = name.lower()
        self._listens_on_all = is_any(host)
        self._names = {host.lower(), *(other.lower().rstrip(".") for other in host_names)}
        if self._listens_on_all:
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    def accepts(self, address: str) -> bool:
        """Return True if a token for this address (a URL, with or without a port) is accepted."""
        _, separator, rest = address.partition("://")
        try:
            host, _ = split_host((rest if separator else address).partition("/")[0])
        except ConfigurationError:
            return False
        if host in self._names or is_loopback(host) or namespace_name(host) == self._name:
            return True
        return self._listens_on_all and parse_ip_address(host) is not None
