"""The checks before two namespaces are paired, and their result."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Any

from pairbus.errors import ConfigurationError, OptionsMissing, SecondaryMissing
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.backlog_queues import ensure_queues, limits_for
from pairbus.pairing.backlog_settings import SettingMismatch, find_mismatches
from pairbus.pairing.effects import CloseObject, Operation, RunBlocking, StopBackground
from pairbus.pairing.embedded_syphon import syphon_options
from pairbus.pairing.namespaces import NamespaceId, check_no_entity_path, registry
from pairbus.pairing.sdk_clients import administration_options, check_client
from pairbus.pairing.usage import PairingUsage
from pairbus.servicebus.addresses import namespace_name
from pairbus.servicebus.administration import AdministrationClient
from pairbus.servicebus.atom import QueueProperties
from pairbus.servicebus.backlog_paths import backlog_paths
from pairbus.servicebus.limits import KB
from pairbus.telemetry.providers import find_telemetry
from pairbus.telemetry.senders import SenderTelemetry, ServerAddress

if TYPE_CHECKING:
    from pairbus.pairing.console_reporter import ConsoleReporter
    from pairbus.syphon.options import SyphonOptions


@dataclass(frozen=True, slots=True)
class PairingPlan:
    """A pairing that passed the checks and is registered. The owner calls `release` when it ends,
    or runs `abandon` if it does not begin."""

    options: SendAvailabilityOptions
    primary: Any
    secondary: Any
    primary_id: NamespaceId
    secondary_id: NamespaceId
    owns_secondary: bool
    """The client of the secondary was created here, and is closed with the pairing."""
    paths: tuple[str, ...]
    """The paths of the backlog queues."""
    syphon: "SyphonOptions | None" = None
    """The options of the embedded syphon, if it is enabled."""
    usage: PairingUsage | None = None
    """Records billable operations, if a ledger is kept."""
    console: "ConsoleReporter | None" = None
    """The reporter to a console, if the options name one."""
    telemetry: SenderTelemetry | None = None
    """Records metrics and spans, if telemetry is on."""
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop of asynchronous clients, in which their credentials run."""
    now: Callable[[], float] = monotonic
    random: Random | None = None
    """Clock and randomness, which tests replace."""
    mismatches: list[SettingMismatch] = field(default_factory=list)
    """The settings of existing backlog queues that are worse than ours, after `backlog_queues`."""
    message_limits: dict[str, int] = field(default_factory=dict)
    """The largest message of existing backlog queues, where it is known, after `backlog_queues`."""

    def open_administration(self, *, secondary: bool = False) -> AdministrationClient:
        """Return an administration client of one namespace. Its requests are recorded in the
        ledger."""
        client = self.secondary if secondary else self.primary
        record = None
        if self.usage is not None:
            record = partial(self.usage.add_request, secondary=secondary)
        options = administration_options(client, loop=self.loop)
        return AdministrationClient(options, on_request=record)

    def backlog_queues(self) -> Operation[tuple[str, ...]]:
        """Find or create the backlog queues, and return their paths."""
        if not self.options.create_backlog:
            return self.paths
        limits = limits_for(self.options.operation_timeout.total_seconds())
        stopping = threading.Event()

        def ensure() -> tuple[str, ...]:
            with self.open_administration(secondary=True) as administration:
                return ensure_queues(
                    administration,
                    self.paths,
                    limits,
                    stopping=stopping,
                    on_existing=self._check_settings,
                )

        try:
            queues: tuple[str, ...] = yield RunBlocking(ensure)
            return queues
        finally:
            stopping.set()  # in an event loop, a cancellation does not end the thread

    def _check_settings(self, queue: QueueProperties) -> None:
        if queue.max_message_size_in_kilobytes is not None:
            self.message_limits[queue.path] = queue.max_message_size_in_kilobytes * KB
        ordered = self.options.failback == "after-drain"
        self.mismatches.extend(find_mismatches(queue, ordered=ordered))

    def release(self) -> None:
        """End the registration, and close ledger and telemetry. Can be called repeatedly."""
        registry.leave(self.primary)
        if self.telemetry is not None:
            self.telemetry.close()
        if self.usage is not None:
            self.usage.close()

    def abandon(self) -> Operation[None]:
        """Release the plan of a pairing that could not begin."""
        self.release()
        yield from self.close_secondary()
        yield StopBackground()

    def close_secondary(self) -> Operation[None]:
        """Close the client of the secondary if it belongs to the pairing."""
        if self.owns_secondary:
            yield CloseObject(self.secondary)


