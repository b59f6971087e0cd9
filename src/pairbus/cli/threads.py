"""Work that Ctrl-C does not meet halfway."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def run_in_thread(work: Callable[[], T]) -> T:
    """Do it in a thread of its own, and wait for it. Ctrl-C ends the waiting, whatever the thread
    does; in the middle of a talk with Java it might be lost. The thread ends with the process."""
    done: Future[T] = Future()

    def do() -> None:
        try:
            done.set_result(work())
        except BaseException as exc:  # noqa: BLE001  raised where it is waited for
            done.set_exception(exc)

    threading.Thread(target=do, name="pairbus works", daemon=True).start()
    return done.result()
