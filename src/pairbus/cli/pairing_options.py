"""Options of several commands that name a pairing."""

from typing import Annotated

import typer

from pairbus.amqp.client.default_credential import require_azure_identity
from pairbus.backlog.target import InspectionTarget
from pairbus.cli.network_options import NetworkOptions
from pairbus.errors import ConfigurationError
from pairbus.servicebus.namespace_access import is_connection_string

Primary = Annotated[
    str,
    typer.Option(
        "--primary",
        envvar="PAIRBUS_PRIMARY",
        help="Connection string of the primary, or its host for Microsoft Entra ID, such as "
        "contoso.servicebus.windows.net. Pass a connection string in the variable "
        "PAIRBUS_PRIMARY: arguments are visible in process lists.",
        show_envvar=True,
    ),
]
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
Secondary = Annotated[
    str,
    typer.Option(
        "--secondary",
        envvar="PAIRBUS_SECONDARY",
        help="Connection string of the secondary, or its host for Microsoft Entra ID. Pass a "
        "connection string in the variable PAIRBUS_SECONDARY: arguments are visible in process "
        "lists.",
        show_envvar=True,
    ),
]
PrimaryName = Annotated[
    str | None,
    typer.Option(
        "--primary-name",
        help="Name of the primary namespace. Needed when its host is localhost or an IP address; "
        "must equal `primary_name` of the senders.",
    ),
]
BacklogQueues = Annotated[
    int,
    typer.Option(
        "--backlog-queues",
        min=1,
        help="Number of backlog queues; must equal `backlog_queue_count` of the senders, or queues "
        "are not drained.",
    ),
]
ExpectedQueues = Annotated[
    int,
    typer.Option(
        "--backlog-queues",
        min=1,
        help="Number of backlog queues; should equal `backlog_queue_count` of the senders. Other "
        "queues that exist are shown too, with a warning.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", min=0.1, max=3600, help="Timeout of each request, in seconds."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def target_of(
    primary: str | None,
    secondary: str,
    primary_name: str | None,
    backlog_queues: int,
    timeout_s: float,
    network: NetworkOptions,
    *,
    needs_name: bool = True,
    needs_primary: bool = False,
) -> InspectionTarget:
    """Return the pairing that the options name. Raises ConfigurationError, also if azure-identity
    is needed and is not installed. `needs_primary`: the command connects to the primary."""
    require_credentials(secondary, primary if needs_primary else None)
    target = InspectionTarget.parse(
        primary=primary,
        secondary=secondary,
        primary_name=primary_name,
        backlog_queue_count=backlog_queues,
        timeout_s=timeout_s,
        **network.client_fields(),
    )
    if needs_name and target.primary_name is None:
        if target.primary is None:
            raise ConfigurationError(
                "The name of the primary is missing; it is part of the paths of backlog queues. "
                "Add --primary-name NAME."
            )
        raise ConfigurationError(
            f"{target.primary.host!r} does not name a namespace. Add --primary-name NAME, the same "
            "as `primary_name` in your senders."
        )
    return target


def require_credentials(*namespaces: str | None) -> None:
    """Raise ConfigurationError if azure-identity is needed and is not installed."""
    if uses_entra(*namespaces):
        require_azure_identity()


def uses_entra(*namespaces: str | None) -> bool:
    """Return True if one of the namespaces is given as a host."""
    return any(text is not None and not is_connection_string(text) for text in namespaces)
