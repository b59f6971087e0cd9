"""Which backlog queues are in use. One for all senders of a pairing; no I/O, no clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random


@dataclass(slots=True)
class _Out:
    """A queue that failed."""

    cause: BaseException
    since: float
    probed: bool = False
    """Somebody tries it now."""


class Rotation:
    """The backlog queues. One that fails is out for a cool-down, and then tried by one sender at a
    time until it takes a message."""

    def __init__(self, queues: Sequence[str], *, cool_down_s: float, random: Random) -> None:
        self.queues = tuple(queues)
        self._cool_down_s = cool_down_s
        self._random = random
        self._out: dict[str, _Out] = {}

    def pick(self, now: float, without: Sequence[str] = ()) -> str | None:
        """One of the queues that can be used, each as likely as the others. None: there is none."""
        usable = [one for one in self.queues if one not in without and self._usable(one, now)]
        if not usable:
            return None
        queue = self._random.choice(usable)
        self.claim(queue, now)
        return queue

    def claim(self, queue: str, now: float) -> bool:
        """Whether a sender may use a queue now. If it was out, this sender is the one that tries
        it: `succeeded`, `failed` or `let_go` must follow."""
        if not self._usable(queue, now):
            return False
        out = self._out.get(queue)
        if out is not None:
            out.probed = True
        return True

    def _usable(self, queue: str, now: float) -> bool:
        out = self._out.get(queue)
        return out is None or (not out.probed and now >= out.since + self._cool_down_s)

    def failed(self, queue: str, cause: BaseException, now: float) -> bool:
        """Take a queue out. True: it was in until now."""
        was_in = queue not in self._out
        self._out[queue] = _Out(cause, now)
        return was_in

    def succeeded(self, queue: str) -> bool:
        """A queue took a message. True: it had been out, and is in again."""
        return self._out.pop(queue, None) is not None

    def let_go(self, queue: str) -> None:
        """A queue was tried, and nothing is known: the message was at fault."""
        out = self._out.get(queue)
        if out is not None:
            out.probed = False

    @property
    def last_cause(self) -> BaseException | None:
        """Why the queue that went last is out."""
        last = max(self._out.values(), key=lambda out: out.since, default=None)
        return None if last is None else last.cause

    def out(self) -> dict[str, tuple[BaseException, float]]:
        """The queues that are out, why, and since when."""
        return {queue: (out.cause, out.since) for queue, out in self._out.items()}
