"""One run of several syphons, one for each pairing of a configuration file, in one Spark session.

A syphon that fails does not end the others. The exit status tells that one did.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from pairbus.cli.backlog_counter import BacklogCounter
from pairbus.cli.cancellation import cancel_on_signal
from pairbus.cli.console import print_error, print_warning
from pairbus.cli.other_queues import other_queues_problem
from pairbus.cli.syphon_run import no_executors_error
from pairbus.cli.syphon_status_file import (
    DEAD_LETTERED,
    DRAINED,
    FAILED,
    STOPPED,
    STUCK,
    combined_values,
    describe_end,
    removed,
    status_values,
    write_status_file,
)
from pairbus.cli.syphon_totals import total_lines
from pairbus.cli.threads import run_in_thread
from pairbus.spark.error_summary import error_summary
from pairbus.telemetry.samples import Sample

if TYPE_CHECKING:
    from pairbus.cli.metrics_endpoint import Publish
    from pairbus.syphon.options import SyphonOptions
    from pairbus.syphon.query import Syphon
    from pairbus.syphon.status import SyphonStatus

REFRESH_S, LINES_S = 0.5, 5.0
START_S = 60.0
"""The longest wait for one query before the next is started."""


class PairingRun:
    """The syphon of one pairing, as the run of all of them sees it."""

    def __init__(self, name: str, syphon: "Syphon", other_queues: tuple[int, ...] = ()) -> None:
        from pairbus.syphon.progress import DrainProgress

        self.name = name
        self.failure: str | None = None
        self._syphon = syphon
        self._started = False
        self._stopped = False
        self._other_queues = other_queues
        self._other_problem: str | None = None
        self._progress = DrainProgress()
        self._counter = BacklogCounter(syphon.options, self._progress)

    def start(self, *, once: bool) -> None:
        """Start the syphon. A failure is kept, not raised."""
        try:
            # In the main thread, Spark would replace our handler of Ctrl-C with its own.
            run_in_thread(lambda: self._syphon.start(once=once))
            self._started = True
        except Exception as exc:  # noqa: BLE001  any error of Spark
            self.failure = error_summary(exc)

    def status(self) -> "SyphonStatus":
        """Return the status, also of a syphon that has not started yet or failed to start."""
        from pairbus.syphon.status import initial_status

        if not self._started:
            running = self.failure is None and not self._stopped
            status = replace(initial_status(), running=running)
        else:
            status = self._syphon.status()
            if status.failure is not None:
                self.failure = error_summary(status.failure)
        if self.failure is not None:
            status = replace(status, healthy=False, problem=self.failure)
        if self._other_problem is not None:
            problem = self._other_problem
            status = replace(status, drained=False, healthy=False, problem=problem)
        return status

    def measure(self, status: "SyphonStatus", now: float, *, count: bool) -> None:
        """Measure the progress, and count the backlog from time to time if `count` is True."""
        self._progress.add(now, removed(status))
        if count and self._started:
            self._counter.count_if_due(status.batches, removed(status), now)

    def has_executors(self, timeout_s: float) -> bool:
        """Return False, with a failure, if a micro-batch has waited too long for an executor."""
        seconds = self._syphon.seconds_without_executors()
        if not 0 < timeout_s <= seconds:
            return True
        self.failure = no_executors_error(seconds)
        return False

    def stop(self) -> None:
        """Stop the syphon."""
        self._stopped = True
        if self._started:
            self._syphon.stop()
            if self._syphon.status().drained:
                self._other_problem = other_queues_problem(self._syphon.options, self._other_queues)

    def exit_status(self, status: "SyphonStatus", *, once: bool, stopped: bool) -> int:
        """Return the exit status that this syphon alone would have."""
        if self.failure is not None:
            return FAILED
        if not once:
            return DRAINED
        if status.drained:
            return DEAD_LETTERED if status.dead_lettered else DRAINED
        if stopped:
            return STOPPED
        return FAILED if status.unreadable is not None and not status.moved else STUCK

    def values(self, status: "SyphonStatus", *, once: bool, stopped: bool) -> dict[str, Any]:
        """Return the part of the status file for this pairing."""
        ended = None
        if self._stopped or not status.running:
            ended = describe_end(self.exit_status(status, once=once, stopped=stopped), once=once)
        return status_values(status, self._progress, ended)

    def samples(self, status: "SyphonStatus", pairing: str) -> Iterator[Sample]:
        """Return the metrics, with the label `pairing`."""
        from pairbus.syphon.metrics import measured_samples

        return measured_samples(status, self._progress, pairing)

    def failed_values(self, error: str) -> dict[str, Any]:
        """Return the part of the status file after an end without a status."""
        from pairbus.syphon.status import initial_status

        status = replace(initial_status(), running=False, healthy=False, problem=error)
        return status_values(status, self._progress, "failed")


class PairingsRun:
    """Runs the syphons of several pairings until all have ended, or until it is stopped."""

    def __init__(
        self,
        options: Mapping[str, "SyphonOptions"],
        master: str | None,
        checkpoint: str | None,
        *,
        once: bool,
        status_file: Path | None,
        publish: "Publish | None" = None,
        executor_timeout_s: float = 0.0,
        other_queues: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ) -> None:
        """`publish` takes the metrics. `executor_timeout_s` is the longest time without executors;
        0: for ever. `other_queues` are the indexes of backlog queues that exist and are not
        drained, by pairing."""
        from pairbus.syphon.query import Syphon

        self._runs = [
            PairingRun(
                name,
                Syphon(
                    syphon_options,
                    master=master,
                    checkpoint=None if checkpoint is None else f"{checkpoint}/{name}",
                ),
                other_queues.get(name, ()),
            )
            for name, syphon_options in options.items()
        ]
        self._once = once
        self._status_file = status_file
        self._publish = publish
        self._labels = pairing_labels(options)
        self._executor_timeout_s = executor_timeout_s
        self._stopped = threading.Event()

    def run(self, out: Console, err: Console) -> int:
        """Run the syphons, and return the exit status."""
        try:
            with cancel_on_signal(self._stopped):
                return self._run(out, err)
        except BaseException as exc:
            # The file must not say that a syphon runs when it does not.
            error = f"the command ended unexpectedly: {type(exc).__name__}: {exc}"
            self._write({run.name: run.failed_values(error) for run in self._runs})
            raise

    def _run(self, out: Console, err: Console) -> int:
        self._measure()  # replaces the file of an earlier run
        out.print("Starting Spark…")
        reported: set[str] = set()
        try:
            for run in self._runs:
                if not self._stopped.is_set():
                    run.start(once=self._once)
                    self._wait_for_start(run)
                self._report_failures(err, reported)
            self._show_progress(out, err, reported)
        finally:
            if self._stopped.is_set():
                out.print("Stopping…")
            for run in self._runs:
                run.stop()
        statuses = self._measure()
        self._report_failures(err, reported)
        return self._finish(out, err, statuses)

    def _wait_for_start(self, run: PairingRun) -> None:
        """Wait until a query reads its backlog. Spark gives a new Python process ten seconds to
        connect, and those of many queries at once take longer."""
        deadline = time.monotonic() + START_S
        while (status := self._measure()[run.name]).running and not status.started:
            if time.monotonic() >= deadline or self._stopped.wait(REFRESH_S):
                return

    def _show_progress(self, out: Console, err: Console, reported: set[str]) -> None:
        printed: dict[str, str] = {}
        printed_at = 0.0
        with Live(console=out, transient=True, auto_refresh=False) as live:
            while True:
                statuses = self._measure()
                self._report_failures(err, reported)
                lines = {run.name: _line(run, statuses[run.name]) for run in self._runs}
                now = time.monotonic()
                if out.is_terminal:
                    live.update(_table(lines), refresh=True)
                elif now - printed_at >= LINES_S:
                    for name, line in lines.items():
                        if printed.get(name) != line:
                            out.print(f"{name}: {line}", markup=False)
                    printed, printed_at = lines, now
                running = any(status.running for status in statuses.values())
                timeout_s = self._executor_timeout_s
                # All of them use the same executors.
                waiting = [run for run in self._runs if not run.has_executors(timeout_s)]
                if waiting or not running or self._stopped.wait(REFRESH_S):
                    return

    def _report_failures(self, err: Console, reported: set[str]) -> None:
        for run in self._runs:
            if run.failure is not None and run.name not in reported:
                reported.add(run.name)
                print_error(err, f"{run.name}: {run.failure}")

    def _measure(self) -> dict[str, "SyphonStatus"]:
        """Return the status of each pairing, publish the metrics, and write the status file."""
        statuses = {run.name: run.status() for run in self._runs}
        now, count = time.monotonic(), self._status_file is not None
        for run in self._runs:
            run.measure(statuses[run.name], now, count=count)
        if self._publish is not None:
            self._publish(
                sample
                for run in self._runs
                for sample in run.samples(statuses[run.name], self._labels[run.name])
            )
        end = {"once": self._once, "stopped": self._stopped.is_set()}
        self._write({run.name: run.values(statuses[run.name], **end) for run in self._runs})
        return statuses

    def _write(self, values: Mapping[str, Mapping[str, Any]]) -> None:
        if self._status_file is not None:
            write_status_file(self._status_file, combined_values(values))

    def _finish(self, out: Console, err: Console, statuses: Mapping[str, "SyphonStatus"]) -> int:
        """Print the totals, and return the exit status."""
        results = []
        for run in self._runs:
            status = statuses[run.name]
            result = run.exit_status(status, once=self._once, stopped=self._stopped.is_set())
            results.append(result)
            for line in total_lines(status):
                out.print(f"{run.name}: {line.strip()}", markup=False)
            if result == STUCK:
                reason = status.unreadable or status.problem or "messages remain in the backlog"
                print_warning(err, f"{run.name}: stuck: {reason}. Nothing is lost.")
        if STOPPED in results:
            print_warning(err, "Stopped before every backlog was drained.")
        return combined_exit_status(results)


def pairing_labels(options: Mapping[str, "SyphonOptions"]) -> dict[str, str]:
    """Return the label `pairing` of the metrics of each pairing: the name of its primary. Pairings
    whose primaries have the same name keep their own."""
    primaries = Counter(each.name for each in options.values())
    return {
        name: each.name if each.name and primaries[each.name] == 1 else name
        for name, each in options.items()
    }


def combined_exit_status(results: list[int]) -> int:
    """Return the exit status of several syphons: that of the worst one."""
    worst_first = (FAILED, STOPPED, STUCK, DEAD_LETTERED)
    return next((result for result in worst_first if result in results), DRAINED)


def _line(run: PairingRun, status: "SyphonStatus") -> str:
    if run.failure is not None:
        return "failed"
    parts = [f"{status.moved.total():,} moved"]
    if status.dead_lettered.total():
        parts.append(f"{status.dead_lettered.total():,} dead-lettered")
    if status.paused:
        parts.append("paused")
    elif status.drained:
        parts.append("drained")
    elif status.problem is not None:
        parts.append(f"stuck: {status.problem}")
    parts += [f"{path}: {error}" for path, error in sorted(status.errors.items())]
    return ", ".join(parts)


def _table(lines: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, line in lines.items():
        table.add_row(name, line)
    return table
