"""What is checked before two namespaces are paired, and what comes of it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pairbus.errors import ConfigurationError, OptionsMissing, SecondaryMissing
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.namespaces import NamespaceId, refuse_entity_path, registry
from pairbus.pairing.to_syphon import syphon_options
from pairbus.pairing.usage import PairingUsage
from pairbus.servicebus.addresses import namespace_name
from pairbus.servicebus.backlog_paths import backlog_paths


@dataclass(frozen=True, slots=True)
class PairingPlan:
    """A pairing that is allowed, and noted as one. `give_up` must follow, sooner or later."""

    primary: Any
    secondary: Any
    primary_id: NamespaceId
    secondary_id: NamespaceId
    own_secondary: bool
    """The secondary's client was made here, and is closed here."""
    paths: tuple[str, ...]
    syphon: Any = None
    """What a syphon in this process needs to know; None: there is to be none."""
    books: PairingUsage | None = None
    """Where to write down what is billable, if that is wanted."""

    def managed(self, *, secondary: bool) -> Callable[[str, bool], None] | None:
        """Whom an administration client tells about its requests: the path, and whether there was
        an answer."""
        if self.books is None:
            return None
        return partial(self.books.managed, secondary=secondary)

    def give_up(self) -> None:
        """Nothing is paired any more. Can be called again."""
        registry.leave(self.primary)
        if self.books is not None:
            self.books.close()


def make_plan(primary: Any, options: SendAvailabilityOptions | None, client: Any) -> PairingPlan:
    """Check and note a pairing. `client` is the class of SDK clients that it is for. Raises a
    ConfigurationError of its own for each mistake, and nothing is paired then."""
    if options is None:
        raise OptionsMissing("pair_namespace needs SendAvailabilityOptions(secondary=…)")
    if not options.secondary:
        raise SecondaryMissing(
            "the options name no secondary: set it to a connection string or a client"
        )
    if not isinstance(primary, client):
        raise ConfigurationError(f"the primary is a {_name(client)}, not {primary!r}")
    refuse_entity_path(primary, "primary")
    own = isinstance(options.secondary, str)
    if own:
        refuse_entity_path(options.secondary, "secondary")
        try:
            secondary = client.from_connection_string(options.secondary)
        except (ValueError, UnboundLocalError) as exc:  # the latter for a string without a key
            raise ConfigurationError(f"the secondary's connection string is wrong: {exc}") from exc
    else:
        secondary = options.secondary
        if not isinstance(secondary, client):
            raise ConfigurationError(
                f"the secondary is a connection string or a {_name(client)}, "
                f"not {type(secondary).__name__}"
            )
        refuse_entity_path(secondary, "secondary")
    primary_id, secondary_id = NamespaceId.of(primary), NamespaceId.of(secondary)
    registry.enter(primary, primary_id, secondary_id)
    try:
        name = (
            namespace_name(primary_id.host)
            if options.primary_name is None
            else options.primary_name
        )
        if name is None:
            raise ConfigurationError(
                f"{primary_id} has no name of its own: set primary_name, which names the backlog "
                "queues"
            )
        paths = tuple(backlog_paths(name, options.backlog_queue_count))
        syphon = None
        if options.enable_syphon:
            syphon = syphon_options(primary, secondary, options, paths)
        books = None
        if options.ledger is not None:
            books = PairingUsage(options.ledger, str(primary_id), str(secondary_id))
    except BaseException:
        registry.leave(primary)
        raise
    return PairingPlan(primary, secondary, primary_id, secondary_id, own, paths, syphon, books)


def _name(client: Any) -> str:
    return f"{client.__module__.partition('._')[0]}.{client.__name__}"
