"""The hosts by which clients may address a namespace."""

import contextlib
import re
import socket
from collections.abc import Iterable

from pairbus.errors import ConfigurationError
from pairbus.servicebus.addresses import LOCALHOST, namespace_name, parse_ip_address, split_host

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def is_loopback(host: str) -> bool:
    address = parse_ip_address(host)
    return host.lower() == LOCALHOST if address is None else address.is_loopback


def is_any(host: str) -> bool:
    """Return True if a server on this host listens on every interface."""
    address = parse_ip_address(host)
    return not host if address is None else address.is_unspecified


def public_host(host: str, host_names: Iterable[str]) -> str:
    """Return the host by which clients reach a namespace that listens on `host`: the first of
    `host_names` or `localhost` if it listens on every interface."""
    if is_any(host):
        return next(iter(host_names), LOCALHOST)
    return LOCALHOST if host in LOOPBACK_NAMES else host


class HostNames:
    """The hosts that a token may be for.

    These are the host on which the namespace listens, `host_names`, every loopback address, and
    every host whose first label is the name of the namespace. If the namespace listens on every
    interface, the name of the machine and all IP addresses are among them, too.
    """

    def __init__(self, name: str, host: str, host_names: Iterable[str]) -> None:
        self._name = name.lower()
        self._listens_on_all = is_any(host)
        given = [other.lower().rstrip(".") for other in host_names]
        self._names = {host.lower(), *given}
        self.certificate_names = [*given, *(machine_names() if self._listens_on_all else [host])]
        """The names for which the certificate is valid, in addition to those of loopback."""
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


def machine_names() -> list[str]:
    """Return the name of this machine, and its address in the network, if it has one."""
    names = [socket.gethostname().lower()]
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 9))  # selects an interface; nothing is sent
        names.append(sock.getsockname()[0])
    return [name for name in names if _HOST_NAME.fullmatch(name)]
