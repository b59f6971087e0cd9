"""Which messages of sessions may be sent, and what the peeks for it cost."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.syphon.occupied_queues import MAX_CHECK_S, OccupiedQueues
from pairbus.syphon.sequence_ranges import SequenceRanges
from pairbus.syphon.session_order import (
    PAGE_SIZE,
    GapsUnknown,
    PeekedMessage,
    SessionOrder,
    lowest_number,
)

pytestmark = pytest.mark.rule("Y10")
Sessions = dict[int, str | None]


class PeekedQueue:
    """A queue with messages of sessions, by their numbers."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.peeks: list[tuple[int, int]] = []
        self.billed = 0
        self.fails = False

    def peek(self, first: int, count: int) -> list[PeekedMessage]:
        if self.fails:
            raise GapsUnknown
        self.peeks.append((first, count))
        numbers = sorted(n for n in self.sessions if n >= first)[:count]
        self.billed += max(1, len(numbers))
        return [PeekedMessage(n, self.sessions[n]) for n in numbers]

    def order(self, unordered: SequenceRanges | None = None, **options: int) -> SessionOrder:
        return SessionOrder(self.peek, unordered or SequenceRanges(), **options)

    def admitted(self, order: SessionOrder, *numbers: int) -> list[int]:
        """Receive messages, and return those that may be sent."""
        admitted = [n for n in numbers if order.admits(n, self.sessions[n])]
        order.finish()
        return admitted


def queue(numbers: range, session: Callable[[int], str | None] = lambda n: "s") -> PeekedQueue:
    return PeekedQueue({n: session(n) for n in numbers})


def test_queue_without_sessions_is_not_peeked():
    backlog = queue(range(1, 1000), lambda n: None)

    assert len(backlog.admitted(backlog.order(), *range(501, 1000))) == 499
    assert backlog.peeks == []


def test_one_message_is_peeked_when_nothing_is_before_the_received_ones():
    backlog = queue(range(5001, 9000))

    assert len(backlog.admitted(backlog.order(), *range(5001, 9000))) == 3999
    assert (backlog.peeks, backlog.billed) == ([(1, 1)], 1)


def test_messages_behind_a_locked_one_of_their_session_are_held():
    backlog = queue(range(1, 9), lambda n: "ab"[n % 2])
    del backlog.sessions[6]

    assert backlog.admitted(backlog.order(), 1, 3, 4, 5, 7, 8) == [1, 3, 5, 7]
    assert backlog.peeks == [(2, 1), (6, 1)]


def test_session_whose_locked_message_was_completed_goes_on():
    backlog = queue(range(1, 5))
    assert backlog.admitted(backlog.order(), 2, 3) == []

    del backlog.sessions[1]

    assert backlog.admitted(backlog.order(), 2, 3, 4) == [2, 3, 4]


def test_locked_messages_without_sessions_are_peeked_once():
    backlog = queue(range(1, 302), lambda n: "s" if n == 301 else None)
    unordered = SequenceRanges()

    assert backlog.admitted(backlog.order(unordered), 301) == [301]
    assert backlog.billed == 300
    assert backlog.peeks[:2] == [(1, 1), (2, PAGE_SIZE)]
    assert backlog.admitted(backlog.order(unordered), 301) == [301]
    assert backlog.billed == 300


def test_messages_without_sessions_that_were_received_before_are_not_peeked():
    backlog = queue(range(1, 302), lambda n: "s" if n == 301 else None)
    unordered = SequenceRanges()

    assert len(backlog.admitted(backlog.order(unordered), *range(1, 301))) == 300
    assert backlog.admitted(backlog.order(unordered), 301) == [301]
    assert backlog.peeks == []


def test_all_sessions_are_held_when_there_is_more_to_peek_than_allowed():
    backlog = queue(range(1, 50), lambda n: f"locked {n}" if n < 40 else "s")

    assert backlog.admitted(backlog.order(max_peeked=20), 40, 41) == []
    assert backlog.billed == 20
    assert backlog.admitted(backlog.order(max_peeked=50), 40, 41) == [40, 41]


