"""An event loop of asyncio in a simulated thread.

It is the loop of the standard library; only its `select` is replaced, by a wait in virtual time.
Several processes have a loop, and all of them run in one thread of the operating system: while a
loop waits, it is not the running one.
"""

import asyncio
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from tests.simulation.scheduler import Process, ProcessKilled, Task

T = TypeVar("T")

MAX_DEATH_STEPS = 100
"""Attempts to end a coroutine of a killed process."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop of a process."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process
        self._selector = self
        self._unfinished: dict[asyncio.Task[Any], None] = {}
        self.set_task_factory(self._make_task)
        process.loop = self
        process.on_death.append(self._end_tasks)
        self._thread = process.spawn(self._run, "event loop")

    def _run(self) -> None:
        while True:
            self._run_once()  # type: ignore[attr-defined]

    def select(self, timeout: float | None) -> list[Any]:
        """Wait for a call from another thread, at most so many seconds."""
        _set_running_loop(None)
        self._thread.wait(timeout)
        _set_running_loop(self)
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        self._thread.wake()

    # Tasks.

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> "asyncio.Task[Any]":
        task = asyncio.Task(work, loop=loop, **options)
        self._unfinished[task] = None
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: "asyncio.Task[Any]") -> None:
        self._unfinished.pop(task, None)
        if task.get_name().startswith("pairbus ") and not task.cancelled():
            error = task.exception()
            if error is not None:
                self._process.scheduler.task_failed(self._thread, error)

    def _end_tasks(self) -> None:
        """End the coroutines of a killed process, and those that they start now."""
        other = _get_running_loop()
        _set_running_loop(self)
        with self._process.scheduler.running(self._process, None):
            while self._unfinished:
                task, _ = self._unfinished.popitem()
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine: Any = task.get_coro()
                with suppress(ProcessKilled, StopIteration, RuntimeError):  # it has ended
                    for _ in range(MAX_DEATH_STEPS):
                        coroutine.throw(ProcessKilled)
        _set_running_loop(other)

    # For other threads of the process.

    def call(
        self,
        function: Callable[[], Coroutine[Any, Any, T]],
        cancel_after_s: float | None = None,
    ) -> T:
        """Run a coroutine in the loop, and return its result. It can be cancelled after a time."""
        caller: Task = self._process.scheduler.current_task()
        task: asyncio.Task[T] | None = None

        def start() -> None:
            nonlocal task
            task = self.create_task(function())
            task.add_done_callback(lambda _: caller.wake())
            if cancel_after_s is not None:
                self.call_later(cancel_after_s, task.cancel)

        self.call_soon_threadsafe(start)
        while task is None or not task.done():
            caller.wait()
        return task.result()
