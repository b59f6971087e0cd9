"""Run a function in a thread, so that Ctrl-C does not interrupt it."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def run_in_thread(function: Callable[[], T]) -> T:
    """Run a function in a daemon thread and wait for its result.

    Ctrl-C interrupts the wait, not the function: an interrupted call from Python to Java can lose
    its exception or its response.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as exc:  # noqa: BLE001  raised again by result()
            future.set_exception(exc)

    threading.Thread(target=run, name="pairbus worker", daemon=True).start()
    return future.result()
