"""Options that several commands share: which pairing. They are said once, here."""

from typing import Annotated

import typer

from pairbus.backlog.target import NO_NAME, Target
from pairbus.errors import ConfigurationError

Primary = Annotated[
    str,
    typer.Option(
        "--primary",
        envvar="PAIRBUS_PRIMARY",
        help="Connection string of the primary; better in the environment.",
        show_envvar=True,
    ),
]
PrimaryIfKnown = Annotated[
    str | None,
    typer.Option(
        "--primary",
        envvar="PAIRBUS_PRIMARY",
        help="Connection string of the primary; only its name is used, so --primary-name will do.",
        show_envvar=True,
    ),
]
Secondary = Annotated[
    str,
    typer.Option(
        "--secondary",
        envvar="PAIRBUS_SECONDARY",
        help="Connection string of the secondary; better in the environment.",
        show_envvar=True,
    ),
]
PrimaryName = Annotated[
    str | None,
    typer.Option(
        "--primary-name",
        help="The primary's name, where its host has none; as for the pairing.",
    ),
]
BacklogQueues = Annotated[
    int,
    typer.Option(
        "--backlog-queues",
        min=1,
        help="Number of backlog queues; must equal the senders' backlog_queue_count, or queues are "
        "not drained.",
    ),
]
ExpectedQueues = Annotated[
    int,
    typer.Option(
        "--backlog-queues",
        min=1,
        help="Number of backlog queues that the senders use (backlog_queue_count). If others "
        "exist, they are shown too, with a warning.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", min=0.1, max=3600, help="Seconds to wait for an answer."),
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


def target_of(
    primary: str | None,
    secondary: str,
    primary_name: str | None,
    backlog_queues: int,
    timeout_s: float,
    *,
    needs_name: bool = True,
) -> Target:
    """The pairing that the options name. Raises ConfigurationError, in the words of the options."""
    pair = Target.of(
        primary=primary,
        secondary=secondary,
        primary_name=primary_name,
        backlog_queue_count=backlog_queues,
        timeout_s=timeout_s,
    )
    if needs_name and pair.primary_name is None:
        if pair.primary is None:
            raise ConfigurationError("give --primary or --primary-name: backlog queues have it")
        raise ConfigurationError(f"{NO_NAME} (--primary-name)")
    return pair
