"""Queues whose first available message is behind messages that another receiver has locked.

A task would receive the messages of such a queue only to abandon those of the same sessions, and
each receive is billed. So the planner waits: a peek of one message shows if it is still there. Its
lock may have expired, so the first available message is then received anew.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from pairbus.syphon.sequence_ranges import SequenceRanges
from pairbus.syphon.session_order import (
    GapsUnknown,
    PeekedMessage,
    find_sessions,
    lowest_number,
)

CHECK_S, MAX_CHECK_S = 1.0, 10.0
"""The interval between two peeks. It doubles up to the maximum."""


@dataclass(slots=True)
class _Wait:
    """The wait for the messages before the first available one of a queue."""

    number: int
    since: float
    blocker: int
    """The message that was found last, and below which there is none with a session."""
    next_at: float
    pause_s: float = CHECK_S


class OccupiedQueues:
    """Decides when the queues of the first available messages may be read."""

    def __init__(
        self,
        peek: Callable[[str, int, int], list[PeekedMessage]],
        release: Callable[[str], None],
    ) -> None:
        """`release` abandons the first message of a queue, and receives the one that is first
        then."""
        self._peek = peek
        self._release = release
        self._waits: dict[str, _Wait] = {}
        self._unordered: defaultdict[str, SequenceRanges] = defaultdict(SequenceRanges)

    def is_occupied(
        self, queue: str, number: int, session: Hashable | None, *, lock_s: float, now: float
    ) -> bool:
        """Return True if a message of any session is before the first available one.

        If that lasts for longer than a lock, the queue is read all the same: another receiver is at
        work. The task then leaves out the messages that must not be sent.
        """
        if session is None:
            return False
        wait = self._waits.get(queue)
        if wait is None or wait.number != number:
            wait = _Wait(number, now, lowest_number(number), now)
            self._waits[queue] = wait
        if now < wait.next_at:
            return True
        if now - wait.since >= lock_s:
            wait.since = now
            return False
        try:
            blocker = next(
                find_sessions(
                    lambda first, count: self._peek(queue, first, count),
                    wait.blocker,
                    number - 1,
                    self._unordered[queue],
                ),
                None,
            )
        except GapsUnknown:
            return False  # the task cannot peek either, and sends nothing that needs it
        if blocker is None:
            del self._waits[queue]
            return False
        if wait.pause_s > CHECK_S:
            self._release(queue)
        wait.blocker, wait.next_at = blocker.number, now + wait.pause_s
        wait.pause_s = min(2 * wait.pause_s, MAX_CHECK_S)
        return True
