"""`pairbus syphon`: move the backlog to where it was going."""

import signal
import threading
import time
from datetime import timedelta
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from pairbus.cli.screen import complain, screens
from pairbus.errors import PairbusError

DRAINED, FAILED, WRONG, STUCK = 0, 1, 2, 3
LOOK_S = 0.5
COUNT_S = 5.0
EXAMPLE = "Example: PAIRBUS_PRIMARY=… PAIRBUS_SECONDARY=… pairbus syphon --once"


def syphon(
    primary: Annotated[
        str,
        typer.Option(
            envvar="PAIRBUS_PRIMARY",
            help="Connection string of the primary; better in the environment.",
            show_envvar=True,
        ),
    ],
    secondary: Annotated[
        str,
        typer.Option(
            envvar="PAIRBUS_SECONDARY",
            help="Connection string of the secondary; better in the environment.",
            show_envvar=True,
        ),
    ],
    primary_name: Annotated[
        str | None,
        typer.Option(help="The primary's name, where its host has none; as for the pairing."),
    ] = None,
    backlog_queues: Annotated[
        int, typer.Option(min=1, help="How many backlog queues there are; as for the pairing.")
    ] = 10,
    once: Annotated[bool, typer.Option("--once", help="Drain, and stop.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would go where, and move nothing.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Move messages for this path alone; may be repeated.")
    ] = None,
    max_rate: Annotated[
        float | None, typer.Option(help="Messages a second at most.", min=0.001)
    ] = None,
    ttl: Annotated[
        str,
        typer.Option(help="restore: in full. deduct: less the time in the backlog."),
    ] = "restore",
    poll: Annotated[
        float, typer.Option(help="Seconds that an idle receive waits.", min=1, max=3600)
    ] = 900,
    master: Annotated[
        str | None, typer.Option(help="A Spark master; without it, Spark runs in this process.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Where Spark keeps its progress; without it, nowhere.")
    ] = None,
) -> None:
    """Move the backlog of a pairing to where it was going, on Spark.

    Runs until it is stopped with Ctrl-C, or with --once until nothing is left. Exit status: 0
    drained or stopped, 1 failed, 2 a wrong option, 3 stuck: messages are left that a destination
    does not take.
    """
    from pairbus.syphon.options import SyphonOptions, TimeToLive

    out, err = screens()
    try:
        options = SyphonOptions(
            primary=cast(Any, primary),
            secondary=cast(Any, secondary),
            primary_name=primary_name,
            backlog_queue_count=backlog_queues,
            only=tuple(only or ()),
            max_rate=max_rate,
            ttl=cast(TimeToLive, ttl),
            poll=timedelta(seconds=poll),
        )
    except PairbusError as exc:
        complain(err, exc)
        raise typer.Exit(WRONG) from exc
    if dry_run:
        _show_what_would_go_where(out, options, master)
        return
    raise typer.Exit(_run(out, err, options, master, checkpoint, once))


def _run(
    out: Console, err: Console, options: Any, master: str | None, checkpoint: str | None, once: bool
) -> int:
    from pairbus.syphon.syphon import Syphon

    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    out.print("Starting Spark…")
    runner = Syphon(options, master=master, checkpoint=checkpoint)
    runner.start(once=once)
    try:
        _watch(out, runner, stopped)
        status = runner.status()
    finally:
        runner.stop()
    moved, buried = sum(status.moved.values()), sum(status.dead_lettered.values())
    for path, count in sorted(status.moved.items()):
        out.print(f"  {path}: {count} moved")
    for path, why in sorted(status.errors.items()):
        complain(err, f"  {path}: {status.left[path]} left: {why}", "yellow")
    out.print(f"{moved} messages moved, {buried} dead-lettered.")
    if status.failure is not None:
        complain(err, status.failure.splitlines()[0])
        return FAILED
    return STUCK if once and status.errors else DRAINED


def _watch(out: Console, runner: Any, stopped: threading.Event) -> None:
    """Show what is moved, until the syphon ends or is to be stopped."""
    from pairbus.syphon.counts import backlog_size

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
    )
    options = runner.options
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task("waiting", total=None, rate=0.0)
        counted_at, told = 0.0, 0
        while not stopped.wait(LOOK_S):
            status = runner.status()
            if not status.running:
                return
            moved = sum(status.moved.values())
            if time.monotonic() - counted_at > COUNT_S:
                counted_at = time.monotonic()
                left = backlog_size(options.secondary, options.backlog_queues)
                total = None if left is None else moved + left
                progress.update(task, total=total)
            name = ", ".join(sorted(status.moved)) or "waiting for messages"
            progress.update(task, completed=moved, rate=status.rate, description=name)
            if not out.is_terminal and moved > told:
                out.print(f"{moved} messages moved")
                told = moved


def _show_what_would_go_where(out: Console, options: Any, master: str | None) -> None:
    from pairbus.syphon.dry_run import destinations

    table = Table("destination", "messages", "oldest")
    for path, count, oldest in destinations(options, master):
        table.add_row(path or "[red]nowhere: dead-lettered[/red]", f"{count:,}", str(oldest))
    out.print(table)
