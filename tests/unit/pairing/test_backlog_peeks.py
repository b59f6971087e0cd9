"""The peeks of a draining path: how many credits they cost, and what they show."""

import pytest

from pairbus.pairing.backlog_peeks import (
    SMALL,
    YOUNG_FRACTION,
    BacklogPeek,
    BacklogPeeks,
    PeekResult,
    PeekRound,
    PeekStart,
)

HOLD_S = 5.0
OLD_S = 3600.0
YOUNG_S = HOLD_S * YOUNG_FRACTION - 0.1
QUEUES = ("a", "b", "c")
BEFORE = PeekStart(held=False, marked=False, idle=True, sends=0)
HELD = PeekStart(held=True, marked=True, idle=True, sends=0)

Contents = dict[str, list[int]]


def run(peek_round: PeekRound, contents: Contents, age_s: float = OLD_S) -> int:
    """Make the peeks of a round. Return their number, which is that of the credits."""
    count = 0
    while (request := peek_round.next_peek()) is not None:
        count += 1
        numbers = [n for n in contents.get(request.queue, []) if n >= request.from_number]
        if numbers:
            peek_round.add(min(numbers), age_s)
        else:
            peek_round.add()
    return count


def is_empty(peek_round: PeekRound) -> bool:
    return all(result.first is None for result in peek_round.results)


def is_small(peek_round: PeekRound) -> bool:
    return all(result.is_small(HOLD_S) for result in peek_round.results)


class Rounds:
    """The rounds of one path."""

    def __init__(self, queues: tuple[str, ...] = QUEUES) -> None:
        self.peeks = BacklogPeeks(queues, HOLD_S)
        self.count = 0

    def round(self, start: PeekStart, contents: Contents, age_s: float = OLD_S) -> PeekRound:
        peek_round = self.peeks.begin_round(start)
        self.credits = run(peek_round, contents, age_s)
        self.peeks.end_round(peek_round)
        return peek_round


@pytest.mark.rule("S12")
@pytest.mark.parametrize("queues", [3, 100])
def test_round_at_a_large_backlog_costs_two_credits(queues: int) -> None:
    names = tuple(map(str, range(queues)))
    rounds = Rounds(names)
    contents = {names[-1]: list(range(100, 200))}

    assert not is_small(rounds.round(BEFORE, contents))
    assert rounds.credits == queues + 1  # it finds the queue that is not small
    for _ in range(3):
        assert not is_small(rounds.round(BEFORE, contents))
        assert rounds.credits == 2


@pytest.mark.rule("S12")
@pytest.mark.parametrize(
    ("count", "age_s", "small"),
    [
        (0, OLD_S, True),
        (1, OLD_S, True),
        (SMALL, OLD_S, True),
        (SMALL + 1, OLD_S, False),
        (SMALL + 1, HOLD_S * YOUNG_FRACTION, False),
        (SMALL + 1, YOUNG_S, True),
        (SMALL + 1, -5.0, True),  # the clock of this machine is behind
    ],
)
def test_short_or_young_backlog_is_small(count: int, age_s: float, small: bool) -> None:
    contents = {"b": list(range(7, 7 + count))}

    assert is_small(Rounds().round(BEFORE, contents, age_s)) is small


@pytest.mark.rule("S12")
def test_empty_backlog_costs_one_credit_for_each_queue() -> None:
    rounds = Rounds()
    # A mark needs two peeks in a row that show no message.
    for start, peeks in ((BEFORE, 1), (HELD, 2), (HELD, 1)):
        peek_round = rounds.round(start, {})
        assert is_empty(peek_round)
        assert len(peek_round.results) == len(QUEUES)
        assert rounds.credits == peeks * len(QUEUES)


@pytest.mark.rule("S12")
@pytest.mark.parametrize("count", [1, 2, 5, 17])
@pytest.mark.parametrize(
    "missed",
    [{n} for n in range(10)] + [{n, m} for n in range(8) for m in range(n + 2, 10)],
    ids=str,
)
def test_peeks_that_miss_messages_set_no_mark_below_them(count: int, missed: set[int]) -> None:
    """A namespace may answer a peek from a copy that is behind, but no two in a row."""
    peeks = BacklogPeeks(("a",), HOLD_S)
    contents = list(range(7, 7 + count))
    peek_round = peeks.begin_round(HELD)
    number = 0
    while (request := peek_round.next_peek()) is not None:
        numbers = [n for n in contents if n >= request.from_number]
        peek_round.add(min(numbers) if numbers and number not in missed else None)
        number += 1
    peeks.end_round(peek_round)

    for first in contents:
        second = peeks.begin_round(HELD)
        run(second, {"a": list(range(first, 7 + count))})
        peeks.end_round(second)
        assert not is_empty(second)


