"""One run of a syphon: its signals, its progress on the screen, its status file, its end."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from pairbus.cli.console import print_error, print_warning
from pairbus.cli.drain_screen import DrainScreen, RateMeter, seconds_to_go
from pairbus.cli.formatting import messages
from pairbus.cli.spark_errors import error_summary
from pairbus.cli.threads import run_in_thread
from pairbus.errors import ConfigurationError

if TYPE_CHECKING:
    from pairbus.syphon.options import SyphonOptions
    from pairbus.syphon.status import SyphonStatus

DRAINED, FAILED, USAGE_ERROR, STUCK, STOPPED = 0, 1, 2, 3, 4
REFRESH_S = 0.5
COUNT_S = 5.0
STATUS_FILE_S = 1.0


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
    ) -> None:
        from pairbus.syphon.query import Syphon

        self._syphon = Syphon(options, master=master, checkpoint=checkpoint)
        self._once = once
        self._status_file = status_file
        self._stopped = threading.Event()
        self._meter = RateMeter()

    def run(self, out: Console, err: Console) -> int:
        """Run the syphon and return the exit status."""
        self._handle_signals()
        out.print("Starting Spark…")
        try:
            # In the main thread, Spark would replace our handler of Ctrl-C with its own.
            run_in_thread(lambda: self._syphon.start(once=self._once))
        except ConfigurationError as exc:
            print_error(err, exc)
            return USAGE_ERROR
        except Exception as exc:  # noqa: BLE001  any error of Spark
            print_error(err, f"Spark did not start: {error_summary(exc)}")
            return FAILED
        counter = BacklogCounter(self._syphon.options)
        try:
            self._show_progress(out, err, counter)
        finally:
            if self._stopped.is_set():
                out.print("Stopping…")
            self._syphon.stop()
        status = self._syphon.status()
        self._write_status(status, counter.count)
        self._print_totals(out, err, status)
        return self._exit_status(err, status)

    def _handle_signals(self) -> None:
        def handle(number: int, _: object) -> None:
            if self._stopped.is_set():
                os._exit(128 + number)  # Spark exits too, because its standard input is closed
            self._stopped.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, handle)

    def _show_progress(self, out: Console, err: Console, counter: "BacklogCounter") -> None:
        """Show the progress until the syphon ends or is stopped."""
        written_at = 0.0
        count_needed = out.is_terminal or self._status_file is not None
        with DrainScreen(out, err) as screen:
            while True:
                now, status = time.monotonic(), self._syphon.status()
                self._meter.add(now, status.moved)
                if count_needed:
                    counter.count_if_due(status.batches, now)
                if now - written_at >= STATUS_FILE_S:
                    written_at = now
                    self._write_status(status, counter.count)
                screen.show(status, counter.count, self._meter, now)
                if not status.running or self._stopped.wait(REFRESH_S):
                    return

    def _write_status(self, status: "SyphonStatus", remaining: int | None) -> None:
        if self._status_file is not None:
            rate = self._meter.rate() if status.running else 0.0
            write_status_file(self._status_file, status, remaining, rate)

    def _print_totals(self, out: Console, err: Console, status: "SyphonStatus") -> None:
        for path, count in sorted(status.moved.items()):
            out.print(escape(f"  {path}: {count:,} moved"))
        if not status.drained:
            for path, error in sorted(status.errors.items()):
                print_warning(err, f"  {path} does not accept messages: {error}")
        total = f"{messages(f'{status.moved.total():,}')} moved"
        dead_lettered = status.dead_lettered.total()
        if not dead_lettered:
            out.print(f"{total}, 0 dead-lettered.")
            return
        counts = sorted(status.dead_lettered.items())
        destinations = ", ".join(f"{path or 'no destination'}: {count:,}" for path, count in counts)
        out.print(
            escape(
                f"{total}. {dead_lettered:,} DEAD-LETTERED ({destinations}). See: pairbus backlog "
                "peek --dead-letters"
            )
        )

    def _exit_status(self, err: Console, status: "SyphonStatus") -> int:
        if status.failure is not None:
            print_error(err, error_summary(status.failure))
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
        return DRAINED


def write_status_file(
    path: Path, status: "SyphonStatus", remaining: int | None, rate: float
) -> None:
    """Write the file that `pairbus status --status-file` and monitoring tools read."""
    from pairbus.syphon.status_file import write_json

    write_json(
        path,
        {
            "running": status.running,
            "healthy": status.healthy,
            "paused": status.paused,
            "problem": status.problem,
            "moved": status.moved,
            "dead_lettered": status.dead_lettered,
            "remaining": remaining,
            "errors": status.errors,
            "rate": rate,
            "seconds_to_go": seconds_to_go(remaining, rate),
            "time": time.time(),
        },
    )


class BacklogCounter:
    """Counts the messages in the backlog, in a thread: a namespace that is down responds slowly.

    Counting is billed, so it is repeated only after a micro-batch has moved messages.
    """

    def __init__(self, options: "SyphonOptions") -> None:
        self._options = options
        self._last: tuple[float, int] | None = None
        self._thread: threading.Thread | None = None
        self.count: int | None = None

    def count_if_due(self, batches: int, now: float) -> None:
        """Start counting, unless the last count is recent or no micro-batch has ended since."""
        if self._last is not None and (now - self._last[0] < COUNT_S or batches == self._last[1]):
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._last = now, batches
        self._thread = threading.Thread(
            target=self._count, name="pairbus backlog counter", daemon=True
        )
        self._thread.start()

    def _count(self) -> None:
        from pairbus.syphon.counts import backlog_size

        self.count = backlog_size(
            self._options.secondary, self._options.backlog_queues, self._options.usage
        )
