"""One run of several syphons, one for each pairing of a configuration file, in one Spark session.

A syphon that fails does not end the others. The exit status tells that one did.
"""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from pairbus.cli.cancellation import cancel_on_signal
from pairbus.cli.console import print_error, print_warning
from pairbus.cli.threads import run_in_thread
from pairbus.spark.error_summary import error_summary

if TYPE_CHECKING:
    from pairbus.syphon.options import SyphonOptions
    from pairbus.syphon.query import Syphon
    from pairbus.syphon.status import SyphonStatus

DRAINED, FAILED, STUCK, STOPPED = 0, 1, 3, 4
REFRESH_S, LINES_S = 0.5, 5.0
START_S = 60.0
"""The longest wait for one query before the next is started."""


class PairingRun:
    """The syphon of one pairing, as the run of all of them sees it."""

    def __init__(self, name: str, syphon: "Syphon") -> None:
        self.name = name
        self.failure: str | None = None
        self._syphon = syphon
        self._started = False

    def start(self, *, once: bool) -> None:
        """Start the syphon. A failure is kept, not raised."""
        try:
            # In the main thread, Spark would replace our handler of Ctrl-C with its own.
            run_in_thread(lambda: self._syphon.start(once=once))
            self._started = True
        except Exception as exc:  # noqa: BLE001  any error of Spark
            self.failure = error_summary(exc)

    def status(self) -> "SyphonStatus | None":
        """Return the status, or None if the syphon did not start."""
        if not self._started:
            return None
        status = self._syphon.status()
        if status.failure is not None:
            self.failure = error_summary(status.failure)
        return status

    def stop(self) -> None:
        """Stop the syphon."""
        if self._started:
            self._syphon.stop()

    def exit_status(self, status: "SyphonStatus | None", *, once: bool, stopped: bool) -> int:
        """Return the exit status that this syphon alone would have."""
        if self.failure is not None or status is None:
            return FAILED
        if not once or status.drained:
            return DRAINED
        if stopped:
            return STOPPED
        return FAILED if status.unreadable is not None and not status.moved else STUCK

    def to_json(self, status: "SyphonStatus | None") -> dict[str, Any]:
        """Return the part of the status file for this pairing."""
        problem = self.failure or (None if status is None else status.problem)
        return {
            "running": status is not None and status.running,
            "healthy": problem is None,
            "paused": status is not None and status.paused,
            "problem": problem,
            "moved": {} if status is None else status.moved,
            "dead_lettered": {} if status is None else status.dead_lettered,
            "errors": {} if status is None else status.errors,
            "rate": 0.0 if status is None or not status.running else status.rate,
        }


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
    ) -> None:
        from pairbus.syphon.query import Syphon

        self._runs = [
            PairingRun(
                name,
                Syphon(
                    syphon_options,
                    master=master,
                    checkpoint=None if checkpoint is None else f"{checkpoint}/{name}",
                ),
            )
            for name, syphon_options in options.items()
        ]
        self._once = once
        self._status_file = status_file
        self._stopped = threading.Event()

    def run(self, out: Console, err: Console) -> int:
        """Run the syphons, and return the exit status."""
        with cancel_on_signal(self._stopped):
            return self._run(out, err)

    def _run(self, out: Console, err: Console) -> int:
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
        statuses = {run.name: run.status() for run in self._runs}
        self._report_failures(err, reported)
        self._write_status(statuses)
        return self._finish(out, err, statuses)

    def _wait_for_start(self, run: PairingRun) -> None:
        """Wait until a query reads its backlog. Spark gives a new Python process ten seconds to
        connect, and those of many queries at once take longer."""
        deadline = time.monotonic() + START_S
        while (status := run.status()) is not None and status.running and not status.started:
            if time.monotonic() >= deadline or self._stopped.wait(REFRESH_S):
                return

    def _show_progress(self, out: Console, err: Console, reported: set[str]) -> None:
        printed: dict[str, str] = {}
        printed_at = 0.0
        with Live(console=out, transient=True, auto_refresh=False) as live:
            while True:
                statuses = {run.name: run.status() for run in self._runs}
                self._report_failures(err, reported)
                self._write_status(statuses)
                lines = {run.name: _line(run, statuses[run.name]) for run in self._runs}
                now = time.monotonic()
                if out.is_terminal:
                    live.update(_table(lines), refresh=True)
                elif now - printed_at >= LINES_S:
                    for name, line in lines.items():
                        if printed.get(name) != line:
                            out.print(f"{name}: {line}", markup=False)
                    printed, printed_at = lines, now
                running = any(status is not None and status.running for status in statuses.values())
                if not running or self._stopped.wait(REFRESH_S):
                    return

    def _report_failures(self, err: Console, reported: set[str]) -> None:
        for run in self._runs:
            if run.failure is not None and run.name not in reported:
                reported.add(run.name)
                print_error(err, f"{run.name}: {run.failure}")

    def _write_status(self, statuses: Mapping[str, "SyphonStatus | None"]) -> None:
        """Write the totals, and the status of each pairing below `pairings`."""
        if self._status_file is None:
            return
        from pairbus.syphon.status_file import write_json

        pairings = {run.name: run.to_json(statuses[run.name]) for run in self._runs}
        problems = [
            f"{name}: {values['problem']}" for name, values in pairings.items() if values["problem"]
        ]
        write_json(
            self._status_file,
            {
                "running": any(values["running"] for values in pairings.values()),
                "healthy": not problems,
                "paused": all(values["paused"] for values in pairings.values()),
                "problem": "; ".join(problems) or None,
                **{
                    key: {
                        f"{name}: {path}": value
                        for name, values in pairings.items()
                        for path, value in values[key].items()
                    }
                    for key in ("moved", "dead_lettered", "errors")
                },
                "remaining": None,
                "rate": sum(values["rate"] for values in pairings.values()),
                "seconds_to_go": None,
                "time": time.time(),
                "pairings": pairings,
            },
        )

    def _finish(
        self, out: Console, err: Console, statuses: Mapping[str, "SyphonStatus | None"]
    ) -> int:
        """Print the totals, and return the exit status."""
        results = []
        for run in self._runs:
            status = statuses[run.name]
            result = run.exit_status(status, once=self._once, stopped=self._stopped.is_set())
            results.append(result)
            if status is not None:
                moved, dead = status.moved.total(), status.dead_lettered.total()
                out.print(f"{run.name}: {moved:,} moved, {dead:,} dead-lettered.", markup=False)
            if result == STUCK and status is not None:
                reason = status.unreadable or status.problem or "messages remain in the backlog"
                print_warning(err, f"{run.name}: stuck: {reason}. Nothing is lost.")
        if STOPPED in results:
            print_warning(err, "Stopped before every backlog was drained.")
        return combined_exit_status(results)


def combined_exit_status(results: list[int]) -> int:
    """Return the exit status of several syphons: that of the worst one."""
    return next((result for result in (FAILED, STOPPED, STUCK) if result in results), DRAINED)


def _line(run: PairingRun, status: "SyphonStatus | None") -> str:
    if run.failure is not None or status is None:
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
