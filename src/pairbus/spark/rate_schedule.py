"""A schedule of receives or sends: operations are due one after the other, at a rate.

The tasks of one machine share a schedule by a file. A task that ends leaves its part of the rate to
the others at once, and they see together how many messages a second a namespace has borne.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TextIO

OBSERVED_SECONDS = 10
"""The number of seconds of which the one with most messages is the observed rate."""
MAX_LATE_S = 0.05
"""The time that operations may catch up: tasks that were late must not do so in one burst."""


@dataclass(slots=True)
class ScheduleState:
    """The content of a schedule. No I/O, no clock."""

    due_at: float = 0.0
    """The time at which the next operation is due."""
    seconds: dict[str, int] = field(default_factory=dict)
    """Messages by second since 1970."""
    throttled: int = 0
    """The number of operations that were throttled."""

    def reserve(self, now: float, messages: int, rate: float) -> float:
        """Return the time at which an operation with so many messages is due."""
        start = max(self.due_at, now - MAX_LATE_S)
        self.due_at = start + messages / rate
        return start

    def give_back(self, messages: int, rate: float) -> None:
        """Take note that the last operation had fewer messages than were reserved."""
        self.due_at -= messages / rate

    def count(self, now: float, messages: int) -> None:
        """Count messages that a namespace has delivered or accepted."""
        second = str(int(now))
        self.seconds[second] = self.seconds.get(second, 0) + messages
        if len(self.seconds) > OBSERVED_SECONDS:
            del self.seconds[min(self.seconds, key=int)]

    def observed(self, now: float) -> int | None:
        """Return the messages of the best second lately. None: there were none."""
        recent = [n for second, n in self.seconds.items() if int(second) >= now - OBSERVED_SECONDS]
        return max(recent, default=None)


class RateSchedule:
    """A schedule in a file, or in memory if there is no file."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._state = ScheduleState()

    @contextmanager
    def open(self) -> Iterator[ScheduleState]:
        """Yield the state, to be read and changed. Other processes wait meanwhile."""
        file = self._open_file()
        if file is None:
            yield self._state
            return
        with file:
            state = _load(file, fcntl.LOCK_EX)
            yield state
            file.seek(0)
            file.write(json.dumps(asdict(state)))
            file.truncate()  # last: some file systems write a file that was emptied to disk at once

    def read(self) -> ScheduleState:
        """Return the state. A change of it is not kept."""
        file = self._open_file()
        if file is None:
            return replace(self._state)
        with file:
            return _load(file, fcntl.LOCK_SH)

    def _open_file(self) -> TextIO | None:
        if self._path is None:
            return None
        try:
            return os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
        except OSError:  # the folder may be gone at the end of a query
            return None


def _load(file: TextIO, lock: int) -> ScheduleState:
    """Lock a file until it is closed, and return its content."""
    fcntl.flock(file, lock)
    try:
        return ScheduleState(**json.loads(file.read()))
    except (ValueError, TypeError):  # it is new, or its last process died
        return ScheduleState()
