"""`pairbus syphon`: move the backlog to where it was going."""

import os
import signal
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pairbus.cli.console import check_java, consoles, print_error
from pairbus.cli.default_paths import ledger_folder
from pairbus.cli.drain_screen import DrainScreen, RateMeter, seconds_to_go
from pairbus.cli.pairing_options import BacklogQueues, Primary, PrimaryName, Secondary
from pairbus.cli.spark_errors import error_summary
from pairbus.cli.threads import run_in_thread
from pairbus.errors import ConfigurationError, PairbusError

DRAINED, FAILED, WRONG, STUCK, STOPPED = 0, 1, 2, 3, 4
LOOK_S = 0.5
COUNT_S = 5.0
STATUS_S = 1.0
EXAMPLE = "Example: PAIRBUS_PRIMARY=… PAIRBUS_SECONDARY=… pairbus syphon --once"


def syphon(
    primary: Primary,
    secondary: Secondary,
    primary_name: PrimaryName = None,
    backlog_queues: BacklogQueues = 10,
    once: Annotated[bool, typer.Option("--once", help="Drain the backlog, and stop.")] = False,
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
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the ledger of what is billable; see `pairbus cost report`.",
            show_default="$XDG_STATE_HOME/pairbus/ledger",
            file_okay=False,
        ),
    ] = None,
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Keep no ledger.")] = False,
    stuck_after: Annotated[
        float,
        typer.Option(help="Seconds without progress after which it counts as stuck.", min=1),
    ] = 120,
    status_file: Annotated[
        Path | None,
        typer.Option(
            help="Write how it is to this file, about once a second, for a program to read: JSON "
            "with running, healthy, problem, moved, dead_lettered, left, errors, rate, "
            "seconds_to_go, when. It is replaced as a whole.",
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Move the backlog of a pairing to where it was going, on Spark.

    Runs until it is stopped with Ctrl-C (twice: at once). With --once, runs until every backlog
    queue is empty; messages that another receiver has locked are waited for. With --only, messages
    for other paths may stay.

    Exit status: 0 drained, or stopped without --once; 1 failed; 2 a wrong option; 3 stuck: messages
    are left, and there is no progress; 4 stopped before --once was done.
    """
    from pairbus.syphon.options import SyphonOptions, TimeToLive

    out, err = consoles()
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
            stuck_after=timedelta(seconds=stuck_after),
            ledger=None if no_ledger else str((ledger or ledger_folder()).absolute()),
        )
        _check_status_file(status_file)
    except PairbusError as exc:
        print_error(err, exc)
        raise typer.Exit(WRONG) from exc
    if not dry_run and not check_java(err):
        raise typer.Exit(FAILED)
    try:
        _warn_of_unread_queues(err, options)
        if dry_run:
            status = _show_what_would_go_where(out, err, options)
        else:
            run = _Run(options, master, checkpoint, once=once, status_file=status_file)
            status = run.run(out, err)
    except KeyboardInterrupt:
        print_error(err, "Stopped.", "yellow")
        status = STOPPED if once or dry_run else DRAINED
    raise typer.Exit(status)


def _check_status_file(path: Path | None) -> None:
    if path is not None and not path.parent.is_dir():
        raise ConfigurationError(f"--status-file: there is no folder {path.parent}")


def _warn_of_unread_queues(err: Console, options: Any) -> None:
    """Name the backlog queues that exist and are not read. Says nothing where they cannot be
    listed."""
    from pairbus.backlog.discovery import describe_queues
    from pairbus.syphon.counts import unread_queues

    count = options.backlog_queue_count
    unread = run_in_thread(
        lambda: unread_queues(options.secondary, options.name, count, options.usage)
    )
    if unread:
        named, single = describe_queues(unread), len(unread) == 1
        print_error(
            err,
            f"{named[0].upper()}{named[1:]} {'exists' if single else 'exist'}, but "
            f"{'is' if single else 'are'} not drained, because --backlog-queues is {count}. Stop "
            f"the syphon and start it with --backlog-queues {max(unread) + 1}.",
            "yellow",
        )


class _Run:
    """One run, from start to stop."""

    def __init__(
        self,
        options: Any,
        master: str | None,
        checkpoint: str | None,
        *,
        once: bool,
        status_file: Path | None,
    ) -> None:
        from pairbus.syphon.query import Syphon

        self._syphon = Syphon(options, master=master, checkpoint=checkpoint)
        self._once = once
        self._status_file = status_file
        self._stopped = threading.Event()
        self._speed = RateMeter()

    def run(self, out: Console, err: Console) -> int:
        """The exit status."""
        self._heed_signals()
        out.print("Starting Spark…")
        try:
            # Where Spark starts in the main thread, it puts its own handler of Ctrl-C in our place.
            run_in_thread(lambda: self._syphon.start(once=self._once))
        except Exception as exc:  # noqa: BLE001  whatever Spark says
            print_error(err, f"Spark did not start: {error_summary(exc)}")
            return FAILED
        left = _Left(self._syphon)
        try:
            self._watch(out, err, left)
        finally:
            if self._stopped.is_set():
                out.print("Stopping…")
            self._syphon.stop()
        status = self._syphon.status()
        self._tell(status, left.count)
        self._sum_up(out, err, status)
        return self._exit_status(err, status)

    def _heed_signals(self) -> None:
        def heed(number: int, _: object) -> None:
            if self._stopped.is_set():
                os._exit(128 + number)  # Spark ends when nobody holds its input any more
            self._stopped.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, heed)

    def _watch(self, out: Console, err: Console, left: "_Left") -> None:
        """Show what is moved, until the syphon ends or is to be stopped."""
        told_at = 0.0
        wanted = out.is_terminal or self._status_file is not None
        with DrainScreen(out, err) as screen:
            while True:
                now, status = time.monotonic(), self._syphon.status()
                self._speed.note(now, status.moved)
                if wanted:
                    left.count_if_due(status.batches, now)
                if now - told_at >= STATUS_S:
                    told_at = now
                    self._tell(status, left.count)
                screen.show(status, left.count, self._speed, now)
                if not status.running or self._stopped.wait(LOOK_S):
                    return

    def _tell(self, status: Any, left: int | None) -> None:
        """For programs."""
        if self._status_file is None:
            return
        from pairbus.syphon.status_file import write_json

        rate = self._speed.of() if status.running else 0.0
        write_json(
            self._status_file,
            {
                "running": status.running,
                "healthy": status.healthy,
                "problem": status.problem,
                "moved": status.moved,
                "dead_lettered": status.dead_lettered,
                "left": left,
                "errors": status.errors,
                "rate": rate,
                "seconds_to_go": seconds_to_go(left, rate),
                "when": time.time(),
            },
        )

    def _sum_up(self, out: Console, err: Console, status: Any) -> None:
        for path, count in sorted(status.moved.items()):
            out.print(escape(f"  {path}: {count:,} moved"))
        if not status.drained:
            for path, why in sorted(status.errors.items()):
                print_error(err, f"  {path}: does not take its messages: {why}", "yellow")
        buried = status.dead_lettered.total()
        out.print(f"{status.moved.total():,} messages moved, {buried:,} dead-lettered.")

    def _exit_status(self, err: Console, status: Any) -> int:
        if status.failure is not None:
            print_error(err, error_summary(status.failure))
            return FAILED
        if not self._once:
            return DRAINED
        if self._stopped.is_set():
            print_error(err, "Stopped before the backlog was drained.", "yellow")
            return STOPPED
        if status.unreadable is not None:
            print_error(err, f"The backlog cannot be read: {status.unreadable}")
            # Once something was moved, the namespaces are right, and it is worth trying again.
            return STUCK if status.moved else FAILED
        if not status.drained:
            print_error(err, f"Stuck: {status.problem or 'messages are left'}", "yellow")
            return STUCK
        return DRAINED


class _Left:
    """What the backlog queues hold, asked for in the background: a namespace that is down takes
    its time. Each question costs operations, so nobody asks while nothing happens."""

    def __init__(self, syphon: Any) -> None:
        self._options = syphon.options
        self._asked: tuple[float, int] | None = None
        self._thread: threading.Thread | None = None
        self.count: int | None = None

    def count_if_due(self, batches: int, now: float) -> None:
        if self._asked is not None and (
            now - self._asked[0] < COUNT_S or batches == self._asked[1]
        ):
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._asked = now, batches
        self._thread = threading.Thread(target=self._ask, name="pairbus counts", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        from pairbus.syphon.counts import backlog_size

        self.count = backlog_size(
            self._options.secondary, self._options.backlog_queues, self._options.usage
        )


def _show_what_would_go_where(out: Console, err: Console, options: Any) -> int:
    from pairbus.syphon.dry_run import dry_run

    try:
        summaries = run_in_thread(lambda: dry_run(options))
    except PairbusError as exc:
        print_error(err, f"The backlog cannot be read: {exc}")
        return FAILED
    table = Table("destination", "messages", "oldest", "")
    for summary in summaries:
        name = "nowhere" if summary.destination is None else escape(summary.destination)
        problem = summary.problem
        fate = "" if problem is None else f"[red]would be dead-lettered: {problem}[/red]"
        oldest = "" if summary.oldest_ms is None else _local_time(summary.oldest_ms)
        table.add_row(name, f"{summary.messages:,}", oldest, fate)
    out.print(table)
    out.print(f"{sum(summary.messages for summary in summaries):,} messages. Nothing was moved.")
    return DRAINED


def _local_time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
