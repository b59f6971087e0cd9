"""Virtual time: functions that are called one after the other, at their times."""

import heapq
from collections.abc import Callable
from itertools import count


class Timeline:
    """Calls functions in the order of their times. Nothing else lets time pass."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = count()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []

    def call_at(self, time: float, function: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (max(time, self.now), next(self._numbers), function))

    def call_after(self, seconds: float, function: Callable[[], None]) -> None:
        self.call_at(self.now + seconds, function)

    def run(self, until: float, is_over: Callable[[], bool]) -> None:
        """Call the functions that are due until then, or until it is over."""
        while self._calls and self._calls[0][0] <= until and not is_over():
            self.now, _, function = heapq.heappop(self._calls)
            function()
