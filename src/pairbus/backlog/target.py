"""Which pairing is looked at."""

from dataclasses import dataclass, field
from typing import Any

from pairbus.amqp.client import ClientOptions
from pairbus.errors import ConfigurationError
from pairbus.servicebus.addresses import canonical_address, namespace_name
from pairbus.servicebus.backlog_paths import backlog_path, backlog_paths
from pairbus.servicebus.connection_strings import ConnectionString

NO_NAME = "the host of the primary has no name of its own: give its name, as for the pairing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Two namespaces, of which the primary may be unknown, and the backlog queues between them."""

    primary: ClientOptions | None = field(default=None, repr=False)
    secondary: ClientOptions = field(repr=False)
    primary_name: str | None = None
    """None: nobody said, and the host does not tell. Then no backlog queue has a path."""
    backlog_queue_count: int = 10

    @classmethod
    def of(
        cls,
        *,
        primary: str | None,
        secondary: str,
        primary_name: str | None = None,
        backlog_queue_count: int = 10,
        timeout_s: float = 30.0,
    ) -> "Target":
        """From connection strings. `timeout_s` bounds every wait for an answer. Raises
        ConfigurationError for a string that is wrong, and for one namespace twice."""
        bounds = {"connect_timeout_s": timeout_s, "operation_timeout_s": timeout_s}
        first = None if primary is None else _client("primary", primary, bounds)
        second = _client("secondary", secondary, bounds)
        if first is not None and _known(first) == _known(second):
            raise ConfigurationError("primary and secondary are one namespace")
        if primary_name is None and first is not None:
            primary_name = namespace_name(first.host)
        if primary_name is not None:
            backlog_paths(primary_name, backlog_queue_count)
        return cls(
            primary=first,
            secondary=second,
            primary_name=primary_name,
            backlog_queue_count=backlog_queue_count,
        )

    @property
    def backlog_queues(self) -> tuple[str, ...]:
        """Their paths. Raises ConfigurationError where the primary's name is not known."""
        if self.primary_name is None:
            raise ConfigurationError(NO_NAME)
        return tuple(backlog_paths(self.primary_name, self.backlog_queue_count))

    def queue(self, given: str) -> str:
        """The path of a backlog queue, by its index or by its path. The index may be one behind the
        last that the pairing uses: nobody removes those."""
        if not is_index(given):
            return given
        if self.primary_name is None:
            raise ConfigurationError(NO_NAME)
        return backlog_path(self.primary_name, int(given))


def is_index(queue: str) -> bool:
    return queue.isascii() and queue.isdecimal()


def _client(which: str, text: str, bounds: dict[str, Any]) -> ClientOptions:
    try:
        path = ConnectionString.parse(text).entity_path
        options = ClientOptions.from_connection_string(text, **bounds)
    except ConfigurationError as exc:
        raise ConfigurationError(f"{which}: {exc}") from exc
    if not _is_host(options.host):
        raise ConfigurationError(f"{which}: {options.host!r} is not the name of a host")
    if path is not None:
        raise ConfigurationError(
            f"the connection string of the {which} is for {path!r} only (EntityPath=…): use the "
            "connection string of the namespace"
        )
    return options


def _is_host(text: str) -> bool:
    try:
        text.encode("idna")
    except UnicodeError:  # a label is empty, or too long
        return False
    return text.isprintable() and " " not in text


def _known(options: ClientOptions) -> tuple[str, int | None]:
    return canonical_address(options.host, options.port, options.endpoint_host)
