"""`pairbus syphon --dry-run`: the messages that a syphon would move, by destination."""

import time
from typing import TYPE_CHECKING

from rich.console import Console

from pairbus.cli.backlog_screen import print_summaries
from pairbus.cli.console import print_error
from pairbus.cli.formatting import messages
from pairbus.cli.syphon_run import DRAINED, FAILED
from pairbus.cli.threads import run_in_thread
from pairbus.errors import PairbusError

if TYPE_CHECKING:
    from pairbus.syphon.options import SyphonOptions


def print_dry_run(out: Console, err: Console, options: "SyphonOptions") -> int:
    """Print the messages by destination, and return the exit status."""
    from pairbus.syphon.dry_run import dry_run

    try:
        summaries = run_in_thread(lambda: dry_run(options))
    except PairbusError as exc:
        print_error(err, f"The backlog cannot be read: {exc}")
        return FAILED
    if summaries:
        print_summaries(out, summaries, time.time_ns() // 1_000_000)
    total = sum(summary.messages for summary in summaries)
    out.print(f"{messages(f'{total:,}')}. Nothing was moved.")
    return DRAINED
