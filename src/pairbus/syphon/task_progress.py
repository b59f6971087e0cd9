"""Progress within a micro-batch: files in which the attempts of tasks report what they have moved
and dead-lettered.

The totals of a micro-batch are known at its end, after up to 20 seconds. Tasks on the driver's
machine report meanwhile. So what an attempt did counts also if it is killed later, or Spark is. On
other machines there is no such folder, and nothing is reported.
"""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pairbus.spark.outcome import Outcome
from pairbus.syphon.writer_status import WriterStatus

REPORT_S = 0.5
"""The shortest time between two reports of a task that moves messages."""

Reports = dict[str, dict[str, Outcome]]
"""The progress of attempts so far, by micro-batch and attempt."""


class TaskProgress:
    """The reports of a syphon. Each micro-batch and each attempt of a task has an id. A process of
    Spark runs several tasks, and an attempt that is killed may have moved messages, so each attempt
    has a report of its own."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._now = now
        self._reported_at: float | None = None

    def create(self) -> None:
        """Create the folder, on the machine of the driver."""
        self._folder.mkdir()

    def report(self, batch: str, attempt: str, outcome: Outcome, *, at_once: bool = False) -> None:
        """Replace the report of an attempt. Without `at_once`, only if the last one is not
        recent."""
        now = self._now()
        is_recent = self._reported_at is not None and now - self._reported_at < REPORT_S
        if is_recent and not at_once:
            return
        self._reported_at = now
        path = self._folder / f"{batch}-{attempt}"
        draft = path.with_suffix(".new")
        with contextlib.suppress(OSError):  # the folder is on another machine, or gone
            draft.write_text(json.dumps([outcome.moved, outcome.dead_letter_reasons]))
            draft.replace(path)

    def read(self) -> Reports:
        """Return all reports."""
        reports: Reports = {}
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if path.suffix:
                    continue
                with contextlib.suppress(OSError):  # the micro-batch has just ended
                    moved, reasons = json.loads(path.read_text())
                    batch, _, attempt = path.name.partition("-")
                    reports.setdefault(batch, {})[attempt] = Outcome(
                        moved=Counter(moved), dead_letter_reasons=reasons
                    )
        return reports

    def remove(self, batch: str) -> None:
        """Remove the reports of a micro-batch, after its totals were stored."""
        for path in self._folder.glob(f"{batch}-*"):
            path.unlink(missing_ok=True)


def with_progress(writer: WriterStatus, reports: Reports) -> WriterStatus:
    """Return the status with what attempts of micro-batches that have not ended did. Read the
    reports first: then no micro-batch is missing or counted twice."""
    for batch, attempts in reports.items():
        if batch not in writer.ended_batches:
            for outcome in attempts.values():
                writer.add_report(outcome)
    return writer
