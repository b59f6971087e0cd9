"""The pairing that a command inspects."""

from dataclasses import dataclass, field
from typing import Any

from pairbus.amqp.client import ClientOptions
from pairbus.amqp.client.default_credential import default_tokens
from pairbus.amqp.client.options import TransportKind
from pairbus.errors import ConfigurationError
from pairbus.servicebus.addresses import canonical_address, namespace_name
from pairbus.servicebus.backlog_paths import backlog_path, backlog_paths
from pairbus.servicebus.namespace_access import (
    AnyCredential,
    NamespaceAccess,
    is_connection_string,
)
from pairbus.servicebus.proxy import Proxy


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectionTarget:
    """Two namespaces and the backlog queues of their pairing. The primary may be unknown."""

    primary: ClientOptions | None = field(default=None, repr=False)
    secondary: ClientOptions = field(repr=False)
    primary_name: str | None = None
    """None if it was not given and the host of the primary does not contain it. Then the paths of
    the backlog queues are unknown."""
    backlog_queue_count: int = 10

    @classmethod
    def parse(
        cls,
        *,
        primary: str | None,
        secondary: str,
        credential: AnyCredential | None = None,
        primary_name: str | None = None,
        backlog_queue_count: int = 10,
        timeout_s: float = 30.0,
        transport: TransportKind = "tcp",
        proxy: Proxy | None = None,
        ca_file: str | None = None,
    ) -> "InspectionTarget":
        """Parse connection strings or hosts. A host has the tokens of the credential, which is that
        of azure-identity's default chain if none is given. `timeout_s` bounds every wait for a
        response. Raises ConfigurationError if one is invalid, and if both name one namespace."""
        credential = default_tokens() if credential is None else credential
        fields = {
            "connect_timeout_s": timeout_s,
            "operation_timeout_s": timeout_s,
            "transport": transport,
            "proxy": proxy,
            "ca_file": ca_file,
        }
        primary_options = (
            None if primary is None else _client_options("primary", primary, credential, fields)
        )
        secondary_options = _client_options("secondary", secondary, credential, fields)
        if primary_options is not None and _address(primary_options) == _address(secondary_options):
            raise ConfigurationError(
                "The primary and the secondary are the same namespace. Use two namespaces."
            )
        if primary_name is None and primary_options is not None:
            primary_name = namespace_name(primary_options.host)
        if primary_name is not None:
            backlog_paths(primary_name, backlog_queue_count)  # raises if the name is not valid
        return cls(
            primary=primary_options,
            secondary=secondary_options,
            primary_name=primary_name,
            backlog_queue_count=backlog_queue_count,
        )

    @property
    def backlog_queues(self) -> tuple[str, ...]:
        """The paths of the backlog queues. Raises ConfigurationError if the name of the primary is
        unknown."""
        return tuple(backlog_paths(self.known_primary_name(), self.backlog_queue_count))

    def queue_path(self, queue: str) -> str:
        """Return the path of a backlog queue that is given by its index or by its path. The index
        may be beyond `backlog_queue_count`: such queues can exist, because they are not removed
        when the count becomes smaller."""
        if not is_index(queue):
            return queue
        return backlog_path(self.known_primary_name(), int(queue))

    def known_primary_name(self) -> str:
        """Return the name of the primary. Raises ConfigurationError if it is unknown."""
        if self.primary_name is None:
            raise ConfigurationError(
                "The name of the primary is unknown. Set primary_name to the same value as in the "
                "senders."
            )
        return self.primary_name


def parse_namespace(
    role: str,
    text: str,
    *,
    credential: AnyCredential | None = None,
    timeout_s: float = 30.0,
    **fields: Any,
) -> ClientOptions:
    """Parse the connection string or host of one namespace, as `InspectionTarget.parse` does.
    `fields` are fields of ClientOptions. Raises ConfigurationError."""
    timeouts = {"connect_timeout_s": timeout_s, "operation_timeout_s": timeout_s}
    credential = default_tokens() if credential is None else credential
    return _client_options(role, text, credential, {**timeouts, **fields})


def is_index(queue: str) -> bool:
    """Return True if a queue is given by its index, not by its path."""
    return queue.isascii() and queue.isdecimal()


def _client_options(
    role: str, text: str, credential: AnyCredential, fields: dict[str, Any]
) -> ClientOptions:
    kind = "Connection string" if is_connection_string(text) else "Host"
    try:
        access = NamespaceAccess.parse(text, credential)
    except ConfigurationError as exc:
        raise ConfigurationError(f"{kind} of the {role}: {exc}") from exc
    if not _is_host(access.host):
        raise ConfigurationError(f"{kind} of the {role}: {access.host!r} is not a valid host name.")
    if access.entity_path is not None:
        raise ConfigurationError(
            f"{kind} of the {role}: it is restricted to {access.entity_path!r} (EntityPath). "
            "Use a connection string of the namespace."
        )
    return ClientOptions.from_access(access, **fields)


def _is_host(text: str) -> bool:
    try:
        text.encode("idna")
    except UnicodeError:  # a label is empty or too long
        return False
    return text.isprintable() and " " not in text


def _address(options: ClientOptions) -> tuple[str, int | None]:
    return canonical_address(options.host, options.port, options.endpoint_host)
