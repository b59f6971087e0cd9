"""Messages that stay in the backlog: a filter drops them, or their destination is paused."""

import time
from collections.abc import Callable

from pairbus.errors import AmqpError
from pairbus.spark.emptiness import EmptinessCheck
from pairbus.spark.long_polls import STEP_S, LongPolls
from pairbus.syphon.filtered_reads import FilteredReads
from pairbus.syphon.reader_status import ReaderReporter
from pairbus.syphon.writer_status import WriterStatus


class DroppedMessages:
    """Suspends the polls while every message is one that would be dropped again."""

    def __init__(
        self,
        polls: LongPolls,
        movable: EmptinessCheck,
        reporter: ReaderReporter,
        wait: Callable[[float], object],
    ) -> None:
        """`movable` checks for messages that would not be dropped."""
        self._polls = polls
        self._movable = movable
        self._reporter = reporter
        self._wait = wait
        self._reads = FilteredReads()

    def planned(self, writer: WriterStatus) -> None:
        """Take note of a micro-batch."""
        self._reads.planned(time.monotonic(), writer.removed)

    def reset(self) -> None:
        """Read all messages again: others are to be moved than before."""
        self._reads = FilteredReads()
        self._movable.reset()

    def were_dropped(self, writer: WriterStatus) -> bool:
        """Return True if the last micro-batch removed no message, and no destination failed."""
        return not writer.errors and self._reads.were_dropped(writer.removed)

    def wait(self) -> bool:
        """Wait for a moment. Return False if a peek found a message to move, or failed."""
        now = time.monotonic()
        if self._reads.wait_s(now) <= 0:
            try:
                if not self._movable.are_empty():
                    return False
            except AmqpError as exc:
                self._reporter.report(waiting=False, error=str(exc))
                return False
            self._reads.found_none(now)
        self._polls.suspend()
        self._reporter.report(waiting=False)
        self._wait(min(self._reads.wait_s(now), STEP_S))
        return True

    def close(self) -> None:
        """Close the connection."""
        self._movable.close()
