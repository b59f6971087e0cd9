"""Parts that the `pairbus backlog` commands share."""

import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console

from pairbus.backlog.discovery import QueueSearch, describe_listing_error
from pairbus.backlog.target import InspectionTarget
from pairbus.cli.console import print_error, print_failure, print_warning
from pairbus.errors import AmqpError, PairbusError

DONE, FAILED, USAGE_ERROR, STOPPED = 0, 1, 2, 4

DeadLetters = Annotated[
    bool, typer.Option("--dead-letters", help="Show dead-lettered messages instead.")
]


def run_command(
    err: Console, target: Callable[[], InspectionTarget], run: Callable[[InspectionTarget], int]
) -> None:
    """Run a command for the pairing of its options, and exit with the status that it returns."""
    try:
        status = run(target())
    except AmqpError as exc:
        print_failure(err, exc)
        raise typer.Exit(FAILED) from exc
    except PairbusError as exc:
        print_error(err, exc)
        raise typer.Exit(USAGE_ERROR) from exc
    raise typer.Exit(status)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def report_search(err: Console, search: QueueSearch) -> bool:
    """Print warnings about the queues that a search found. Return False, with an error, if there
    are none."""
    if not search.found:
        report_no_queues(err, search.path(0), search.searched_to)
        return False
    if search.complete:
        warn_of_queues(err, search.queue_mismatch, search.listing.listing_error, search.searched_to)
    return True


def warn_of_queues(
    err: Console, queue_mismatch: str | None, listing_error: str | None, searched_to: int | None
) -> None:
    if queue_mismatch is not None:
        print_warning(err, queue_mismatch)
    if listing_error is not None:
        print_warning(err, describe_listing_error(listing_error, searched_to))


def report_no_queues(err: Console, first_path: str, searched_to: int | None) -> None:
    print_error(err, describe_no_queues(first_path, searched_to))


def describe_no_queues(first_path: str, searched_to: int | None = None) -> str:
    """Return the sentences for a secondary without backlog queues of the pairing."""
    searched = "" if searched_to is None else f" up to index {searched_to}"
    return (
        f"No backlog queue {first_path.removesuffix('0')}* was found in the secondary{searched}. "
        "Either no sender has paired yet, or the name of the primary is wrong."
    )