@pytest.mark.rule("S12")
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 17, 64, 1000])
def test_messages_that_were_stored_after_the_hold_began_do_not_count(count: int) -> None:
    rounds, last = Rounds(), 6 + count
    assert not is_empty(rounds.round(HELD, {"b": list(range(7, last + 1))}))
    assert rounds.credits <= 2 * len(QUEUES) + count.bit_length() + 3
    # Others go on to store messages, and the syphon has moved those from before the hold.
    for first in range(7, last + 1):
        assert not is_empty(rounds.round(HELD, {"b": list(range(first, last + 100))}))
    assert is_empty(rounds.round(HELD, {"b": list(range(last + 1 + count // 2, last + 3000))}))


@pytest.mark.rule("S12")
def test_search_starts_with_the_length_of_the_last_queue() -> None:
    rounds = Rounds(tuple(map(str, range(10))))

    rounds.round(HELD, {str(queue): list(range(7, 37)) for queue in range(10)})

    assert rounds.credits <= 10 * 6 + 5


@pytest.mark.rule("S12")
def test_locked_message_from_before_the_hold_counts() -> None:
    rounds = Rounds()
    rounds.round(HELD, {"b": [7, 8]})

    assert not is_empty(rounds.round(HELD, {"b": [7, 50, 51]}))
    assert not is_empty(rounds.round(HELD, {"b": [8, 50, 51]}))
    assert is_empty(rounds.round(HELD, {"b": [50, 51]}))


@pytest.mark.rule("S12")
def test_queue_that_was_empty_in_the_hold_stays_so() -> None:
    rounds = Rounds()
    assert is_empty(rounds.round(HELD, {}))

    assert is_empty(rounds.round(HELD, {"a": [1], "c": [20]}))


@pytest.mark.rule("S12")
@pytest.mark.parametrize(
    "start",
    [
        PeekStart(
            held=True, marked=True, idle=True, sends=1
        ),  # it was stored after the mark was set
        PeekStart(held=True, marked=True, idle=False, sends=0),
    ],
)
def test_message_of_the_path_within_the_hold_counts(start: PeekStart) -> None:
    rounds = Rounds()
    rounds.round(HELD, {"b": [7]})
    assert is_empty(rounds.round(HELD, {"b": [8]}))

    assert not is_empty(rounds.round(start, {"b": [8]}))


@pytest.mark.rule("S12")
@pytest.mark.parametrize("before", [[], [7]])
def test_message_in_flight_when_the_marks_were_set_counts(before: list[int]) -> None:
    rounds = Rounds()
    rounds.round(PeekStart(held=True, marked=True, idle=False, sends=1), {"b": before})

    late = PeekStart(held=True, marked=True, idle=True, sends=1)
    assert not is_empty(rounds.round(late, {"b": [8]}))
    assert not is_empty(rounds.round(late, {"b": [8]}))
    assert is_empty(rounds.round(late, {"b": [9]}))


@pytest.mark.rule("S12")
def test_without_marks_every_message_counts() -> None:
    rounds, start = Rounds(), PeekStart(held=True, marked=False, idle=True, sends=0)
    assert is_empty(rounds.round(start, {}))

    assert not is_empty(rounds.round(start, {"b": [8]}))
    assert not is_empty(rounds.round(start, {"b": [9]}))
    assert rounds.credits == 1


@pytest.mark.rule("S12")
def test_marks_of_one_hold_are_not_those_of_the_next() -> None:
    rounds = Rounds()
    rounds.round(HELD, {})
    rounds.round(BEFORE, {"b": [8]})

    assert not is_empty(rounds.round(HELD, {"b": [8]}))


@pytest.mark.rule("S12")
def test_round_in_a_hold_ends_at_a_message_that_counts() -> None:
    rounds = Rounds()
    contents = {name: [7] for name in QUEUES}
    rounds.round(HELD, contents)

    peek_round = rounds.round(HELD, contents)

    assert peek_round.results == [PeekResult(1, 7, OLD_S)]
    assert rounds.credits == 1


def test_round_starts_with_the_queue_at_which_the_last_one_ended() -> None:
    rounds = Rounds()
    rounds.round(BEFORE, {"b": list(range(100))})

    assert rounds.peeks.begin_round(BEFORE).next_peek() == BacklogPeek("b", 1)
