"""Decides when a pairing reports to a console. No I/O, no clock."""

from random import Random

INTERVAL_S = 10.0
"""The longest time between two reports."""
INTERVAL_JITTER = 0.1
"""The fraction by which the interval may be shorter, so that many senders spread their reports."""
CHANGE_GAP_S = 1.0
"""The shortest time between two reports. Changes within it are in one report."""
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0
"""The pause after a failed report, which doubles up to the maximum. Half of it is random."""


class ReportSchedule:
    """The time of the next report."""

    def __init__(self, now: float, random: Random) -> None:
        self.due = now
        self.failures = 0
        """The number of reports that failed since the last one that was answered."""
        self._earliest = now
        self._random = random

    def changed(self, now: float) -> None:
        """Report a change soon. While the console does not answer, it waits for the next attempt:
        that has the state of its moment."""
        if not self.failures:
            self.due = min(self.due, max(now, self._earliest))

    def succeeded(self, now: float) -> None:
        """Record that a report was answered."""
        self.failures = 0
        self._earliest = now + CHANGE_GAP_S
        self.due = now + INTERVAL_S * (1 - INTERVAL_JITTER * self._random.random())

    def failed(self, now: float) -> None:
        """Record that a report was not answered, or not as expected."""
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(self.failures, 10), MAX_PAUSE_S)
        self.failures += 1
        self.due = self._earliest = now + pause_s * (0.5 + 0.5 * self._random.random())
