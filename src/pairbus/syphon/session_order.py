"""The order within sessions: no message passes an older one of its session that is still in its
backlog queue, for example because a syphon that was killed has locked it.

A reader receives the available messages of a queue in the order of their sequence numbers. Messages
that others have locked are in the gaps between them, and a peek shows them until they are
completed, which is after the primary has accepted them. New messages get higher numbers. So if a
peek *after* the receive shows no other message of a session below the received one, then there will
never be one, and the received message may be sent.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

from pairbus.syphon.sequence_ranges import SequenceRanges

PAGE_SIZE = 100
"""Messages of one peek, after the first message of a gap."""
MAX_PEEKED = 500
"""Messages that are peeked for one queue in one micro-batch, because each is billed."""
PARTITION_BITS = 48
"""In a partitioned queue the higher bits of a sequence number are the partition. A session is
always in one partition."""


class PeekedMessage(NamedTuple):
    """A message that a peek has shown."""

    number: int
    """Its sequence number."""
    session: Hashable | None
    """Its session. None: it has none, or does not wait to be moved."""


Peek = Callable[[int, int], list[PeekedMessage]]
"""Peeks at a queue: from a sequence number, at most some messages. Raises GapsUnknown."""


class GapsUnknown(Exception):
    """A queue could not be peeked."""


class SessionOrder:
    """Decides which messages of one queue may be sent in one micro-batch.

    `unordered` is the set of numbers that are known to have no message with a session. It stays
    true for ever, so it is kept from one micro-batch to the next.
    """

    def __init__(
        self, peek: Peek, unordered: SequenceRanges, *, max_peeked: int = MAX_PEEKED
    ) -> None:
        self._peek = peek
        self._unordered = unordered
        self._budget = max_peeked
        self._known = SequenceRanges()
        """Numbers that were received, or whose sessions are known."""
        self._first, self._next = 0, 0
        """The last messages in a row, from `_first` to below `_next`. All below are known."""
        self._run_first, self._run_last = 1, 0
        """The last messages without a session, in a row."""
        self._held: set[Hashable] = set()
        self._all_held = False

    def admits(self, number: int, session: Hashable | None) -> bool:
        """Take note of a message that was received. Return True if it may be sent, after the
        messages before it. All messages of a queue must be noted, in the order of arrival."""
        if session is None:
            if number == self._run_last + 1:
                self._run_last = number
            else:
                self._end_run()
                self._run_first = self._run_last = number
            if number == self._next:
                self._next += 1
            return True
        if number in self._unordered:
            # The queue was deleted and created again, so the numbers started again.
            self._unordered.clear()
            self._all_held = True
        if number == self._next:
            self._next += 1
        else:
            self._end_run()
            self._known.add(self._first, self._next - 1)
            self._check_below(number)
            self._first, self._next = number, number + 1
        return not self._all_held and session not in self._held

    def leave_out(self, number: int) -> None:
        """Take note of a message that was received, and that is not sent in this micro-batch. The
        messages behind it in its session are left out too."""
        self._known.add(number, number)
        if number == self._next:
            self._next += 1

    def finish(self) -> None:
        """End the micro-batch. What is known for ever is kept."""
        self._end_run()

    def _end_run(self) -> None:
        self._known.add(self._run_first, self._run_last)
        self._unordered.add(self._run_first, self._run_last)
        self._run_first, self._run_last = 1, 0

    def _check_below(self, number: int) -> None:
        """Find the sessions of the messages below a number that were not received."""
        for first, last in list(self._known.missing(lowest_number(number), number - 1)):
            for gap_first, gap_last in list(self._unordered.missing(first, last)):
                if not self._all_held:
                    self._peek_gap(gap_first, gap_last)
            self._known.add(first, last)

    def _peek_gap(self, first: int, last: int) -> None:
        try:
            for message in find_sessions(self._limited_peek, first, last, self._unordered):
                self._held.add(message.session)
        except GapsUnknown:
            self._all_held = True

    def _limited_peek(self, first: int, count: int) -> list[PeekedMessage]:
        if self._budget <= 0:
            raise GapsUnknown
        messages = self._peek(first, min(count, self._budget))
        self._budget -= max(len(messages), 1)
        return messages


def lowest_number(number: int) -> int:
    """Return the lowest sequence number of the partition of a number."""
    return ((number >> PARTITION_BITS) << PARTITION_BITS) + 1


def find_sessions(
    peek: Peek, first: int, last: int, unordered: SequenceRanges
) -> Iterator[PeekedMessage]:
    """Yield the messages with sessions from `first` to `last`. Add the numbers to `unordered` that
    have none."""
    size = 1
    while first <= last:
        messages = peek(first, min(size, last - first + 1))
        for message in messages:
            if message.number > last:
                break
            unordered.add(first, message.number - (message.session is not None))
            if message.session is not None:
                yield message
            first = message.number + 1
        else:
            if messages:
                size = PAGE_SIZE
                continue
        unordered.add(first, last)
        return
