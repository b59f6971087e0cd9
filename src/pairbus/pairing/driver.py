"""The driver of threads: carries out the effects of operations with the synchronous SDK."""

import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from pairbus.pairing.deadlines import DeadlineMonitor
from pairbus.pairing.effects import (
    CLOSE_TIMEOUT_S,
    AcquireLock,
    CallSdk,
    CloseObject,
    Discard,
    Effect,
    Operation,
    RunBlocking,
    WaitForChange,
    lock_timed_out,
)

T = TypeVar("T")


class ThreadDriver:
    """Runs operations in the thread of the caller, or in background threads."""

    interruptible = True

    def __init__(self) -> None:
        self.deadlines = DeadlineMonitor()
        self._changed = threading.Condition()
        self._threads: set[threading.Thread] = set()

    def run(self, operation: Operation[T]) -> T:
        """Run an operation, and return its result."""
        try:
            effect = next(operation)
            while True:
                try:
                    result = self._carry_out(effect)
                except BaseException as exc:  # noqa: BLE001  the operation decides
                    effect = operation.throw(exc)
                else:
                    effect = operation.send(result)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def start(self, operation: Operation[None], name: str) -> None:
        """Run an operation in the background."""
        thread = threading.Thread(
            target=self._run_in_background, args=(operation,), name=f"pairbus {name}", daemon=True
        )
        self._threads.add(thread)
        thread.start()

    def _run_in_background(self, operation: Operation[None]) -> None:
        try:
            self.run(operation)
        finally:
            self._threads.discard(threading.current_thread())

    def wake(self) -> None:
        """Wake the operations that wait for a change."""
        with self._changed:
            self._changed.notify_all()

    def call_handler(self, function: Callable[[], None]) -> None:
        """Call a function immediately: event handlers run in any thread."""
        function()

    def _carry_out(self, effect: Effect) -> Any:
        match effect:
            case CallSdk(link, function, timeout_s):
                return self.deadlines.run(link, function, timeout_s)
            case AcquireLock(lock, timeout_s):
                return _acquire(lock, timeout_s)
            case CloseObject(target) | Discard(target):
                return self.close(target)
            case WaitForChange(changed, seconds):
                with self._changed:
                    return self._changed.wait_for(changed, seconds)
            case RunBlocking(function):
                return function()
            case _:
                return self._stop()

    def close(self, target: Any) -> None:
        """Close an object of the SDK in a bounded time, and ignore errors."""
        with contextlib.suppress(Exception):
            self.deadlines.run(target, lambda target: target.close(), CLOSE_TIMEOUT_S)

    def _stop(self) -> None:
        for thread in self._threads - {threading.current_thread()}:
            thread.join(CLOSE_TIMEOUT_S)
        self.deadlines.stop()


def _acquire(lock: threading.Lock, timeout_s: float | None) -> contextlib.ExitStack:
    if not lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
        assert timeout_s is not None
        raise lock_timed_out(timeout_s)
    held = contextlib.ExitStack()
    held.callback(lock.release)
    return held
