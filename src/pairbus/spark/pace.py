"""The pace of one task: it spreads receives and sends over time while a rate limit is known.

A micro-batch that receives or sends all of its messages at once takes the throughput of a whole
second from live clients. Without a limit nothing is delayed.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pairbus.errors import Busy
from pairbus.spark.rate_control import DEFAULT_WAIT_S, NO_LIMIT, RateLimit, requested_wait_s
from pairbus.spark.rate_file import RateFile

SLICE_S = 0.1
"""The time between two receives or sends of a task that is paced."""
OBSERVED_SECONDS = 10
"""The number of seconds of which the one with most messages is the observed rate of a task."""
MIN_DELAY_S = 0.001
MAX_TASK_S = 20.0
"""The time after which a paced task reads no more: the rate may have fallen since it was planned,
and the messages are locked."""
UNPACED = 1 << 30
"""The size of a slice if no limit is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePlan:
    """The rate of a micro-batch, as it was planned in the driver. Spark sends it to tasks."""

    limit: RateLimit = NO_LIMIT
    max_rate: float | None = None
    """The highest number of messages a second, whatever the namespaces bear."""
    tasks: int = 1
    """The number of tasks that share the rate."""
    file: Path | None = None
    """The file by which the processes of the driver's machine share the limit."""

    def start(self) -> "Pace":
        """Return the pace of a task, in a worker."""
        return Pace(self, RateFile.of_worker(self.file))


@dataclass(slots=True)
class Pace:
    """Delays the operations of a task, and learns from those that are throttled."""

    plan: RatePlan = field(default_factory=RatePlan)
    file: RateFile | None = None
    now: Callable[[], float] = time.time
    sleep: Callable[[float], object] = field(default_factory=lambda: threading.Event().wait)
    throttled: int = 0
    """The number of operations that were throttled."""
    slice_size: int = UNPACED
    """The last result of `max_slice`."""
    _limit: RateLimit = NO_LIMIT
    _tokens: float = 0.0
    _updated_at: float = 0.0
    _started_at: float = 0.0
    _seconds: Counter[int] = field(default_factory=Counter)
    """The messages of the last seconds."""

    def __post_init__(self) -> None:
        self._limit = self.plan.limit
        self._started_at = self._updated_at = self.now()

    @property
    def limit(self) -> RateLimit:
        """The limit as it is known on this machine."""
        if self.file is not None:
            self._limit = self.file.latest(self._limit)
        return self._limit

    def max_slice(self) -> int:
        """Return the number of messages of the next receive or send at most."""
        rate = self._rate(self.limit.batch_rate(self.now()))
        self.slice_size = UNPACED if rate is None else max(1, int(rate * SLICE_S))
        return self.slice_size

    def is_over(self) -> bool:
        """Return True if a paced task has lasted long enough."""
        now = self.now()
        return now - self._started_at > MAX_TASK_S and self.limit.rate(now) is not None

    def wait(self, count: int) -> None:
        """Wait until the next `count` messages are due."""
        while (delay := self._delay(count)) > 0:
            self.sleep(delay)

    def count(self, messages: int) -> None:
        """Count messages that a namespace has delivered or accepted, for the observed rate."""
        second = int(self.now())
        self._seconds[second] += messages
        if len(self._seconds) > OBSERVED_SECONDS:
            del self._seconds[min(self._seconds)]

    def give_back(self, count: int) -> None:
        """Take note that the last operation had `count` messages fewer than it waited for."""
        self._tokens += count

    def note_throttled(self, error: Busy) -> None:
        """Lower the rate after a throttled operation. The next `wait` includes the time that the
        namespace asks for."""
        self.throttled += 1
        now = self.now()
        recent = [n for second, n in self._seconds.items() if second >= now - OBSERVED_SECONDS]
        wait_s = requested_wait_s(error)
        self._limit = self.limit.throttled(
            now,
            DEFAULT_WAIT_S if wait_s is None else wait_s,
            max(recent) * self.plan.tasks if recent else None,
        )
        self._tokens = 0.0
        if self.file is not None:
            self.file.write(self._limit)

    def _rate(self, rate: float | None) -> float | None:
        """Return the share of this task."""
        if rate is None:
            return None
        if self.plan.max_rate is not None:
            rate = min(rate, self.plan.max_rate)
        return rate / self.plan.tasks

    def _delay(self, count: int) -> float:
        """Return the time until `count` messages are due. 0: they are due, and are counted."""
        now = self.now()
        rate = self._rate(self.limit.rate(now))
        elapsed, self._updated_at = now - self._updated_at, now
        if rate is None:
            return 0.0
        if rate <= 0:
            self._tokens = 0.0
            return max(self._limit.resume_at - now, MIN_DELAY_S)
        # At most two slices are saved up: a task that was late must not catch up in one burst.
        self._tokens = min(self._tokens + elapsed * rate, max(2 * SLICE_S * rate, float(count)))
        if self._tokens < count:
            return max((count - self._tokens) / rate, MIN_DELAY_S)
        self._tokens -= count
        return 0.0
