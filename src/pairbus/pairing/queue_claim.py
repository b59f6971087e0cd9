"""The permission to send to one backlog queue, and the report of the result. No I/O."""

from math import inf
from typing import TYPE_CHECKING, Self

from pairbus.pairing.rotation import HostTrial

if TYPE_CHECKING:
    from pairbus.pairing.backlog_state import BacklogState


class QueueClaim:
    """The permission to send to one backlog queue. Leaving the `with` block without a call of
    `succeeded` or `failed` means that the send showed nothing about the queue."""

    __slots__ = ("_backlog", "_began", "_reported", "_trial", "queue")

    def __init__(
        self, backlog: "BacklogState", queue: str, began: float, trial: HostTrial | None
    ) -> None:
        self.queue = queue
        self._backlog = backlog
        self._began = began
        self._trial = trial
        self._reported = False

    @property
    def is_trial(self) -> bool:
        """True if no other call uses the host, and no other queue is tried."""
        return self._trial is not None

    @property
    def deadline(self) -> float:
        """The time until which the call may use the queue."""
        return inf if self._trial is None else self._trial.deadline

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._reported:
            self._backlog.release(self.queue)
            if self._trial is not None:
                self._trial.release()

    def succeeded(self) -> None:
        """Report that the queue accepted a message."""
        self._reported = True
        self._backlog.restore(self.queue)

    def failed(self, error: BaseException) -> None:
        """Report that the queue is at fault, which pulls it from the rotation."""
        self._reported = True
        self._end_trial(error)
        self._backlog.pull(self.queue, error)

    def unreachable(self, error: BaseException) -> None:
        """Report that the host of the queue could not be reached."""
        self._reported = True
        self._end_trial(error)
        self._backlog.unreachable(self.queue, error, self._began)

    def rejected(self, error: BaseException) -> None:
        """Report an answer that shows nothing about the queue: the message is at fault, or the
        service throttles."""
        self._end_trial(error)

    def _end_trial(self, error: BaseException) -> None:
        if self._trial is not None:
            self._trial.end(self.queue, error)