def test_all_sessions_are_held_when_the_queue_cannot_be_peeked():
    backlog = queue(range(1, 4), lambda n: "s" if n == 3 else None)
    backlog.fails = True

    assert backlog.admitted(backlog.order(), 2, 3) == [2]


def test_message_that_arrives_late_is_held_with_its_session():
    backlog = queue(range(1, 6))
    order = backlog.order()

    assert not order.admits(3, "s")
    assert not order.admits(2, "s")  # its lock expired meanwhile
    assert not order.admits(4, "s")


def test_queue_that_was_created_again_is_not_mistaken_for_the_old_one():
    unordered = SequenceRanges()
    unordered.add(1, 100)
    backlog = queue(range(1, 4))

    assert backlog.admitted(backlog.order(unordered), 2, 3) == []
    assert backlog.admitted(backlog.order(unordered), 2, 3) == []  # the first one is locked
    del backlog.sessions[1]
    assert backlog.admitted(backlog.order(unordered), 2, 3) == [2, 3]


def test_partition_of_a_queue_is_checked_by_itself():
    second = 1 << 48
    backlog = PeekedQueue({5: "a", second + 7: "b", second + 8: "b"})

    assert lowest_number(second + 7) == second + 1
    assert backlog.admitted(backlog.order(), second + 7, 5, second + 8) == [
        second + 7,
        5,
        second + 8,
    ]


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9))), st.integers(1, 60))
def test_ranges_are_a_set_of_numbers(additions: list[tuple[int, int]], last: int):
    ranges, numbers = SequenceRanges(), set[int]()
    for first, length in additions:
        ranges.add(first, first + length - 1)
        numbers.update(range(first, first + length))

    missing = [n for first, end in ranges.missing(1, last) for n in range(first, end + 1)]
    assert missing == [n for n in range(1, last + 1) if n not in numbers]
    assert all((n in ranges) == (n in numbers) for n in range(1, 70))


class Occupied:
    """Checks of one queue whose first available message is number 5, with a lock of 60 seconds."""

    def __init__(self, sessions: Sessions) -> None:
        self.queue = PeekedQueue(sessions)
        self.released = 0
        self._queues = OccupiedQueues(
            lambda _, first, count: self.queue.peek(first, count), self._release
        )

    def _release(self, queue: str) -> None:
        self.released += 1

    def at(self, now: float, session: str | None = "s") -> bool:
        return self._queues.is_occupied("q", 5, session, lock_s=60, now=now)


def test_queue_is_free_when_nothing_is_before_its_first_message():
    occupied = Occupied({5: "s"})

    assert not occupied.at(0)
    assert occupied.queue.billed == 1


def test_queue_whose_first_message_has_no_session_is_not_peeked():
    occupied = Occupied({3: "s", 5: None})

    assert not occupied.at(0, None)
    assert occupied.queue.peeks == []


def test_occupied_queue_is_peeked_less_and_less_often_until_it_is_free():
    occupied = Occupied({1: None, 2: "other", 3: "s", 5: "s"})

    peeked_at = []
    for tenth in range(300):
        billed = occupied.queue.billed
        assert occupied.at(tenth / 10)
        if occupied.queue.billed > billed:
            peeked_at.append(tenth / 10)
    assert peeked_at == [0, 1, 3, 7, 15, 25]
    assert occupied.released == len(peeked_at) - 1
    assert occupied.queue.billed == 4 + len(peeked_at) - 1  # the first check saw four messages

    del occupied.queue.sessions[2], occupied.queue.sessions[3]
    assert not occupied.at(30 + MAX_CHECK_S)


def test_queue_that_is_occupied_for_longer_than_a_lock_is_read_all_the_same():
    occupied = Occupied({3: "s", 5: "s"})

    assert all(occupied.at(second) for second in range(60))
    assert not occupied.at(66)
    assert occupied.at(67)


def test_queue_that_cannot_be_peeked_is_left_to_the_task():
    occupied = Occupied({3: "s", 5: "s"})
    occupied.queue.fails = True

    assert not occupied.at(0)
