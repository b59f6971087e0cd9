"""Virtual time, and the simulated processes and threads that share one thread of control.

Events are callbacks at a virtual time. The event loop takes the earliest one, sets the clock to
its time, and calls it. A simulated thread (`Task`) is a greenlet: code that blocks gives control
back to the event loop, and continues when an event wakes it. Nothing happens at the same time,
and every choice comes from one seeded source, so a seed determines the whole run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet

EPOCH_S = 1_800_000_000.0
"""The wall-clock time at which a simulation starts, in seconds since 1970."""
CLOCK_STEP_S = 1e-8
"""The time that passes at least when a thread waits or polls."""
MAX_DEATH_STEPS = 100
"""Attempts to end a thread of a killed process."""


class ProcessKilled(BaseException):
    """Raised inside the threads of a process that is killed, and by everything that they call."""


class SimulationError(Exception):
    """The simulation itself is at fault, or a run exceeds its limits."""


class Machine:
    """A machine with a clock that may be wrong, and drift."""

    def __init__(self, name: str, *, offset_s: float = 0.0, rate: float = 1.0) -> None:
        self.name = name
        self.offset_s = offset_s
        self.rate = rate

    def monotonic(self, now: float) -> float:
        return 1000.0 + now * self.rate

    def wall(self, now: float) -> float:
        return EPOCH_S + self.offset_s + now * self.rate

    def virtual(self, wall: float) -> float:
        """Return the virtual time at which the clock of this machine shows a time."""
        return (wall - EPOCH_S - self.offset_s) / self.rate


class Task:
    """A simulated thread. Objects of `threading.local` keep their values in its `__dict__`."""

    def __init__(self, process: "Process", name: str, function: Callable[[], object]) -> None:
        self.process = process
        self.name = name
        self.ended = False
        self.error: BaseException | None = None
        self.thread: Any = None
        """The object that `threading.current_thread` returns, if it is not this one."""
        self.context: Any = None
        """What belongs to the thread: the TaskContext of a Spark task."""
        self._function = function
        self._ticket = 0
        """Grows with each wait, so that a wake-up for an earlier one has no effect."""
        self._pending: BaseException | None = None
        self._joiners: list[Task] = []
        self._green = greenlet(self._run, process.scheduler.hub)

    def _run(self, _: bool = True) -> None:
        try:
            self._function()
        except ProcessKilled:
            pass
        except BaseException as exc:  # noqa: BLE001  reported by the scheduler
            self.error = exc
            self.process.scheduler.task_failed(self, exc)
        finally:
            self.ended = True
            self.process.tasks.pop(self, None)
            for task in self._joiners:
                task.wake()

    # In this thread.

    def wait(self, seconds: float | None = None) -> bool:
        """Block until `wake`, at most so many seconds of this machine. False: the time is over."""
        process = self.process
        if not process.alive:
            raise ProcessKilled
        scheduler = process.scheduler
        self._ticket += 1
        ticket = self._ticket
        if seconds is not None and seconds != inf:
            # A clock is never short of a deadline by an error of rounding.
            delay = max(0.0, seconds) / process.machine.rate + CLOCK_STEP_S
            scheduler.call_later(delay, lambda: self._resume(ticket, False), process)
        woken = scheduler.hub.switch()
        if self._pending is not None:
            error, self._pending = self._pending, None
            raise error
        return bool(woken)

    # From other threads and events.

    def wake(self) -> None:
        """End the wait of the thread."""
        ticket = self._ticket
        self.process.scheduler.call_soon(lambda: self._resume(ticket, True), self.process)

    def interrupt(self, error: BaseException) -> None:
        """Raise an error in the thread, which waits. Called by an event of its process."""
        self._pending = error
        self._resume(self._ticket, True)

    def start(self) -> None:
        self._ticket += 1
        ticket = self._ticket
        self.process.scheduler.call_soon(lambda: self._resume(ticket, True), self.process)

    def _resume(self, ticket: int, woken: bool) -> None:
        if ticket != self._ticket or self.ended:
            return
        self._ticket += 1
        scheduler = self.process.scheduler
        before = scheduler.process, scheduler.task
        scheduler.process, scheduler.task = self.process, self
        self._green.switch(woken)
        scheduler.process, scheduler.task = before

    def join(self, seconds: float | None = None) -> bool:
        """Wait in another thread until this one has ended."""
        current = self.process.scheduler.current_task()
        deadline = None if seconds is None else self.process.monotonic() + seconds
        while not self.ended:
            self._joiners.append(current)
            left = None if deadline is None else deadline - self.process.monotonic()
            if (left is not None and left <= 0) or not current.wait(left):
                break
        return self.ended

    def kill(self) -> None:
        """End the thread, whose process is dead. `finally` blocks run, but reach nothing."""
        if self._green.dead or not self._green:
            self.ended = True
            return
        self._green.parent = getcurrent()  # where control returns to when it ends
        for _ in range(MAX_DEATH_STEPS):
            if self._green.dead:
                return
            with self.process.scheduler.running(self.process, self):
                self._green.throw(ProcessKilled)
        raise SimulationError(f"{self.name} of {self.process.name} does not end")


class Process:
    """A simulated process on a machine. It can be killed and frozen."""

    def __init__(self, scheduler: "Scheduler", name: str, machine: Machine) -> None:
        self.scheduler = scheduler
        self.name = name
        self.machine = machine
        self.alive = True
        self.frozen = False
        self.tasks: dict[Task, None] = {}
        self.on_death: list[Callable[[], None]] = []
        """Called when the process is killed, for example to close its connections."""
        self.loop: Any = None
        """The event loop of the process, if it has one."""
        self._deferred: list[Callable[[], None]] = []

    def monotonic(self) -> float:
        return self.machine.monotonic(self.scheduler.now)

    def wall(self) -> float:
        return self.machine.wall(self.scheduler.now)

    def spawn(self, function: Callable[[], object], name: str = "main") -> Task:
        task = Task(self, name, function)
        self.tasks[task] = None
        task.start()
        return task

    def defer(self, callback: Callable[[], None]) -> None:
        self._deferred.append(callback)

    def freeze(self) -> None:
        """Stop the process, as SIGSTOP does. Its connections stay open."""
        self.frozen = True

    def thaw(self) -> None:
        if self.frozen:
            self.frozen = False
            deferred, self._deferred = self._deferred, []
            for callback in deferred:
                self.scheduler.call_soon(callback, self)

    def kill(self) -> None:
        """End the process at once, as SIGKILL does."""
        if not self.alive:
            return
        self.alive = False
        self.frozen = False
        self._deferred.clear()
        for callback in self.on_death:
            callback()
        for task in list(self.tasks):
            task.kill()
        self.tasks.clear()


class Scheduler:
    """The event loop of one simulation."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.steps = 0
        self.hub = getcurrent()
        self.outside = Process(self, "simulation", Machine("simulation"))
        """The process of code that belongs to no simulated process, such as set-up and checks."""
        self.process = self.outside
        self.task: Task | None = None
        self.lines: list[str] | None = [] if keep_trace else None
        self.failures: list[tuple[Task, BaseException]] = []
        self._digest = sha256()
        self._events: list[tuple[float, float, int, Callable[[], None], Process | None]] = []
        self._count = 0

    # Events.

    def call_at(
        self, when: float, callback: Callable[[], None], process: Process | None = None
    ) -> None:
        self._count += 1
        # Events at the same time happen in a random order.
        key = self.random.random()
        heappush(self._events, (max(when, self.now), key, self._count, callback, process))

    def call_later(
        self, seconds: float, callback: Callable[[], None], process: Process | None = None
    ) -> None:
        self.call_at(self.now + seconds, callback, process)

    def call_soon(self, callback: Callable[[], None], process: Process | None = None) -> None:
        self.call_at(self.now, callback, process)

    def run(
        self, until: Callable[[], bool] = lambda: False, *, limit_s: float = inf, max_steps: int
    ) -> bool:
        """Let time pass until `until` returns True, or until the limit. False: the limit."""
        events = self._events
        while events:
            if until():
                return True
            if events[0][0] > limit_s:
                self.now = limit_s
                return False
            when, _, _, callback, process = heappop(events)
            self.now = when
            self.steps += 1
            if self.steps > max_steps:
                raise SimulationError(f"more than {max_steps} steps")
            if process is None:
                callback()
            elif not process.alive:
                continue
            elif process.frozen:
                process.defer(callback)
            else:
                self.process = process
                callback()
                self.process = self.outside
        return until()

    @contextmanager
    def running(self, process: Process, task: Task | None) -> Iterator[None]:
        before = self.process, self.task
        self.process, self.task = process, task
        try:
            yield
        finally:
            self.process, self.task = before

    def current_task(self) -> Task:
        if self.task is None:
            raise SimulationError("only a simulated thread can block")
        return self.task

    def task_failed(self, task: Task, error: BaseException) -> None:
        """Note an exception that ended a thread. A run with one is a failed run."""
        self.failures.append((task, error))

    # The trace.

    def trace(self, who: str, text: str, *, data: bytes = b"") -> None:
        """Add a line to the trace. Its hash includes the data."""
        line = f"{self.now:.6f} {who} {text}"
        self._digest.update(line.encode() + data)
        if self.lines is not None:
            self.lines.append(line)

    def digest(self) -> str:
        return self._digest.hexdigest()
