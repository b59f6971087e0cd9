"""Time limits for SDK calls that run in an event loop.

A call over an open link runs in the task of its caller, so that a limit costs a healthy call almost
nothing: one timer checks regularly for calls that took too long, aborts their connections and
cancels them. A call that opens its link runs in a task of its own: while the SDK opens a link, its
clean-up after a cancellation may hang, and may lose the socket.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from pairbus.pairing.effects import timed_out
from pairbus.pairing.sdk import abort_connection, is_open

T = TypeVar("T")

CHECK_INTERVAL_S = 0.25


class TimeLimit:
    """A time limit for a `with` block of one task. `link` is the SDK sender or receiver that the
    block uses; its connection is aborted when the time is over or the task is cancelled."""

    __slots__ = ("_cancelling", "_expired", "_limits", "_task", "_timeout_s", "deadline", "link")

    def __init__(self, limits: "TimeLimits", timeout_s: float) -> None:
        self.link: Any = None
        self._limits = limits
        self._timeout_s = timeout_s
        self._expired = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self.deadline = self._limits.add(self, self._timeout_s)
        return self

    @property
    def left_s(self) -> float:
        """The time that is left."""
        return max(0.0, self.deadline - self._limits.now())

    def expire(self) -> None:
        """Abort the connection and cancel the task."""
        if not self._expired:
            self._expired = True
            # The connection comes first: after a cancellation the SDK may forget it.
            self._abort()
            self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._limits.remove(self)
        if self._expired:
            cancelled_by_others = self._task.uncancel() > self._cancelling
            if exc is not None and not (cancelled_by_others and kind is asyncio.CancelledError):
                raise timed_out(self._timeout_s) from exc
        elif kind is asyncio.CancelledError:
            self._abort()

    def _abort(self) -> None:
        if self.link is not None:
            abort_connection(self.link)


class TimeLimits:
    """The time limits of a pairing, with one timer that runs while there are some."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._limits: dict[TimeLimit, None] = {}  # the oldest first
        self._timer: asyncio.TimerHandle | None = None

    def limit(self, timeout_s: float) -> TimeLimit:
        """Return a time limit for a `with` block, which raises CallTimedOut."""
        return TimeLimit(self, timeout_s)

    def add(self, limit: TimeLimit, timeout_s: float) -> float:
        """Register a limit, and return its deadline."""
        self._limits[limit] = None
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_INTERVAL_S, self._check)
        return self.now() + timeout_s

    def remove(self, limit: TimeLimit) -> None:
        """Forget a limit."""
        self._limits.pop(limit, None)

    def _check(self) -> None:
        now = self.now()
        for limit in tuple(self._limits):
            if now >= limit.deadline:
                limit.expire()
        self._timer = self._loop.call_later(CHECK_INTERVAL_S, self._check) if self._limits else None

    async def call(self, link: Any, function: Callable[[Any], Awaitable[T]], timeout_s: float) -> T:
        """Call a function with a sender or receiver of the SDK. Raises CallTimedOut."""
        if not is_open(link):
            return await run_in_task(link, function(link), timeout_s)
        with self.limit(timeout_s) as limit:
            limit.link = link
            return await function(link)


async def run_in_task(target: Any, work: Awaitable[T], timeout_s: float) -> T:
    """Await some work of an object of the SDK in a task of its own. After CallTimedOut or a
    cancellation the connection is aborted, and the work may still be in progress."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait((task,), timeout=timeout_s)
    except asyncio.CancelledError:
        _abandon(target, task)
        raise
    if done:
        return task.result()
    _abandon(target, task)
    raise timed_out(timeout_s)


def _abandon(target: Any, task: "asyncio.Future[Any]") -> None:
    # The connection comes first: after a cancellation the SDK may forget it.
    abort_connection(target)
    task.cancel()
    # Retrieve the exception, so that asyncio does not log it.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
