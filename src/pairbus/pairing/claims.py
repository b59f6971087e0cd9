"""Obligations of an operation towards the shared state, as context managers."""

from collections.abc import Callable
from threading import RLock
from typing import NamedTuple, Self

from pairbus.pairing.health import PathHealth


class Hold(NamedTuple):
    """A send waits for the end of a hold, at most so many seconds."""

    seconds: float
    version: int
    """The version of the shared state on which the decision is based."""


class InFlightSend:
    """A send to the backlog that is in progress. A path does not leave DRAINING before every send
    in flight has left its `with` block. Created while the lock of the state is held."""

    def __init__(self, health: PathHealth, lock: RLock) -> None:
        health.in_flight += 1
        self._health = health
        self._lock = lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._health.in_flight -= 1


class QueueClaim:
    """The permission to send to one backlog queue. Leaving the `with` block without a call of
    `succeeded` or `failed` means that the send showed nothing about the queue."""

    def __init__(
        self,
        queue: str,
        *,
        restore: Callable[[str], None],
        pull: Callable[[str, BaseException], None],
        release: Callable[[str], None],
    ) -> None:
        self.queue = queue
        self._restore = restore
        self._pull = pull
        self._release = release
        self._reported = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._reported:
            self._release(self.queue)

    def succeeded(self) -> None:
        """Report that the queue accepted a message."""
        self._reported = True
        self._restore(self.queue)

    def failed(self, error: BaseException) -> None:
        """Report that the queue is at fault, which pulls it from the rotation."""
        self._reported = True
        self._pull(self.queue, error)
