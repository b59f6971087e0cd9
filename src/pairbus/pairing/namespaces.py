"""Which namespace a client talks to, what the namespace is called, and who is paired with whom."""

import ipaddress
import re
import threading
from dataclasses import dataclass
from typing import TypeAlias

from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from pairbus.errors import (
    AlreadyPaired,
    ConfigurationError,
    SameNamespace,
    SecondaryInUse,
    SecondaryIsPrimary,
)

SdkClient: TypeAlias = ServiceBusClient | AsyncServiceBusClient

LOCALHOST = "localhost"
TRANSFER = "x-servicebus-transfer"
MAX_PATH = 260

# A path begins with a letter or digit.
_NAME = re.compile(r"[a-z0-9][a-z0-9._~-]*", re.ASCII | re.IGNORECASE)
_SUBSCRIPTIONS = "subscriptions"
# Every namespace of the service has these three, and is the same behind each.
_USUAL_PORTS = (443, 5671, 5672)


@dataclass(frozen=True, slots=True)
class NamespaceId:
    """The host of a namespace, in small letters, and its port where that is an unusual one. Two
    clients of one namespace have equal ids; all ways to write the loopback interface are
    `localhost`."""

    host: str
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @classmethod
    def of(cls, client: SdkClient) -> "NamespaceId":
        """The namespace of an SDK client.

        The SDK keeps the port of a namespace only without TLS. Local namespaces with TLS are all
        called `localhost`, and differ by the custom endpoint through which they are reached.
        """
        host, port = split_host(client.fully_qualified_namespace)
        endpoint = client._custom_endpoint_address
        if endpoint:
            dialled, port = split_host(endpoint)
            if name_of(host) is None:
                host = dialled
        number = _ip_address(host)
        if number is not None:
            host = LOCALHOST if number.is_loopback else str(number)
        return cls(host, None if port in _USUAL_PORTS else port)


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
    return None if label == LOCALHOST or _ip_address(host) is not None else label


def backlog_paths(primary_name: str, count: int) -> list[str]:
    """The paths of the backlog queues in the secondary. Raises ConfigurationError where the name
    cannot be a part of a path."""
    if _NAME.fullmatch(primary_name) is None or primary_name.lower() == _SUBSCRIPTIONS:
        raise ConfigurationError(
            f"{primary_name[:MAX_PATH]!r} cannot name the primary in the paths of backlog queues: "
            "set primary_name to letters, digits, '.', '-', '_' and '~', a letter or digit first"
        )
    paths = [f"{primary_name}/{TRANSFER}/{index}" for index in range(count)]
    if any(len(path) > MAX_PATH for path in paths):
        raise ConfigurationError(
            f"a primary_name of {len(primary_name)} characters makes the paths of backlog queues "
            f"longer than {MAX_PATH}: set a shorter one"
        )
    return paths


def refuse_entity_path(source: SdkClient | str, which: str) -> None:
    """Raises ConfigurationError for a connection string with an EntityPath, or a client that was
    made from one. `which` says whose it is: the primary's, the secondary's."""
    if isinstance(source, str):
        parts = (part.partition("=") for part in source.split(";"))
        path = next((v.strip() for k, _, v in parts if k.strip().lower() == "entitypath"), None)
    else:
        path = source._entity_name
    if path:
        raise ConfigurationError(
            f"the connection string of the {which} is for {path!r} only (EntityPath=…), and "
            "pairing is about whole namespaces: use the connection string of the namespace"
        )


@dataclass(frozen=True, slots=True)
class _Pairing:
    client: SdkClient  # held, so that no other object gets its id meanwhile
    primary: NamespaceId
    secondary: NamespaceId


class Registry:
    """The pairings of a process. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pairings: dict[int, _Pairing] = {}

    def __len__(self) -> int:
        return len(self._pairings)

    def enter(self, client: SdkClient, primary: NamespaceId, secondary: NamespaceId) -> None:
        """Note a pairing. Raises, in this order, SameNamespace, AlreadyPaired, SecondaryIsPrimary
        or SecondaryInUse, and notes nothing then."""
        if primary == secondary:
            raise SameNamespace(
                f"primary and secondary are both {primary}: one outage would take both; name "
                "another namespace as the secondary"
            )
        with self._lock:
            if (mine := self._pairings.get(id(client))) is not None:
                raise AlreadyPaired(
                    f"this client of {primary} is paired with {mine.secondary}: close that pairing "
                    "first, or use another client"
                )
            others = self._pairings.values()
            if any(other.primary == secondary for other in others):
                raise SecondaryIsPrimary(
                    f"{secondary} is the primary of another pairing of this process: it cannot be "
                    f"the secondary of {primary}"
                )
            served = {other.primary for other in others if other.secondary == secondary}
            if served - {primary}:
                raise SecondaryInUse(
                    f"{secondary} serves {', '.join(map(str, served))} in this process: it cannot "
                    f"serve {primary} too"
                )
            self._pairings[id(client)] = _Pairing(client, primary, secondary)

    def leave(self, client: SdkClient) -> None:
        """Forget the pairing of this client. Can be called again."""
        with self._lock:
            self._pairings.pop(id(client), None)


def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


registry = Registry()
"""That of this process."""
