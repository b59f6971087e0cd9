"""The peeks of a draining path at the backlog queues: which queue, from which sequence number, and
what follows from the answers. No I/O, no clock.

Thousands of processes may share a backlog, and each peek costs a credit of the namespace. A round
therefore asks for one message of a queue after the other, and ends at the first queue that decides
it. The next round starts with that queue, so a round at a large backlog costs one credit, whatever
the number of queues.

Other processes may go on to store messages. Within a hold with marks, a queue is empty for a path
if all that it shows was stored after the hold began: its first message has at least the number of
the mark. A mark is a number from which on the queue had no message, when the sends of the path were
held and none was in flight. Sequence numbers only grow, so all messages of the path are below it.
One peek may miss messages, so a mark needs two in a row that show none.
To find the marks takes some peeks for each queue, so every second hold does without them: with a
distant namespace, the others may be the only ones that are long enough.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

SMALL = 10
"""A backlog is small when no queue has more messages than this."""
YOUNG_FRACTION = 0.5
"""A backlog of any size counts as small when its oldest message is younger than this fraction of
the hold: the syphon keeps up, and will empty the backlog within the hold."""

MARK_MISSES = 2
"""Peeks in a row that show no message, at the same number, for a mark."""
MARK_PRECISION = 3
"""A mark is beyond the last message by at most this part of their distance from the first one."""


class PeekResult(NamedTuple):
    """The result of the peeks at one backlog queue."""

    messages: int
    """At most `SMALL` + 1. A gap in the numbers counts as messages."""
    first: int | None = None
    """The first sequence number; None if the queue is empty."""
    age_s: float = inf
    """The age of the first message, by the clocks of two machines."""

    def is_small(self, hold_s: float) -> bool:
        """Return whether a hold is likely to see the queue emptied."""
        return self.messages <= SMALL or self.age_s < hold_s * YOUNG_FRACTION


EMPTY = PeekResult(0)


class BacklogPeek(NamedTuple):
    """A peek at the first message from a sequence number on."""

    queue: str
    from_number: int


class PeekStart(NamedTuple):
    """The sends of a path when a round begins."""

    held: bool
    marked: bool
    """The hold is one with marks."""
    idle: bool
    """No send of the path to the backlog is in flight."""
    sends: int
    """The number of its sends to the backlog so far."""


class PeekRound:
    """One round of peeks. Call `next_peek` and `add` in turn until there is no next one.

    Before a hold the question is whether one is worthwhile, and a queue that is not small ends the
    round. During a hold it is whether all queues are empty, and a queue that is not ends the round.
    With marks, those that are missing are added first.
    """

    def __init__(
        self,
        queues: Sequence[str],
        hold_s: float,
        *,
        held: bool,
        marks: dict[str, int] | None = None,
    ) -> None:
        self._queues = queues
        self._hold_s = hold_s
        self._held = held
        self._marks = marks
        self._first: PeekResult | None = None
        """The first message of the queue, while further peeks are needed."""
        self._step = 1
        """The distance from it of the next peek."""
        self._found, self._missed = 0, 0
        """Distances at which a message was found, and none; 0 if there was no such peek."""
        self._misses = 0
        """The peeks in a row that showed no message, at the same distance."""
        self._ended = False
        self.results: list[PeekResult] = []
        """The results of the queues that were peeked, in the order of the round."""

    @property
    def peeked_queues(self) -> Sequence[str]:
        """The queues that were peeked, in the order of the round."""
        return self._queues[: len(self.results)]

    def next_peek(self) -> BacklogPeek | None:
        """Return the next peek to make; None at the end of the round."""
        if self._ended or len(self.results) == len(self._queues):
            return None
        queue = self._queues[len(self.results)]
        if self._first is None:
            return BacklogPeek(queue, 1)
        assert self._first.first is not None
        return BacklogPeek(queue, self._first.first + self._step)

    def add(self, number: int | None = None, age_s: float = inf) -> None:
        """Add the answer: sequence number and age of the message, or None if there was none."""
        if not self._held:
            self._add_before_hold(number, age_s)
        elif self._marks is not None:
            self._add_with_marks(self._marks, number, age_s)
        else:
            self._end_queue(EMPTY if number is None else PeekResult(1, number, age_s))

    def _add_before_hold(self, number: int | None, age_s: float) -> None:
        if self._first is not None:
            _, first, first_age_s = self._first
            self._end_queue(PeekResult(1 if number is None else SMALL + 1, first, first_age_s))
        elif number is None:
            self._end_queue(EMPTY)
        elif age_s < self._hold_s * YOUNG_FRACTION:
            self._end_queue(PeekResult(1, number, age_s))
        else:
            self._first, self._step = PeekResult(1, number, age_s), SMALL

    def _add_with_marks(self, marks: dict[str, int], number: int | None, age_s: float) -> None:
        queue = self._queues[len(self.results)]
        if self._first is not None:
            self._search_mark(marks, self._first, found=number is not None)
        elif number is None:
            self._misses += 1
            if queue not in marks and self._misses < MARK_MISSES:
                return
            marks.setdefault(queue, 1)
            self._end_queue(EMPTY)
        elif queue not in marks:
            self._first, self._misses = PeekResult(1, number, age_s), 0
        elif number >= marks[queue]:
            self._end_queue(EMPTY)
        else:
            self._end_queue(PeekResult(1, number, age_s))

    def _search_mark(self, marks: dict[str, int], first: PeekResult, *, found: bool) -> None:
        """Double the distance until there is no message, and then halve the rest. The mark is to be
        near the last message, because it must be reached within the hold."""
        if found:
            if self._step == self._missed:  # an earlier peek has missed a message
                self._missed = 0
            self._found, self._misses = self._step, 0
        else:
            self._misses = self._misses + 1 if self._step == self._missed else 1
            self._missed = self._step
        if self._missed == 0:
            self._step = 2 * self._found
        elif self._missed - self._found > max(1, self._missed // MARK_PRECISION):
            self._step = (self._found + self._missed) // 2
        elif self._misses < MARK_MISSES:
            self._step = self._missed
        else:
            assert first.first is not None
            marks[self._queues[len(self.results)]] = first.first + self._missed
            self._step = self._missed  # other queues are about as long
            self._found, self._missed = 0, 0
            self._end_queue(first)

    def _end_queue(self, result: PeekResult) -> None:
        self._first, self._misses = None, 0
        self.results.append(result)
        if not self._held:
            self._ended = not result.is_small(self._hold_s)
        else:
            # Every queue needs a mark first: the earlier it is set, the sooner it is reached.
            has_marks = self._marks is None or len(self._marks) == len(self._queues)
            self._ended = result.first is not None and has_marks


class BacklogPeeks:
    """The rounds of one path."""

    def __init__(self, queues: Sequence[str], hold_s: float) -> None:
        self._queues = tuple(queues)
        self._hold_s = hold_s
        self._start = 0
        self._marks: dict[str, int] = {}
        self._sends = -1

    def begin_round(self, start: PeekStart) -> PeekRound:
        """Return the next round. It starts with the queue at which the last one ended."""
        if not start.held or not start.idle or start.sends != self._sends:
            self._marks.clear()  # a message of the path may have been stored after them
        # A send that is in flight may be stored behind the marks of this round.
        self._sends = start.sends if start.idle else -1
        queues = self._queues[self._start :] + self._queues[: self._start]
        marks = self._marks if start.marked else None
        return PeekRound(queues, self._hold_s, held=start.held, marks=marks)

    def end_round(self, peek_round: PeekRound) -> None:
        """Take note where a round ended."""
        self._start = self._queues.index(peek_round.peeked_queues[-1])
