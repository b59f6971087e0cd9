"""Replaces time, randomness and threads of the standard library by simulated ones.

Nothing of pairbus is changed for the simulation: the functions and classes through which code
learns the time, draws random bytes, waits or starts a thread are replaced in the standard library,
in a process that does nothing else, before pairbus is imported. So no code can reach the real
clock by accident, and the hot paths of production pay nothing for it. Third-party packages are
imported before, because some of them check these classes.

While no simulation runs, the clock stands still.
"""

import _threading_local
import asyncio
import datetime as datetime_module
import os
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from importlib import import_module
from random import Random
from time import perf_counter as real_perf_counter
from typing import Any

from tests.simulation.scheduler import ProcessKilled, Scheduler, Task

__all__ = ["current", "install", "real_perf_counter", "set_scheduler"]

_RealDatetime = datetime_module.datetime
_scheduler = Scheduler(0)
_bytes = Random(0)


def current() -> Scheduler:
    """Return the scheduler of the simulation that runs."""
    return _scheduler


def set_scheduler(scheduler: Scheduler, seed: int) -> None:
    """Let all replaced functions refer to this simulation."""
    global _scheduler, _bytes  # noqa: PLW0603
    _scheduler = scheduler
    _bytes = Random(seed ^ 0x5EED)


# Time.


def _time() -> float:
    return _scheduler.process.machine.wall(_scheduler.now)


def _time_ns() -> int:
    return round(_time() * 1e9)


def _monotonic() -> float:
    return _scheduler.process.machine.monotonic(_scheduler.now)


def _monotonic_ns() -> int:
    return round(_monotonic() * 1e9)


def _sleep(seconds: float) -> None:
    _scheduler.current_task().wait(seconds)


class _DatetimeType(type(_RealDatetime)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _RealDatetime)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _RealDatetime)


class SimulatedDatetime(_RealDatetime, metaclass=_DatetimeType):
    """`datetime.datetime` with the simulated time."""

    @classmethod
    def now(cls, tz: datetime_module.tzinfo | None = None) -> Any:
        return _RealDatetime.fromtimestamp(_time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return _RealDatetime.fromtimestamp(_time(), datetime_module.UTC).replace(tzinfo=None)


# Randomness.


def _urandom(size: int) -> bytes:
    return _bytes.randbytes(size)


def _uuid4() -> uuid.UUID:
    return uuid.UUID(int=_bytes.getrandbits(128), version=4)


# Threads.


class SimulatedThread:
    """`threading.Thread`, as far as pairbus uses it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self._target = target
        self._args, self._kwargs = args, kwargs or {}
        self._task: Task | None = None

    def start(self) -> None:
        process = _scheduler.process
        if not process.alive:
            raise ProcessKilled
        self._task = process.spawn(self.run, self.name)
        self._task.thread = self

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def join(self, timeout: float | None = None) -> None:
        if self._task is not None:
            self._task.join(timeout)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.ended


class SimulatedCondition:
    """`threading.Condition`. Its lock needs no implementation: a simulated thread gives control
    away only when it waits."""

    def __init__(self, lock: object = None) -> None:
        self._waiters: list[Task] = []

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *exc: object) -> None:
        pass

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return True

    def release(self) -> None:
        pass

    def wait(self, timeout: float | None = None) -> bool:
        task = _scheduler.current_task()
        self._waiters.append(task)
        try:
            return task.wait(timeout)
        finally:
            if task in self._waiters:
                self._waiters.remove(task)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        deadline = None if timeout is None else _monotonic() + timeout
        result = predicate()
        while not result:
            left = None if deadline is None else deadline - _monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        for task in self._waiters[:n]:
            task.wake()
        del self._waiters[:n]

    def notify_all(self) -> None:
        self.notify(len(self._waiters))


class SimulatedEvent:
    """`threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False
        self._condition = SimulatedCondition()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._condition.notify_all()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        self._condition.wait_for(lambda: self._is_set, timeout)
        return self._is_set


class SimulatedSemaphore:
    """`threading.Semaphore`, and `threading.Lock` with a value of 1."""

    def __init__(self, value: int = 1) -> None:
        self._value = value
        self._condition = SimulatedCondition()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        if self._value <= 0:
            if not blocking:
                return False
            limit = None if timeout is None or timeout < 0 else timeout
            if not self._condition.wait_for(lambda: self._value > 0, limit):
                return False
        self._value -= 1
        return True

    def release(self, n: int = 1) -> None:
        self._value += n
        self._condition.notify_all()

    def locked(self) -> bool:
        return self._value <= 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


class OrderedWeakSet:
    """`weakref.WeakSet` in the order of insertion. The original has that of memory addresses, which
    differs from one process to the next."""

    def __init__(self) -> None:
        self._items: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()

    def __class_getitem__(cls, item: object) -> type:
        return cls

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def add(self, item: Any) -> None:
        self._items[item] = None

    def discard(self, item: Any) -> None:
        self._items.pop(item, None)


def _running_loop() -> Any:
    """Return the event loop of the process that runs: that of a namespace."""
    return _scheduler.process.loop


def _current_thread() -> Any:
    task = _scheduler.task
    return _scheduler.process if task is None else task.thread or task


def _report_unraisable(unraisable: Any) -> None:
    """Report an exception that could not be raised, unless a killed process is the reason: its
    generators end some time after it."""
    if not isinstance(unraisable.exc_value, ProcessKilled | RuntimeError):
        sys.__unraisablehook__(unraisable)


THIRD_PARTY = (
    "azure.core.settings",
    "azure.servicebus.aio",
    "azure.servicebus.exceptions",
    "pandas",  # by pyarrow, at the first conversion
    "pyarrow",
    "pyspark.sql.streaming.datasource",
    "pyspark.sql.types",
)
"""Packages that pairbus uses, and that are imported with the real standard library."""


def install() -> None:
    """Replace the standard library's time, randomness and threads in this process, once."""
    if time.time is _time:
        return
    if any(name.partition(".")[0] == "pairbus" for name in sys.modules):
        raise RuntimeError("pairbus was imported before the standard library was replaced")
    sys.unraisablehook = _report_unraisable
    for name in THIRD_PARTY:
        import_module(name)
    time.time, time.time_ns = _time, _time_ns
    time.monotonic, time.monotonic_ns = _monotonic, _monotonic_ns
    time.perf_counter, time.sleep = _monotonic, _sleep
    datetime_module.datetime = SimulatedDatetime  # type: ignore[misc]
    weakref.WeakSet = OrderedWeakSet  # type: ignore[assignment, misc]
    os.urandom, uuid.uuid4 = _urandom, _uuid4
    threading.Thread = SimulatedThread  # type: ignore[assignment, misc]
    threading.Condition = SimulatedCondition  # type: ignore[assignment, misc]
    threading.Event = SimulatedEvent  # type: ignore[assignment, misc]
    threading.Semaphore = SimulatedSemaphore  # type: ignore[assignment, misc]
    threading.Lock = SimulatedSemaphore  # type: ignore[assignment, misc]
    threading.local = _threading_local.local  # type: ignore[assignment, misc]
    threading.current_thread = _current_thread
    asyncio.get_running_loop = _running_loop
    _threading_local.current_thread = _current_thread  # type: ignore[attr-defined]
