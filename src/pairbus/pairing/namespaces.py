"""The identity of a namespace, and the registry of the pairings of this process."""

import threading
from dataclasses import dataclass

from pairbus.errors import (
    AlreadyPaired,
    ConfigurationError,
    SameNamespace,
    SecondaryInUse,
    SecondaryIsPrimary,
)
from pairbus.pairing.forks import notify_after_fork
from pairbus.pairing.sdk_clients import SdkClient, custom_endpoint_of, entity_path_of
from pairbus.servicebus.addresses import canonical_address, format_address, split_host


@dataclass(frozen=True, slots=True)
class NamespaceId:
    """The host of a namespace in lower case, and its port if it is not the default. Two clients of
    one namespace have equal ids; every spelling of the loopback address becomes `localhost`."""

    host: str
    port: int | None = None

    def __str__(self) -> str:
        return format_address(self.host, self.port)

    @classmethod
    def of(cls, client: SdkClient) -> "NamespaceId":
        """Return the id of the namespace of an SDK client.

        The SDK keeps the port of a namespace only without TLS. Local namespaces with TLS are all
        named `localhost`, and differ in their custom endpoints.
        """
        host, port = split_host(client.fully_qualified_namespace)
        endpoint_host = None
        if endpoint := custom_endpoint_of(client):
            endpoint_host, port = split_host(endpoint)
        return cls(*canonical_address(host, port, endpoint_host))


def check_no_entity_path(source: SdkClient | str, role: str) -> None:
    """Raise ConfigurationError for a connection string with an EntityPath, or a client that was
    created from one. `role` is primary or secondary."""
    if isinstance(source, str):
        parts = (part.partition("=") for part in source.split(";"))
        path = next((v.strip() for k, _, v in parts if k.strip().lower() == "entitypath"), None)
    else:
        path = entity_path_of(source)
    if path:
        raise ConfigurationError(
            f"The connection string of the {role} is limited to {path!r} (EntityPath=…). Pairing "
            "needs the connection string of the namespace."
        )


@dataclass(frozen=True, slots=True)
class RegisteredPairing:
    """The two namespaces of a pairing."""

    client: SdkClient  # kept, so that no other object gets its id
    primary: NamespaceId
    secondary: NamespaceId


class Registry:
    """The pairings of this process. Can be used from any thread."""

    def __init__(self) -> None:
        self.after_fork_in_child()
        notify_after_fork(self)

    def after_fork_in_child(self) -> None:
        """Forget the pairings of the parent, so that a child can pair the same clients."""
        self._lock = threading.Lock()
        self._pairings: dict[int, RegisteredPairing] = {}

    def __len__(self) -> int:
        return len(self._pairings)

    def enter(self, client: SdkClient, primary: NamespaceId, secondary: NamespaceId) -> None:
        """Register a pairing. Raises, in this order, SameNamespace, AlreadyPaired,
        SecondaryIsPrimary or SecondaryInUse; then nothing is registered."""
        if primary == secondary:
            raise SameNamespace(
                f"Primary and secondary are both {primary}: one outage would affect both. Use "
                "another namespace as the secondary."
            )
        with self._lock:
            if (pairing := self._pairings.get(id(client))) is not None:
                raise AlreadyPaired(
                    f"This client of {primary} is already paired with {pairing.secondary}. Close "
                    "that pairing first, or use another client."
                )
            others = self._pairings.values()
            if any(other.primary == secondary for other in others):
                raise SecondaryIsPrimary(
                    f"{secondary} is the primary of another pairing of this process. Use another "
                    f"namespace as the secondary of {primary}."
                )
            served = {other.primary for other in others if other.secondary == secondary}
            if served - {primary}:
                raise SecondaryInUse(
                    f"{secondary} is the secondary of {', '.join(map(str, served))} in this "
                    f"process. Use another namespace as the secondary of {primary}."
                )
            self._pairings[id(client)] = RegisteredPairing(client, primary, secondary)

    def leave(self, client: SdkClient) -> None:
        """Remove the pairing of this client. Can be called repeatedly."""
        with self._lock:
            self._pairings.pop(id(client), None)


registry = Registry()
"""The registry of this process."""
