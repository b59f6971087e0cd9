"""Which namespace a client talks to, and who is paired with whom."""

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
from pairbus.servicebus.addresses import canonical_address, format_address, split_host

SdkClient: TypeAlias = ServiceBusClient | AsyncServiceBusClient


@dataclass(frozen=True, slots=True)
class NamespaceId:
    """The host of a namespace, in small letters, and its port where that is an unusual one. Two
    clients of one namespace have equal ids; all ways to write the loopback interface are
    `localhost`."""

    host: str
    port: int | None = None

    def __str__(self) -> str:
        return format_address(self.host, self.port)

    @classmethod
    def of(cls, client: SdkClient) -> "NamespaceId":
        """The namespace of an SDK client.

        The SDK keeps the port of a namespace only without TLS. Local namespaces with TLS are all
        called `localhost`, and differ by the custom endpoint through which they are reached.
        """
        host, port = split_host(client.fully_qualified_namespace)
        dialled = None
        if client._custom_endpoint_address:
            dialled, port = split_host(client._custom_endpoint_address)
        return cls(*canonical_address(host, port, dialled))


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


registry = Registry()
"""That of this process."""
