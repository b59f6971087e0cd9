"""Parts that the `pairbus dead-letters` commands share."""

from collections.abc import Callable

import typer
from rich.console import Console

from pairbus.backlog.dead_letter_source import DeadLetterSource
from pairbus.cli.backlog_command import FAILED, STOPPED, USAGE_ERROR
from pairbus.cli.console import print_error, print_failure, print_warning
from pairbus.errors import AmqpError, PairbusError


def run_command(err: Console, run: Callable[[], int]) -> None:
    """Run a command, and exit with the status that it returns."""
    try:
        status = run()
    except AmqpError as exc:
        print_failure(err, exc)
        status = FAILED
    except PairbusError as exc:
        print_error(err, exc)
        status = USAGE_ERROR
    except KeyboardInterrupt:
        print_warning(err, "Stopped.")
        status = STOPPED
    raise typer.Exit(status)


def where(source: DeadLetterSource) -> str:
    """Return the names of the entities of a source."""
    if source.in_backlog:
        count = len(source.entities)
        return "1 backlog queue" if count == 1 else f"{count} backlog queues"
    return ", ".join(source.entities)
