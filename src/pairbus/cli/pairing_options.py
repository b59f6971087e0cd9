"""Options of several commands that name a pairing."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from pairbus.amqp.client.default_credential import require_azure_identity
from pairbus.backlog.target import InspectionTarget
from pairbus.cli.network_options import NetworkOptions
from pairbus.errors import ConfigurationError
from pairbus.servicebus.namespace_access import is_connection_string

DEFAULT_BACKLOG_QUEUES = 10

_PRIMARY = typer.Option(
    "--primary",
    envvar="PAIRBUS_PRIMARY",
    help="Connection string of the primary, or its host for Microsoft Entra ID, such as "
    "contoso.servicebus.windows.net. Pass a connection string in the variable PAIRBUS_PRIMARY: "
    "arguments are visible in process lists.",
    show_envvar=True,
)
_SECONDARY = typer.Option(
    "--secondary",
    envvar="PAIRBUS_SECONDARY",
    help="Connection string of the secondary, or its host for Microsoft Entra ID. Pass a "
    "connection string in the variable PAIRBUS_SECONDARY: arguments are visible in process lists.",
    show_envvar=True,
)
Primary = Annotated[str, _PRIMARY]
Secondary = Annotated[str, _SECONDARY]
# A command that has commands below it cannot require options: those would need them too.
SyphonPrimary = Annotated[str | None, _PRIMARY]
SyphonSecondary = Annotated[str | None, _SECONDARY]
OptionalPrimary = Annotated[
    str | None,
    typer.Option(
        "--primary",
        envvar="PAIRBUS_PRIMARY",
        help="Connection string or host of the primary. Only the name in its host is used; "
        "--primary-name is enough.",
        show_envvar=True,
    ),
]
PrimaryName = Annotated[
    str | None,
    typer.Option(
        "--primary-name",
        envvar="PAIRBUS_PRIMARY_NAME",
        show_envvar=True,
        help="Name of the primary namespace. Needed when its host is localhost or an IP address; "
        "must equal `primary_name` of the senders.",
    ),
]


def _queue_count(text: str) -> Any:
    return typer.Option(
        "--backlog-queues",
        envvar="PAIRBUS_BACKLOG_QUEUES",
        show_envvar=True,
        min=1,
        help=f"Number of backlog queues; {text}",
    )


BacklogQueues = Annotated[
    int,
    _queue_count("must equal `backlog_queue_count` of the senders, or queues are not drained."),
]
ExpectedQueues = Annotated[
    int,
    _queue_count(
        "should equal `backlog_queue_count` of the senders. Other queues that exist are shown too, "
        "with a warning."
    ),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", min=0.1, max=3600, help="Timeout of each request, in seconds."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
MessagesAsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print JSON instead of tables: all properties, and the body as text or base64.",
    ),
]
PeekCount = Annotated[int, typer.Option(min=1, help="Maximum number of messages.")]


def required(name: str, value: str | None) -> str:
    """Return the value of an option. Raises ConfigurationError if it is missing."""
    if not value:
        raise ConfigurationError(
            f"--{name} is missing. Add it, set PAIRBUS_{name.upper()}, or use a configuration file."
        )
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingSettings:
    """The values of the options that name a pairing."""

    primary: str | None = field(default=None, repr=False)
    secondary: str = field(repr=False)
    primary_name: str | None = None
    backlog_queues: int = DEFAULT_BACKLOG_QUEUES
    network: NetworkOptions = field(default_factory=NetworkOptions)

    def target(
        self, timeout_s: float, *, needs_name: bool = True, needs_primary: bool = False
    ) -> InspectionTarget:
        """Return the pairing. Raises ConfigurationError, also if azure-identity is needed and is
        not installed. `needs_primary`: the command connects to the primary."""
        require_credentials(self.secondary, self.primary if needs_primary else None)
        target = InspectionTarget.parse(
            primary=self.primary,
            secondary=self.secondary,
            primary_name=self.primary_name,
            backlog_queue_count=self.backlog_queues,
            timeout_s=timeout_s,
            **self.network.client_fields(),
        )
        if needs_name and target.primary_name is None:
            if target.primary is None:
                raise ConfigurationError(
                    "The name of the primary is missing; it is part of the paths of backlog "
                    "queues. Add --primary-name NAME."
                )
            raise ConfigurationError(
                f"{target.primary.host!r} does not name a namespace. Add --primary-name NAME, the "
                "same as `primary_name` in your senders."
            )
        return target


def require_credentials(*namespaces: str | None) -> None:
    """Raise ConfigurationError if azure-identity is needed and is not installed."""
    if uses_entra(*namespaces):
        require_azure_identity()


def uses_entra(*namespaces: str | None) -> bool:
    """Return True if one of the namespaces is given as a host."""
    return any(text is not None and not is_connection_string(text) for text in namespaces)
