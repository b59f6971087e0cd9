"""The driver of threads: carries out the effects of operations with the synchronous SDK."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from time import monotonic
from typing import Any, TypeVar

from pairbus.pairing.deadlines import DeadlineMonitor
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
from pairbus.pairing.sdk import close_socket, interrupt

T = TypeVar("T")

MAX_DISCARDING = 16
"""The number of discarded links that are closed at a time. Of further ones only the socket is
closed."""
MAX_CLOSING = 64
"""The number of objects that are closed side by side."""


class ThreadDriver:
    """Runs operations in the thread of the caller, or in background threads."""

    interruptible = True

    def __init__(self) -> None:
        self.deadlines = DeadlineMonitor()
        self._changed = threading.Condition()
        self._threads: set[threading.Thread] = set()
        self._discarding = threading.Semaphore(MAX_DISCARDING)

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
        try:
            thread.start()
        except RuntimeError:  # there are too many threads, or the interpreter shuts down
            self._threads.discard(thread)
            raise

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
        kind = type(effect)
        if kind is CallSdk:  # the effects of each send; a match statement takes twice as long
            return self.deadlines.run(*effect)
        if kind is AcquireLock:
            return _acquire(*effect)
        match effect:
            case CloseObject(target):
                return self.close(target)
            case CloseAll(targets):
                return self._close_all(targets)
            case Discard(link):
                return self.discard(link)
            case WaitForChange(changed, seconds):
                with self._changed:
                    return self._changed.wait_for(changed, seconds)
            case RunBlocking(function):
                return function()
            case _:
                return self._stop()

    def close(self, target: Any, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Close an object of the SDK in a bounded time, and ignore errors."""
        with contextlib.suppress(Exception):
            self.deadlines.run(target, lambda target: target.close(), timeout_s)

    def discard(self, link: Any) -> None:
        """Close a sender or receiver of the SDK in the background."""
        if self._discarding.acquire(blocking=False):
            with contextlib.suppress(RuntimeError):
                self.start(self._discard(link), "discard")
                return
            self._discarding.release()
        interrupt(link)
        close_socket(link)

    def _discard(self, link: Any) -> Operation[None]:
        try:
            yield CloseObject(link)
        finally:
            self._discarding.release()

    def _close_all(self, targets: tuple[Any, ...]) -> None:
        deadline = monotonic() + CLOSE_TIMEOUT_S
        remaining = deque(targets)

        def close_next() -> None:
            with contextlib.suppress(IndexError):  # there is no further target
                while True:
                    self.close(remaining.popleft(), max(0.0, deadline - monotonic()))

        threads = []
        try:
            for _ in targets[:MAX_CLOSING] if len(targets) > 1 else ():
                thread = threading.Thread(target=close_next, name="pairbus closing", daemon=True)
                thread.start()
                threads.append(thread)
        except RuntimeError:  # there are too many threads, or the interpreter shuts down
            threads.clear()
        if not threads:
            close_next()
        _join(threads, deadline)

    def _stop(self) -> None:
        deadline = monotonic() + CLOSE_TIMEOUT_S
        # An operation that ends may have started another one, which closes its link.
        while (threads := self._threads - {threading.current_thread()}) and monotonic() < deadline:
            _join(threads, deadline)
        self.deadlines.stop()


def _join(threads: Iterable[threading.Thread], deadline: float) -> None:
    for thread in threads:
        with contextlib.suppress(RuntimeError):  # it is about to start
            thread.join(max(0.0, deadline - monotonic()))


def acquire(lock: threading.Lock, timeout_s: float) -> float | None:
    """Acquire a lock. Return the time that is left of the timeout, or None if it is over."""
    if lock.acquire(blocking=False):
        return timeout_s
    deadline = monotonic() + timeout_s
    return max(0.0, deadline - monotonic()) if lock.acquire(timeout=timeout_s) else None


def _acquire(lock: threading.Lock, timeout_s: float | None) -> HeldLock:
    if timeout_s is None:
        lock.acquire()
        return HeldLock(lock, inf)
    left_s = acquire(lock, timeout_s)
    if left_s is None:
        raise lock_timed_out(timeout_s)
    return HeldLock(lock, left_s)
