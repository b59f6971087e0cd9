"""Options that the `pairbus dead-letters` commands share."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pairbus.amqp.client import ClientOptions
from pairbus.backlog.dead_letter_filter import DeadLetterFilter
from pairbus.backlog.dead_letter_source import DeadLetterSource
from pairbus.backlog.discovery import list_backlog_queues
from pairbus.backlog.peek import connected, search_queues
from pairbus.backlog.target import InspectionTarget, parse_namespace
from pairbus.cli.backlog_command import now_ms, report_search
from pairbus.cli.configuration_options import OptionalConfigFile, OptionalPairingName
from pairbus.cli.default_paths import chosen_ledger
from pairbus.cli.network_options import NetworkOptions
from pairbus.cli.pairing_options import (
    DEFAULT_BACKLOG_QUEUES,
    ExpectedQueues,
    PairingSettings,
    PrimaryName,
    require_credentials,
)
from pairbus.cli.times import parse_time
from pairbus.errors import ConfigurationError
from pairbus.spark.usage import NO_USAGE, UsageRecorder

ROLES = ("primary", "secondary")

DeadLetterPrimary = Annotated[
    str | None,
    typer.Option(
        "--primary",
        envvar="PAIRBUS_PRIMARY",
        help="Connection string of the primary, or its host for Microsoft Entra ID. Pass a "
        "connection string in the variable PAIRBUS_PRIMARY: arguments are visible in process "
        "lists.",
        show_envvar=True,
    ),
]
DeadLetterSecondary = Annotated[
    str | None,
    typer.Option(
        "--secondary",
        envvar="PAIRBUS_SECONDARY",
        help="Connection string of the secondary, or its host for Microsoft Entra ID. Pass a "
        "connection string in the variable PAIRBUS_SECONDARY: arguments are visible in process "
        "lists.",
        show_envvar=True,
    ),
]
Entities = Annotated[
    list[str] | None,
    typer.Option(
        "--entity",
        metavar="PATH",
        help="Queue (orders) or subscription (topic/Subscriptions/name) whose dead letters are "
        "meant. Can be repeated.",
        show_default="the backlog queues",
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        metavar="[primary|secondary]",
        help="Namespace of the --entity.",
        show_default="primary",
    ),
]
Queues = Annotated[
    list[int] | None,
    typer.Option(
        "--queue",
        min=0,
        help="Index of a backlog queue. Can be repeated.",
        show_default="all backlog queues",
    ),
]
Reasons = Annotated[
    list[str] | None,
    typer.Option("--reason", help="Only dead letters with this reason. Can be repeated."),
]
Destinations = Annotated[
    list[str] | None,
    typer.Option("--destination", help="Only dead letters for this path. Can be repeated."),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Only messages that were enqueued at this time or later: 2026-11-17T09:30Z, or an age "
        "such as 90m, 12h, 3d. A message keeps its enqueued time when it is dead-lettered.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Only messages that were enqueued before this time or age."),
]
MaxCount = Annotated[
    int | None, typer.Option("--count", min=1, help="Maximum number of messages, oldest first.")
]
MaxRate = Annotated[
    float | None,
    typer.Option("--max-rate", min=0.001, help="Maximum number of messages a second."),
]
LedgerFolder = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        help="Folder for the ledger of billable operations; see `pairbus cost report`.",
        show_default="$XDG_STATE_HOME/pairbus/ledger",
        file_okay=False,
    ),
]
NoLedger = Annotated[bool, typer.Option("--no-ledger", help="Write no ledger.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterQueues:
    """The options that name dead-letter queues."""

    primary: DeadLetterPrimary = field(default=None, repr=False)
    secondary: DeadLetterSecondary = field(default=None, repr=False)
    primary_name: PrimaryName = None
    backlog_queues: ExpectedQueues = DEFAULT_BACKLOG_QUEUES
    config: OptionalConfigFile = None
    pairing: OptionalPairingName = None
    entity: Entities = None
    namespace: Namespace = None
    queue: Queues = None

    def source(
        self, err: Console, timeout_s: float, network: NetworkOptions, *, to: str | None = None
    ) -> DeadLetterSource | None:
        """Return the dead-letter queues that the options name, or None, with an error printed, if
        no backlog queue exists. Raises ConfigurationError and the errors of the client."""
        if self.namespace not in (*ROLES, None):
            raise ConfigurationError(
                f"--namespace: {self.namespace!r} is not valid. Use primary or secondary."
            )
        if self.entity:
            if self.queue:
                raise ConfigurationError("Use --entity or --queue, not both.")
            namespace = self._namespace(self.namespace or "primary", timeout_s, network)
            return DeadLetterSource(namespace=namespace, entities=tuple(self.entity), to=to)
        if self.namespace is not None:
            raise ConfigurationError("--namespace needs --entity PATH.")
        return self._backlog(err, timeout_s, network, to)

    def _namespace(self, role: str, timeout_s: float, network: NetworkOptions) -> ClientOptions:
        text = self.primary if role == "primary" else self.secondary
        if text is None:
            raise ConfigurationError(
                f"The {role} is missing. Add --{role}, set PAIRBUS_{role.upper()}, or select a "
                "pairing of a configuration file with --pairing NAME."
            )
        require_credentials(text)
        return parse_namespace(role, text, timeout_s=timeout_s, **network.client_fields())

    def _backlog(
        self, err: Console, timeout_s: float, network: NetworkOptions, to: str | None
    ) -> DeadLetterSource | None:
        if self.secondary is None:
            raise ConfigurationError(
                "The secondary is missing, which holds the backlog queues. Add --secondary, set "
                "PAIRBUS_SECONDARY, or select a pairing of a configuration file with --pairing "
                "NAME. For another queue or subscription, add --entity."
            )
        settings = PairingSettings(
            primary=self.primary,
            secondary=self.secondary,
            primary_name=self.primary_name,
            backlog_queues=self.backlog_queues,
            network=network,
        )
        target = settings.target(timeout_s, needs_primary=self.primary is not None)
        entities = self._backlog_entities(err, target)
        if entities is None:
            return None
        return DeadLetterSource(
            namespace=target.secondary,
            entities=entities,
            in_backlog=True,
            target=target.primary,
            to=to,
        )

    def _backlog_entities(self, err: Console, target: InspectionTarget) -> tuple[str, ...] | None:
        if self.queue:
            return tuple(target.queue_path(str(index)) for index in dict.fromkeys(self.queue))
        search = list_backlog_queues(target).search()
        with connected(target.secondary) as client:
            search_queues(client, search)
        if not report_search(err, search):
            return None
        return tuple(search.path(index) for index in search.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenLetters:
    """The options that select dead letters of these queues."""

    reason: Reasons = None
    destination: Destinations = None
    since: Since = None
    until: Until = None

    def choice(self, count: int | None = None) -> DeadLetterFilter:
        """Return the filter. Raises ConfigurationError."""
        time_ms = now_ms()
        return DeadLetterFilter(
            reasons=tuple(self.reason or ()),
            destinations=tuple(self.destination or ()),
            since_ms=parse_time("--since", self.since, time_ms),
            until_ms=parse_time("--until", self.until, time_ms),
            count=count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOptions:
    """The options of the ledger."""

    ledger: LedgerFolder = None
    no_ledger: NoLedger = False

    def usage(self, source: DeadLetterSource) -> UsageRecorder:
        """Return the recorder of billable operations. Raises ConfigurationError."""
        folder = chosen_ledger(self.ledger, no_ledger=self.no_ledger)
        if folder is None:
            return NO_USAGE
        target = source.target or source.namespace
        return UsageRecorder.create(str(folder.absolute()), target, source.namespace)
