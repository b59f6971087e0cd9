"""`pairbus syphon --dry-run`: the messages that a syphon would move, by destination."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pairbus.cli.backlog_screen import NO_DESTINATION
from pairbus.cli.console import print_error
from pairbus.cli.formatting import messages
from pairbus.cli.spark_errors import error_summary
from pairbus.cli.syphon_run import DRAINED, FAILED
from pairbus.cli.threads import run_in_thread

if TYPE_CHECKING:
    from pairbus.syphon.options import SyphonOptions


def print_dry_run(out: Console, err: Console, options: "SyphonOptions", master: str | None) -> int:
    """Print the messages by destination, and return the exit status."""
    from pairbus.syphon.dry_run import destinations

    out.print("Starting Spark…")
    try:
        summaries = run_in_thread(lambda: destinations(options, master))
    except Exception as exc:  # noqa: BLE001  any error of Spark
        print_error(err, f"The backlog cannot be read: {error_summary(exc)}")
        return FAILED
    table = Table("destination", "messages", "oldest", "")
    for summary in summaries:
        name = NO_DESTINATION if summary.destination is None else escape(summary.destination)
        problem = "" if summary.problem is None else f"would be dead-lettered: {summary.problem}"
        table.add_row(
            name,
            f"{summary.messages:,}",
            f"{summary.oldest:%Y-%m-%d %H:%M:%S}",
            f"[red]{problem}[/red]" if problem else "",
        )
    out.print(table)
    total = sum(summary.messages for summary in summaries)
    out.print(f"{messages(f'{total:,}')}. Nothing was moved.")
    return DRAINED
