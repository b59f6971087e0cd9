"""`pairbus syphon --dry-run`: the messages that a syphon would move, by destination."""

import contextlib
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console

from pairbus.cli.backlog_screen import print_summaries
from pairbus.cli.console import print_error
from pairbus.cli.formatting import messages
from pairbus.cli.option_errors import with_option
from pairbus.cli.syphon_status_file import DRAINED, FAILED, USAGE_ERROR
from pairbus.cli.threads import run_in_thread
from pairbus.errors import ConfigurationError, PairbusError
from pairbus.spark.error_summary import error_summary

if TYPE_CHECKING:
    from pairbus.syphon.options import SyphonOptions
    from pairbus.syphon.selection import SessionSelection


def run_dry_run(
    out: Console, err: Console, pairings: Mapping[str, "SyphonOptions"], master: str | None
) -> int:
    """Print what would be moved for each pairing, and return the exit status. A condition in SQL
    needs Spark, which is started for it."""
    if any(options.where is not None for options in pairings.values()):
        err.print("Starting Spark for --where…")
    results = []
    with contextlib.ExitStack() as resources:
        for name, options in pairings.items():
            if name:
                out.print(f"{name}:", markup=False)
            selection = None
            try:
                if options.where is not None:
                    selection = run_in_thread(partial(_selection, resources, options, master))
                results.append(_print_dry_run(out, err, options, selection))
            except ConfigurationError as exc:
                print_error(err, with_option(exc))
                return USAGE_ERROR
            except Exception as exc:  # any error of Spark
                if options.where is None:
                    raise
                print_error(err, f"Spark could not apply the condition: {error_summary(exc)}")
                return FAILED
    return max(results)


def _selection(
    resources: contextlib.ExitStack, options: "SyphonOptions", master: str | None
) -> "SessionSelection":
    """Return the condition, with a Spark session for it. Raises ConfigurationError."""
    from pairbus.spark.sessions import lease_session
    from pairbus.syphon.selection import SessionSelection
    from pairbus.syphon.transformation import select_rows

    spark = resources.enter_context(lease_session(master))
    select = partial(select_rows, only=options.only, where=options.where, transform=None)
    selection = SessionSelection(spark, select, options.ttl == "deduct")
    selection.check()
    return selection


def _print_dry_run(
    out: Console, err: Console, options: "SyphonOptions", selection: "SessionSelection | None"
) -> int:
    from pairbus.syphon.dry_run import dry_run

    try:
        result = run_in_thread(lambda: dry_run(options, selection))
    except ConfigurationError:
        raise
    except PairbusError as exc:
        print_error(err, f"The backlog cannot be read: {exc}")
        return FAILED
    if result.summaries:
        print_summaries(out, result.summaries, time.time_ns() // 1_000_000)
    total = messages(f"{result.peeked:,}")
    if options.only or options.where is not None:
        total = f"{result.selected:,} of {total} would be moved or dead-lettered"
    out.print(f"{total}. Nothing was moved.")
    return DRAINED
