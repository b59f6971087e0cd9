"""Progress within a micro-batch: files in which tasks report the messages that they have moved.

The totals of a micro-batch are known at its end, after up to 20 seconds. Tasks on the driver's
machine report meanwhile. On other machines there is no such folder, and nothing is reported.
"""

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pairbus.syphon.writer_status import WriterStatus

REPORT_S = 0.5
"""The shortest time between two reports of a task."""


class TaskProgress:
    """The reports of the tasks of a syphon. Each micro-batch has an id."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._now = now
        self._reported_at: float | None = None

    def create(self) -> None:
        """Create the folder, on the machine of the driver."""
        self._folder.mkdir()

    def report(self, batch: str, task: int, moved: Counter[str], *, is_last: bool = False) -> None:
        """Replace the report of a task, if the last one is not recent. Spark reuses its processes:
        each may run several tasks of a micro-batch. A task that is tried again has the same number.
        """
        now = self._now()
        if not is_last and self._reported_at is not None and now - self._reported_at < REPORT_S:
            return
        self._reported_at = now
        path = self._folder / f"{batch}-{task}"
        draft = path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):  # the folder is on another machine, or gone
            draft.write_text(json.dumps(moved))
            draft.replace(path)

    def read(self) -> dict[str, Counter[str]]:
        """Return the messages that were moved, by micro-batch and destination."""
        reports: dict[str, Counter[str]] = {}
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if path.suffix:
                    continue
                with contextlib.suppress(OSError):  # the micro-batch has just ended
                    moved = Counter(json.loads(path.read_text()))
                    reports.setdefault(path.name.partition("-")[0], Counter()).update(moved)
        return reports

    def remove(self, batch: str) -> None:
        """Remove the reports of a micro-batch, after its totals were stored."""
        for path in self._folder.glob(f"{batch}-*"):
            path.unlink(missing_ok=True)


def with_progress(writer: WriterStatus, reports: dict[str, Counter[str]]) -> WriterStatus:
    """Return the status with the messages of micro-batches that have not ended. Read the reports
    first: then no micro-batch is missing or counted twice."""
    for batch, moved in reports.items():
        if batch not in writer.ended_batches:
            writer.moved.update(moved)
    return writer
