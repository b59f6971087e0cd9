"""The check that ends a run: peeks show that no message is left that is to be moved."""

import logging
from collections.abc import Callable

from pairbus.errors import AmqpError, Busy
from pairbus.spark.emptiness import EmptinessCheck
from pairbus.syphon.reader_status import ReaderReporter

logger = logging.getLogger(__name__)

CHECK_S, MAX_CHECK_S = 1.0, 5.0
"""The interval between two checks. It doubles up to the maximum. A message whose lock ends arrives
through the long poll, whatever the interval."""
NOT_RECEIVABLE = (
    "messages are left in the backlog that cannot be received: another receiver has locked them, "
    "or they are deferred or scheduled"
)


class DrainedCheck:
    """Checks whether the backlog is drained, and reports it."""

    def __init__(
        self,
        emptiness: EmptinessCheck,
        reporter: ReaderReporter,
        on_throttled: Callable[[Busy], None],
    ) -> None:
        self.not_receivable = False
        """The last check found a message that could not be received."""
        self._emptiness = emptiness
        self._reporter = reporter
        self._on_throttled = on_throttled
        self._check_s = CHECK_S

    def is_drained(self) -> bool:
        """Peek at the queues: a message that cannot be received may be locked, by another receiver
        or because its destination failed."""
        try:
            self.not_receivable = not self._emptiness.are_empty()
        except Busy as exc:
            self._on_throttled(exc)
            return False
        except AmqpError as exc:
            self._reporter.report(waiting=self.not_receivable, error=str(exc))
            return False
        self._reporter.report(
            waiting=self.not_receivable,
            remaining=NOT_RECEIVABLE if self.not_receivable else None,
            drained=not self.not_receivable,
        )
        return not self.not_receivable

    def next_wait_s(self) -> float:
        """Return the time until the next check."""
        wait_s = self._check_s
        self._check_s = min(2 * wait_s, MAX_CHECK_S)
        return wait_s

    def reset_wait(self) -> None:
        """Check soon again: messages were received."""
        self._check_s = CHECK_S

    def report_remaining(self) -> None:
        """Count the messages that are left, to explain why the run is stuck."""
        try:
            remaining = self._emptiness.remaining()
        except AmqpError as exc:
            logger.warning("The messages that are left could not be counted: %s", exc)
        else:
            self._reporter.report(waiting=True, remaining=str(remaining))

    def close(self) -> None:
        """Close the connection."""
        self._emptiness.close()
