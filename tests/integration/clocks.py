"""A clock that a test can move forward."""

from collections.abc import Callable


class Clock:
    """The time of a source in seconds, plus an offset that a test sets."""

    def __init__(self, source: Callable[[], float]) -> None:
        self._source = source
        self.ahead = 0.0

    def __call__(self) -> float:
        return self._source() + self.ahead

    def now_ms(self) -> int:
        """Return the time in milliseconds, as a namespace expects it."""
        return int(self() * 1000)
