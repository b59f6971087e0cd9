"""The driver of an event loop: carries out the effects of operations with the asynchronous SDK."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any, TypeVar

from pairbus.pairing.aio.deadlines import TimeLimits, run_in_task
from pairbus.pairing.effects import (
    CLOSE_TIMEOUT_S,
    AcquireLock,
    CallSdk,
    CloseAll,
    CloseObject,
    Discard,
    Effect,
    HeldLock,
    Operation,
    RunBlocking,
    WaitForChange,
    lock_timed_out,
)

T = TypeVar("T")

MAX_THREADS = 4
"""The number of blocking functions that can run at a time."""


class LoopDriver:
    """Runs operations in the task of the caller, or in background tasks."""

    interruptible = False

    def __init__(self) -> None:
        self.time_limits = TimeLimits()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        # Requests to a host that does not answer would block the executor of the application.
        self._executor = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="pairbus requests")

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation, and return its result."""
        try:
            effect = next(operation)
            while True:
                try:
                    result = await self._carry_out(effect)
                except BaseException as exc:  # noqa: BLE001  the operation decides
                    effect = operation.throw(exc)
                else:
                    effect = operation.send(result)
        except StopIteration as stop:
            value: T = stop.value
            return value
        except Exception:
            # A call that fails at once does not suspend its task. If the application repeats such
            # calls, other tasks, such as a probe of the secondary, would never run.
            await asyncio.sleep(0)
            raise

    def start(self, operation: Operation[None], name: str) -> None:
        """Run an operation in the background."""
        self._spawn(self.run(operation), name)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"pairbus {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def wake(self) -> None:
        """Wake the operations that wait for a change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def call_handler(self, function: Callable[[], None]) -> None:
        """Call a function in the event loop: immediately in its thread, soon from another one."""
        if threading.get_ident() == self._thread:
            function()
            return
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop is closed
            function()

    async def _carry_out(self, effect: Effect) -> Any:
        kind = type(effect)
        if kind is CallSdk:  # the effects of each send; a match statement takes twice as long
            return await self.time_limits.call(*effect)
        if kind is AcquireLock:
            return await _acquire(*effect)
        match effect:
            case CloseObject(target):
                return await self.close(target)
            case CloseAll(targets):
                return await self._close_all(targets)
            case Discard(link):
                return self.discard(link)
            case WaitForChange(changed, seconds):
                return await self._wait_for(changed, seconds)
            case RunBlocking(function):
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._executor, function)
            case _:
                return await self._stop()

    async def _wait_for(self, changed: Callable[[], bool], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not changed():
                    await self._changed.wait()

    async def close(self, target: Any) -> None:
        """Close an object of the SDK in a bounded time, and ignore errors."""
        with contextlib.suppress(Exception):
            await run_in_task(target, target.close(), CLOSE_TIMEOUT_S)

    async def _close_all(self, targets: tuple[Any, ...]) -> None:
        await asyncio.gather(*map(self.close, targets))

    def discard(self, link: Any) -> None:
        """Close a sender or receiver of the SDK in the background."""
        self._spawn(self.close(link), "discard")

    async def _stop(self) -> None:
        deadline = self._loop.time() + CLOSE_TIMEOUT_S
        # An operation that ends may have started another one, which closes its link.
        while tasks := self._tasks - {asyncio.current_task()}:
            left_s = max(0.0, deadline - self._loop.time())
            _, pending = await asyncio.wait(tasks, timeout=left_s)
            if pending:
                for task in pending:
                    task.cancel()
                break
        self._executor.shutdown(wait=False, cancel_futures=True)


async def _acquire(lock: asyncio.Lock, timeout_s: float | None) -> HeldLock:
    try:
        async with asyncio.timeout(timeout_s) as timeout:
            await lock.acquire()
    except TimeoutError as exc:
        assert timeout_s is not None
        raise lock_timed_out(timeout_s) from exc
    deadline = timeout.when()
    if deadline is None:
        return HeldLock(lock, inf)
    return HeldLock(lock, max(0.0, deadline - asyncio.get_running_loop().time()))
