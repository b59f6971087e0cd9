"""The pace of one task: it spreads receives and sends over time while a rate limit is known.

A micro-batch that receives or sends all of its messages at once takes the throughput of a whole
second from live clients. Without a limit nothing is delayed.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pairbus.errors import Busy
from pairbus.spark.rate_control import DEFAULT_WAIT_S, NO_LIMIT, RateLimit, requested_wait_s
from pairbus.spark.rate_file import RateFile
from pairbus.spark.rate_schedule import RateSchedule, ScheduleState

SLICE_S = 0.05
"""The time between two receives or sends that are paced. With longer ones a rate slightly above the
limit is not noticed: the last of the credits of a second are gone for live clients only."""
MIN_DELAY_S = 0.001
MAX_TASK_S = 20.0
"""The time after which a paced task reads no more: the rate may have fallen since it was planned,
and the messages are locked."""
COUNT_S = 0.1
"""The shortest time between two changes of the common count, each of which locks and writes a
file."""
UNPACED = 1 << 30
"""The size of a slice if no limit is known."""


Operation = Literal["receive", "send"]


def schedule_path(rate_file: Path, operation: Operation) -> Path:
    """Return the file by which the tasks of the driver's machine share a schedule."""
    return rate_file.with_name(f"{operation}.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePlan:
    """The rate of a micro-batch, as it was planned in the driver. Spark sends it to tasks."""

    limit: RateLimit = NO_LIMIT
    max_rate: float | None = None
    """The highest number of messages a second, whatever the namespaces bear."""
    shares: int = 1
    """The number of tasks among which the rate is divided. 1: all tasks run on one machine, and
    share a schedule."""
    file: Path | None = None
    """The file by which the processes of the driver's machine share the limit."""

    def is_paced(self, now: float) -> bool:
        """Return True if a limit is known."""
        return self.limit.batch_rate(now) is not None

    def start(self, operation: Operation) -> "Pace":
        """Return the pace of the receives or sends of a task, in a worker."""
        schedule = None
        if self.shares == 1 and self.file is not None and self.file.parent.is_dir():
            schedule = schedule_path(self.file, operation)
        return Pace(self, RateFile.of_worker(self.file), RateSchedule(schedule))


@dataclass(slots=True)
class Pace:
    """Delays the operations of a task, and learns from those that are throttled."""

    plan: RatePlan = field(default_factory=RatePlan)
    file: RateFile | None = None
    schedule: RateSchedule = field(default_factory=RateSchedule)
    now: Callable[[], float] = time.time
    sleep: Callable[[float], object] = field(default_factory=lambda: threading.Event().wait)
    throttled: int = 0
    """The number of operations that were throttled."""
    slice_size: int = UNPACED
    """The last result of `max_slice`."""
    _limit: RateLimit = NO_LIMIT
    _started_at: float = 0.0
    _uncounted: int = 0
    """Messages that are not in the common count yet."""
    _counted_at: float = 0.0

    def __post_init__(self) -> None:
        self._limit = self.plan.limit
        self._started_at = self.now()

    @property
    def limit(self) -> RateLimit:
        """The limit as it is known on this machine."""
        if self.file is not None:
            self._limit = self.file.latest(self._limit)
        return self._limit

    def max_slice(self) -> int:
        """Return the number of messages of the next receive or send at most."""
        rate = self._share(self.limit.batch_rate(self.now()))
        self.slice_size = UNPACED if rate is None else max(1, int(rate * SLICE_S))
        return self.slice_size

    def is_over(self) -> bool:
        """Return True if a paced task has lasted long enough."""
        now = self.now()
        return now - self._started_at > MAX_TASK_S and self.limit.rate(now) is not None

    def wait(self, count: int) -> None:
        """Wait until the next `count` messages are due."""
        while (rate := self._rate()) is not None:
            now = self.now()
            if rate <= 0:
                self.sleep(max(self._limit.resume_at - now, MIN_DELAY_S))
                continue
            with self.schedule.open() as state:
                due_at = state.reserve(now, count, rate)
            if due_at <= now:
                return
            self.sleep(max(due_at - now, MIN_DELAY_S))
            if self._rate() != 0:  # no operation was throttled meanwhile
                return

    def count(self, messages: int) -> None:
        """Count messages that a namespace has delivered or accepted, for the observed rate."""
        self._uncounted += messages
        now = self.now()
        if now - self._counted_at >= COUNT_S:
            with self.schedule.open() as state:
                self._add_to_count(state, now)

    def give_back(self, count: int) -> None:
        """Take note that the last operation had `count` messages fewer than it waited for."""
        if rate := self._rate():
            with self.schedule.open() as state:
                state.give_back(count, rate)

    def note_throttled(self, error: Busy, sent_at: float | None = None) -> None:
        """Lower the rate after a throttled operation. The next `wait` includes the time that the
        namespace asks for. `sent_at` is the time of the operation; None: it has just been sent."""
        self.throttled += 1
        now = self.now()
        with self.schedule.open() as state:
            self._add_to_count(state, now)
            state.throttled += 1
            observed = state.observed(now)
        wait_s = requested_wait_s(error)
        self._limit = self.limit.throttled(
            now,
            DEFAULT_WAIT_S if wait_s is None else wait_s,
            None if observed is None else float(observed * self.plan.shares),
            sent_at=sent_at,
        )
        if self.file is not None:
            self.file.write(self._limit)

    def _add_to_count(self, state: ScheduleState, now: float) -> None:
        if self._uncounted:
            state.count(now, self._uncounted)
        self._uncounted, self._counted_at = 0, now

    def _rate(self) -> float | None:
        """Return the rate of this task now. None: nothing is delayed."""
        return self._share(self.limit.rate(self.now()))

    def _share(self, rate: float | None) -> float | None:
        """Return the share of this task."""
        if rate is None:
            return None
        if self.plan.max_rate is not None:
            rate = min(rate, self.plan.max_rate)
        return rate / self.plan.shares
