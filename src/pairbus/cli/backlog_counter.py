"""The number of messages in the backlog, while a syphon runs."""

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pairbus.syphon.options import SyphonOptions
    from pairbus.syphon.progress import DrainProgress

COUNT_S = 5.0


class BacklogCounter:
    """Counts the messages in the backlog, in a thread: a namespace that is down responds slowly.

    Counting is billed, so it is repeated only after a micro-batch has moved messages.
    """

    def __init__(self, options: "SyphonOptions", progress: "DrainProgress") -> None:
        """The counts are added to `progress`."""
        self._options = options
        self._progress = progress
        self._last: tuple[float, int] | None = None
        self._batches = -1
        self._removed = 0
        """The messages that were removed until the last micro-batch ended. Those of the current one
        are counted in the backlog until they are completed."""
        self._thread: threading.Thread | None = None

    def count_if_due(self, batches: int, removed: int, now: float) -> None:
        """Start counting, unless the last count is recent or no micro-batch has ended since."""
        if batches != self._batches:
            self._batches, self._removed = batches, removed
        if self._last is not None and (now - self._last[0] < COUNT_S or batches == self._last[1]):
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._last = now, batches
        self._thread = threading.Thread(
            target=self._count,
            args=(self._removed,),
            name="pairbus backlog counter",
            daemon=True,
        )
        self._thread.start()

    def _count(self, removed: int) -> None:
        from pairbus.syphon.counts import backlog_size

        count = backlog_size(
            self._options.secondary, self._options.backlog_queues, self._options.usage
        )
        if count is not None:  # A namespace that throttles may not answer; keep the last count.
            self._progress.add_count(time.monotonic(), removed, count)
