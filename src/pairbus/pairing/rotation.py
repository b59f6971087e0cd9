"""The rotation: which backlog queues are in use. Shared by all senders of a pairing; no I/O, no
clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random


@dataclass(slots=True)
class PulledQueue:
    """A backlog queue that failed and is out of the rotation."""

    cause: BaseException
    since: float
    unreachable: bool = False
    """The connection failed, so that the queue itself may be usable."""
    probing: bool = False
    """A sender tries the queue at this moment."""


class Rotation:
    """The backlog queues of a pairing. A queue that fails is pulled. After a cool-down one sender
    at a time tries it, until it accepts a message."""

    def __init__(self, queues: Sequence[str], *, cool_down_s: float, random: Random) -> None:
        self.queues = tuple(queues)
        self._cool_down_s = cool_down_s
        self._random = random
        self._pulled: dict[str, PulledQueue] = {}

    def claim_any(self, now: float, exclude: Sequence[str] = ()) -> str | None:
        """Claim one of the usable queues, chosen uniformly at random. Return None if there is
        none."""
        usable = [q for q in self.queues if q not in exclude and self._is_usable(q, now)]
        if not usable:
            return None
        queue = self._random.choice(usable)
        self.claim(queue, now)
        return queue

    def claim(self, queue: str, now: float) -> bool:
        """Claim a queue for one send, and return whether that is allowed. A claim ends with
        `succeeded`, `failed` or `release`."""
        if not self._is_usable(queue, now):
            return False
        pulled = self._pulled.get(queue)
        if pulled is not None:
            pulled.probing = True
        return True

    def _is_usable(self, queue: str, now: float) -> bool:
        pulled = self._pulled.get(queue)
        return pulled is None or (not pulled.probing and now >= pulled.since + self._cool_down_s)

    def failed(
        self, queue: str, cause: BaseException, now: float, *, unreachable: bool = False
    ) -> bool:
        """Pull a queue. Return whether it was in the rotation until now."""
        was_in_rotation = queue not in self._pulled
        self._pulled[queue] = PulledQueue(cause, now, unreachable)
        return was_in_rotation

    def restore_unreachable(self) -> list[str]:
        """Restore the queues that were pulled because their connection failed, and return them."""
        queues = [queue for queue, pulled in self._pulled.items() if pulled.unreachable]
        for queue in queues:
            del self._pulled[queue]
        return queues

    @property
    def has_pulled(self) -> bool:
        """Return whether a queue is pulled."""
        return bool(self._pulled)

    @property
    def is_empty(self) -> bool:
        """Return whether all queues are pulled."""
        return len(self._pulled) == len(self.queues)

    def succeeded(self, queue: str) -> bool:
        """Record that a queue accepted a message. Return whether this restores a pulled queue."""
        return self._pulled.pop(queue, None) is not None

    def release(self, queue: str) -> None:
        """End a claim that showed nothing about the queue, because the message was at fault."""
        pulled = self._pulled.get(queue)
        if pulled is not None:
            pulled.probing = False

    @property
    def last_cause(self) -> BaseException | None:
        """The error of the queue that was pulled last."""
        last = max(self._pulled.values(), key=lambda pulled: pulled.since, default=None)
        return None if last is None else last.cause

    def pulled(self) -> dict[str, PulledQueue]:
        """Return the queues that are out of the rotation."""
        return dict(self._pulled)


@dataclass(frozen=True, slots=True)
class HostTrial:
    """A call that shows whether the host of the queues answers sends (`secondary_health`)."""

    deadline: float
    """The time until which the call waits for the answer."""
    end: Callable[[str, BaseException], None]
    release: Callable[[], None]
