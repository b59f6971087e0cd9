"""The rate limit of a syphon, in the processes of the driver.

The planner puts it into micro-batches, and the sink collects what tasks have learned. The tasks of
the driver's machine share the file, so they learn from each other at once.
"""

from collections.abc import Iterable
from pathlib import Path

from pairbus.errors import Busy
from pairbus.spark.pace import RatePlan, schedule_path
from pairbus.spark.rate_control import (
    DEFAULT_WAIT_S,
    NO_LIMIT,
    RateLimit,
    credit_limit,
    latest,
    requested_wait_s,
)
from pairbus.spark.rate_file import RateFile
from pairbus.spark.rate_schedule import RateSchedule


class DrainRate:
    """The rate limit of a syphon, and the plan that follows from it."""

    def __init__(self, path: Path, max_rate: float | None) -> None:
        self._path = path
        self._file = RateFile(path)
        self._receives = RateSchedule(schedule_path(path, "receive"))
        self._shares_path = path.with_name("shares")
        self._shares: int | None = None
        self._max_rate = max_rate

    def batch_rate(self, now: float) -> float | None:
        """Return the messages a second of a micro-batch that starts now. None: no limit."""
        return self._file.read().batch_rate(now)

    def plan(self, shares: int) -> RatePlan:
        """Return the plan of a micro-batch whose rate is divided among so many tasks, and store
        that number for `planned`."""
        if shares != self._shares:
            self._shares = shares
            self._shares_path.write_text(str(shares))
        return self._plan(shares)

    def planned(self) -> RatePlan:
        """Return the plan of the micro-batch that was planned last, in another process."""
        try:
            shares = int(self._shares_path.read_text())
        except (OSError, ValueError):
            shares = 1
        return self._plan(shares)

    def _plan(self, shares: int) -> RatePlan:
        return RatePlan(
            limit=self._file.read(), max_rate=self._max_rate, shares=shares, file=self._path
        )

    def start(self, now: float, *, has_credits: bool) -> None:
        """Set the first limit. `has_credits`: a namespace has said that it throttles."""
        if has_credits and self._file.read() == NO_LIMIT:
            self._file.write(credit_limit(now))

    def note_throttled(self, error: Busy, now: float) -> None:
        """Take note that the driver itself was throttled, when it polled or peeked."""
        wait_s = requested_wait_s(error)
        limit = self._file.read()
        self._file.write(limit.throttled(now, DEFAULT_WAIT_S if wait_s is None else wait_s, None))
        with self._receives.open() as state:
            state.throttled += 1

    def throttled_receives(self) -> int:
        """Return the number of throttled receives, polls and peeks on this machine."""
        return self._receives.read().throttled

    def learn(self, limits: Iterable[RateLimit]) -> None:
        """Store what tasks have learned, on this machine or others."""
        before = self._file.read()
        after = latest([before, *limits])
        if after != before:
            self._file.write(after)
