"""The third driver of operations: that of threads, with simulated threads and time limits."""

from collections.abc import Callable
from typing import Any, TypeVar

from pairbus.pairing.driver import ThreadDriver
from pairbus.pairing.effects import timed_out
from pairbus.pairing.sdk import CallInterrupted
from tests.simulation.scheduler import Scheduler

T = TypeVar("T")


class SimulatedDeadlines:
    """Interrupts calls of the simulated SDK that take too long."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def run(self, link: Any, function: Callable[[Any], T], timeout_s: float) -> T:
        """Call a function with a sender or receiver. Raises CallTimedOut."""
        scheduler = self._scheduler
        task = scheduler.current_task()
        process = task.process
        state = "running"

        def interrupt() -> None:
            nonlocal state
            if state == "running":
                state = "interrupted"
                task.interrupt(CallInterrupted("the call took too long"))

        scheduler.call_later(timeout_s / process.machine.rate, interrupt, process)
        try:
            return function(link)
        except Exception as exc:
            if state == "interrupted":
                link.abort()
                raise timed_out(timeout_s) from exc
            raise
        finally:
            state = "ended"

    def stop(self) -> None:
        pass


class SimulatedDriver(ThreadDriver):
    """Runs operations in simulated threads."""

    interruptible = False

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self.deadlines = SimulatedDeadlines(scheduler)  # type: ignore[assignment]
