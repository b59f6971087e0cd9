"""Time limits for SDK calls that run in threads.

The SDK hangs for ever on a host that does not answer. A call runs in the thread of its caller, so
that a limit costs a healthy call almost nothing. A monitor thread checks regularly for calls that
took too long, and shuts their sockets down until they return.
"""

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from pairbus.pairing.effects import timed_out
from pairbus.pairing.sdk import close_socket, interrupt

T = TypeVar("T")

CHECK_INTERVAL_S = 0.25


class MonitoredCall:
    """An SDK call in progress."""

    __slots__ = ("deadline", "interrupted", "link")

    def __init__(self, link: Any, deadline: float) -> None:
        self.link = link
        self.deadline = deadline
        self.interrupted = False


class DeadlineMonitor:
    """Interrupts SDK calls that take too long, with one thread that sleeps while there are none."""

    def __init__(self) -> None:
        self._calls: set[MonitoredCall] = set()
        self._has_calls = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()

    def run(self, link: Any, function: Callable[[Any], T], timeout_s: float) -> T:
        """Call a function with a sender or receiver of the SDK. Raises CallTimedOut."""
        call = MonitoredCall(link, monotonic() + timeout_s)
        self._calls.add(call)
        if not self._has_calls.is_set():
            self._has_calls.set()
            self._start()
        try:
            return function(link)
        except Exception as exc:
            if call.interrupted:
                close_socket(link)
                raise timed_out(timeout_s) from exc
            raise
        finally:
            self._calls.discard(call)

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._monitor, name="pairbus deadlines", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Stop the thread when the calls in progress have ended."""
        self._stopped = True
        self._has_calls.set()

    def _monitor(self) -> None:
        pause = threading.Event()
        while not (self._stopped and not self._calls):
            self._has_calls.wait()
            now = monotonic()
            for call in tuple(self._calls):
                if now >= call.deadline:
                    call.interrupted = True
                    interrupt(call.link)
            if not self._calls and not self._stopped:
                self._has_calls.clear()
                if self._calls:  # a call began in the meantime
                    self._has_calls.set()
            pause.wait(CHECK_INTERVAL_S)
