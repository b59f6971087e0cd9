"""One run of a syphon: its signals, its progress on the screen, its status file, its end."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from pairbus.cli.backlog_counter import BacklogCounter
from pairbus.cli.cancellation import cancel_on_signal
from pairbus.cli.console import print_error, print_warning
from pairbus.cli.drain_screen import DrainScreen, RateMeter
from pairbus.cli.option_errors import with_option
from pairbus.cli.other_queues import other_queues_problem
from pairbus.cli.syphon_status_file import (
    DEAD_LETTERED,
    DRAINED,
    FAILED,
    STOPPED,
    STUCK,
    USAGE_ERROR,
    describe_end,
    removed,
    status_values,
    write_status_file,
)
from pairbus.cli.syphon_totals import total_lines
from pairbus.cli.threads import run_in_thread
from pairbus.errors import ConfigurationError
from pairbus.spark.error_summary import error_summary

if TYPE_CHECKING:
    from pairbus.cli.metrics_endpoint import Publish
    from pairbus.syphon.options import SyphonOptions
    from pairbus.syphon.status import SyphonStatus

REFRESH_S = 0.5
REPORT_S = 1.0


class SyphonRun:
    """Runs a syphon until it is drained, fails or is stopped."""

    def __init__(
        self,
        options: "SyphonOptions",
        master: str | None,
        checkpoint: str | None,
        *,
        once: bool,
        status_file: Path | None,
        publish: "Publish | None" = None,
        executor_timeout_s: float = 0.0,
        other_queues: tuple[int, ...] = (),
    ) -> None:
        """`publish` takes the metrics, once a second. `executor_timeout_s` is the longest time
        without executors; 0: for ever. `other_queues` are the indexes of backlog queues that exist
        and are not drained."""
        from pairbus.syphon.progress import DrainProgress
        from pairbus.syphon.query import Syphon

        self._syphon = Syphon(options, master=master, checkpoint=checkpoint)
        self._once = once
        self._status_file = status_file
        self._publish = publish
        self._executor_timeout_s = executor_timeout_s
        self._other_queues = other_queues
        self._no_executors: str | None = None
        self._stopped = threading.Event()
        self._meter = RateMeter()
        self._progress = DrainProgress()

    def run(self, out: Console, err: Console) -> int:
        """Run the syphon and return the exit status."""
        try:
            with cancel_on_signal(self._stopped):
                return self._run(out, err)
        except BaseException as exc:
            # The file must not say that the syphon runs when it does not.
            self._report_end(f"the command ended unexpectedly: {type(exc).__name__}: {exc}")
            raise

    def _run(self, out: Console, err: Console) -> int:
        self._report_start()
        out.print("Starting Spark…")
        try:
            # In the main thread, Spark would replace our handler of Ctrl-C with its own.
            run_in_thread(lambda: self._syphon.start(once=self._once))
        except ConfigurationError as exc:
            print_error(err, with_option(exc))
            self._report_end(str(exc))
            return USAGE_ERROR
        except Exception as exc:  # noqa: BLE001  any error of Spark
            problem = f"Spark did not start: {error_summary(exc)}"
            print_error(err, problem)
            self._report_end(problem)
            return FAILED
        counter = BacklogCounter(self._syphon.options, self._progress)
        try:
            self._show_progress(out, err, counter)
        finally:
            if self._stopped.is_set():
                out.print("Stopping…")
            self._syphon.stop()
        status = self._syphon.status()
        if self._no_executors is not None:
            status = replace(status, healthy=False, problem=self._no_executors)
        if status.drained:
            waiting = other_queues_problem(self._syphon.options, self._other_queues)
            if waiting is not None:
                status = replace(status, drained=False, healthy=False, problem=waiting)
        self._print_totals(out, err, status)
        exit_status = self._exit_status(err, status)
        self._progress.add(time.monotonic(), removed(status))
        self._report(status, ended=describe_end(exit_status, once=self._once))
        return exit_status

    def _show_progress(self, out: Console, err: Console, counter: BacklogCounter) -> None:
        """Show the progress until the syphon ends or is stopped."""
        reported_at = 0.0
        count_needed = out.is_terminal or self._status_file is not None
        with DrainScreen(out, err) as screen:
            while True:
                now, status = time.monotonic(), self._syphon.status()
                self._meter.add(now, status.moved)
                self._progress.add(now, removed(status))
                if count_needed:
                    counter.count_if_due(status.batches, removed(status), now)
                if now - reported_at >= REPORT_S:
                    reported_at = now
                    self._report(status)
                screen.show(status, self._progress, self._meter, now)
                self._check_executors()
                if self._no_executors is not None:
                    return
                if not status.running or self._stopped.wait(REFRESH_S):
                    return

    def _check_executors(self) -> None:
        seconds = self._syphon.seconds_without_executors()
        if 0 < self._executor_timeout_s <= seconds:
            self._no_executors = no_executors_error(seconds)

    def _report(self, status: "SyphonStatus", ended: str | None = None) -> None:
        """Publish the metrics, and write the status file."""
        from pairbus.syphon.metrics import measured_samples

        if self._publish is not None:
            name = self._syphon.options.name or ""
            self._publish(measured_samples(status, self._progress, name))
        if self._status_file is not None:
            write_status_file(self._status_file, status_values(status, self._progress, ended))

    def _report_start(self) -> None:
        """Replace the file of an earlier run."""
        from pairbus.syphon.status import initial_status

        self._report(initial_status())

    def _report_end(self, problem: str) -> None:
        """Report an end without a status of the syphon."""
        from pairbus.syphon.status import initial_status

        status = replace(initial_status(), running=False, healthy=False, problem=problem)
        self._report(status, ended="failed")

    def _print_totals(self, out: Console, err: Console, status: "SyphonStatus") -> None:
        if not status.drained:
            for path, error in sorted(status.errors.items()):
                print_warning(err, f"  {path}: {error}")
        for line in total_lines(status):
            out.print(escape(line))

    def _exit_status(self, err: Console, status: "SyphonStatus") -> int:
        if status.failure is not None:
            print_error(err, error_summary(status.failure))
            return FAILED
        if self._no_executors is not None:
            print_error(err, self._no_executors)
            return FAILED
        if not self._once:
            return DRAINED
        if self._stopped.is_set():
            print_warning(err, "Stopped before the backlog was drained.")
            return STOPPED
        if status.unreadable is not None:
            print_error(err, f"The backlog cannot be read: {status.unreadable}")
            # If messages were moved before, the options are right and a retry may succeed.
            return STUCK if status.moved else FAILED
        if not status.drained:
            print_warning(
                err,
                f"Stuck: {status.problem or 'messages remain in the backlog'}. Nothing is lost; "
                "run the syphon again later.",
            )
            return STUCK
        return DEAD_LETTERED if status.dead_lettered else DRAINED


def no_executors_error(seconds: float) -> str:
    """Say why a syphon ends after some time without executors."""
    return (
        f"Spark had no executors for {seconds:.0f} s. Check the master and its workers. Nothing is "
        "lost; run the syphon again."
    )