def make_plan(
    primary: Any,
    options: SendAvailabilityOptions | None,
    client_class: Any,
    loop: asyncio.AbstractEventLoop | None = None,
) -> PairingPlan:
    """Check and register a pairing of clients of this class; `loop` is the event loop of
    asynchronous clients. Raises a subclass of ConfigurationError for each mistake; then nothing is
    registered."""
    if options is None:
        raise OptionsMissing("pair_namespace needs SendAvailabilityOptions(secondary=…)")
    if not options.secondary:
        raise SecondaryMissing(
            "The options name no secondary. Set it to a connection string or a client."
        )
    if not isinstance(primary, client_class):
        # Not its value, which may be a connection string with a key.
        raise ConfigurationError(
            f"The primary must be an {_name_of(client_class)}, not {_name_of(type(primary))}."
            f"{_other_function(type(primary))}"
        )
    check_client(primary)
    check_no_entity_path(primary, "primary")
    secondary = _secondary_client(options.secondary, client_class)
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
                f"{str(primary_id)!r} does not name a namespace. Set primary_name, which is used "
                "in the paths of the backlog queues."
            )
        paths = tuple(backlog_paths(name, options.backlog_queue_count))
        syphon = None
        if options.enable_syphon:
            syphon = syphon_options(primary, secondary, options, paths, loop)
        console = None
        if options.console is not None:
            from pairbus.pairing.console_reporter import make_reporter

            console = make_reporter(options, name)
        telemetry = _sender_telemetry(options, primary_id, secondary_id)
        usage = None
        if options.ledger is not None:
            usage = PairingUsage(options.ledger, str(primary_id), str(secondary_id), telemetry)
    except BaseException:
        registry.leave(primary)
        raise
    return PairingPlan(
        options=options,
        primary=primary,
        secondary=secondary,
        primary_id=primary_id,
        secondary_id=secondary_id,
        owns_secondary=isinstance(options.secondary, str),
        paths=paths,
        syphon=syphon,
        usage=usage,
        console=console,
        telemetry=telemetry,
        loop=loop,
    )


def _sender_telemetry(
    options: SendAvailabilityOptions, primary: NamespaceId, secondary: NamespaceId
) -> SenderTelemetry | None:
    telemetry = find_telemetry(options.telemetry)
    if telemetry is None:
        return None
    return SenderTelemetry(
        telemetry,
        primary=ServerAddress(primary.host, primary.port),
        secondary=ServerAddress(secondary.host, secondary.port),
    )


def _secondary_client(secondary: Any, client_class: Any) -> Any:
    """Return the client of the secondary; create it from a connection string."""
    if isinstance(secondary, str):
        check_no_entity_path(secondary, "secondary")
        try:
            return client_class.from_connection_string(secondary)
        except (ValueError, UnboundLocalError) as exc:  # the latter for a string without a key
            raise ConfigurationError(
                f"The connection string of the secondary is invalid: {exc}"
            ) from exc
    if not isinstance(secondary, client_class):
        raise ConfigurationError(
            f"The secondary must be a connection string or an {_name_of(client_class)}, not "
            f"{_name_of(type(secondary))}."
        )
    check_client(secondary)
    check_no_entity_path(secondary, "secondary")
    return secondary


def _name_of(type_: type) -> str:
    module = type_.__module__.partition("._")[0]
    return type_.__name__ if module == "builtins" else f"{module}.{type_.__name__}"


def _other_function(type_: type) -> str:
    """Return the advice for a client of the other kind, asynchronous or not."""
    functions = {
        "azure.servicebus.ServiceBusClient": "pairbus.pair_namespace",
        "azure.servicebus.aio.ServiceBusClient": "pairbus.aio.pair_namespace",
    }
    function = functions.get(_name_of(type_))
    return "" if function is None else f" For this client, use {function}."
