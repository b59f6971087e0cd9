"""Calls of the SDK that take too long are ended.

The SDK alone hangs for ever on a host that is frozen. A call runs in its caller's thread, so that a
healthy one costs nothing; a thread looks now and then for calls whose time is over, and ends their
sockets until they return.
"""

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.pairing.sdk import break_off, hang_up

T = TypeVar("T")

LOOK_S = 0.25


class CallTimedOut(OperationTimeoutError):
    """A call was ended because its time was over. What it sent may have arrived. Whoever made it
    must not use its sender again."""


class _Watched:
    __slots__ = ("broken", "deadline", "sender")

    def __init__(self, sender: Any, deadline: float) -> None:
        self.sender = sender
        self.deadline = deadline
        self.broken = False


class DeadlineMonitor:
    """Ends calls that take too long. One thread, which sleeps while there are no calls."""

    def __init__(self) -> None:
        self._calls: set[_Watched] = set()
        self._some = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def run(self, sender: Any, call: Callable[[Any], T], seconds: float) -> T:
        """The call's result. Raises what it raises, or Overrun."""
        watched = _Watched(sender, monotonic() + seconds)
        self._calls.add(watched)
        if not self._some.is_set():
            self._some.set()
            self._start()
        try:
            return call(sender)
        except Exception as exc:
            if watched.broken:
                hang_up(sender)
                raise CallTimedOut(
                    message=f"no answer within {seconds:g} s: the call was given up"
                ) from exc
            raise
        finally:
            self._calls.discard(watched)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._look, name="pairbus watch", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Stop looking. Calls that are under way are looked after to their end."""
        self._stopped = True
        self._some.set()

    def _look(self) -> None:
        pause = threading.Event()
        while not (self._stopped and not self._calls):
            self._some.wait()
            now = monotonic()
            for watched in tuple(self._calls):
                if now >= watched.deadline:
                    watched.broken = True
                    break_off(watched.sender)
            if not self._calls and not self._stopped:
                self._some.clear()
                if self._calls:  # one came in between
                    self._some.set()
            pause.wait(LOOK_S)
