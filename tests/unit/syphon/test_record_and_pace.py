"""What a syphon remembers, and how it sizes its micro-batches."""

from collections import Counter
from copy import copy
from itertools import pairwise
from pathlib import Path

import pytest

from pairbus.spark.forwarder import Outcome
from pairbus.syphon.pacing import (
    FEWEST,
    HALVINGS,
    LEAST,
    LOCK_SHARE_S,
    LOOK_PAST_S,
    LookPast,
    Pace,
    restraint,
)
from pairbus.syphon.progress import MAX_PAUSE_S, PAUSE_S, WriterStatus, WriterStatusFile


def moved(**counts: int) -> Outcome:
    return Outcome(moved=Counter(counts), bytes=10 * sum(counts.values()))


def failed(path: str, left: int = 1) -> Outcome:
    return Outcome(left=Counter({path: left}), errors={path: "down"})


def test_totals_add_up_over_tasks_and_micro_batches():
    record = WriterStatus()

    record.note([moved(a=2), moved(a=1, b=5)], now=100.0)
    record.note([moved(b=1)], now=102.0)

    assert record.moved == Counter(a=3, b=6)
    assert (record.batches, record.bytes) == (2, 90)
    assert record.progress_at == 102.0
    assert record.rate == pytest.approx(0.5)


def test_a_destination_that_failed_is_left_alone_for_longer_each_time_and_not_for_ever():
    record, pauses = WriterStatus(), []

    for number in range(8):
        record.note([failed("a")], now=float(number * 100))
        pauses.append(record.blocked_until["a"] - number * 100)

    assert pauses[:3] == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S]
    assert pauses[-1] == MAX_PAUSE_S
    assert record.blocked(700.0 + MAX_PAUSE_S - 0.1) == {"a"}
    assert record.blocked(700.0 + MAX_PAUSE_S) == frozenset()


def test_a_destination_that_takes_messages_again_is_forgiven():
    record = WriterStatus()
    record.note([failed("a"), failed("b")], now=1.0)

    record.note([moved(a=1)], now=5.0)

    assert record.errors == {"b": "down"}
    assert record.blocked(5.0) == frozenset()
    assert record.failures == {"b": 1}


def test_a_destination_that_failed_in_one_task_and_not_in_another_has_failed():
    record = WriterStatus()

    record.note([moved(a=1), failed("a")], now=1.0)

    assert record.blocked(1.5) == {"a"}


def test_a_micro_batch_in_which_nothing_was_confirmed_is_no_progress():
    record = WriterStatus()
    record.note([moved(a=1)], now=1.0)

    record.note([failed("a")], now=9.0)

    assert record.progress_at == 1.0


def test_the_file_has_what_was_noted(tmp_path: Path):
    file = WriterStatusFile(tmp_path / "record.json", now=lambda: 7.0)
    assert file.read() == WriterStatus()

    file.note([moved(a=2), failed("b", left=3)])
    file.note([moved(a=1)])

    record = WriterStatusFile(tmp_path / "record.json").read()
    assert record.moved == Counter(a=3)
    assert record.errors == {"b": "down"}
    assert record.batches == 2
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_without_a_cap_nothing_waits_and_batches_are_as_large_as_they_may_be():
    pace = Pace(50_000, None)

    assert pace.size(0.0, rate=0.0) == 50_000
    assert pace.wait_s(0.0) == 0.0


def test_a_slow_primary_gets_batches_that_fit_into_the_locks():
    pace = Pace(50_000, None)

    assert pace.size(0.0, rate=100.0) == 100 * LOCK_SHARE_S
    assert pace.size(0.0, rate=0.5) == LEAST


def test_a_cap_lets_a_second_s_worth_through_and_then_waits():
    pace = Pace(50_000, 20.0)

    assert pace.size(10.0, rate=0.0) == 20
    assert pace.wait_s(10.0) == pytest.approx(1.0)
    assert pace.wait_s(10.5) == pytest.approx(0.5)
    assert pace.wait_s(11.5) == 0.0


def test_a_cap_below_one_a_second_waits_longer():
    pace = Pace(50_000, 0.5)

    assert pace.size(0.0, rate=0.0) == 1
    assert pace.wait_s(0.0) == pytest.approx(2.0)


def test_a_destination_that_takes_nothing_is_tried_with_the_fewest_and_then_with_twice_as_many():
    pace, record, sizes = Pace(100_000, None), WriterStatus(), []
    record.note([failed("a")], now=0.0)
    assert record.halvings(0.5) == 0, "it is left alone, and nobody else need go slow"
    assert pace.size(0.0, 0.0, record.halvings(PAUSE_S)) == FEWEST

    for second in range(2, 15):
        record.note([moved(a=1)], now=float(second))
        sizes.append(pace.size(0.0, 0.0, record.halvings(float(second))))

    assert sizes[0] == 100_000 >> (HALVINGS - 1)
    assert all(after in (2 * before, 2 * before + 1) for before, after in pairwise(sizes[:10]))
    assert sizes[-1] == 100_000
    assert record.restraint == {}


def test_a_destination_that_takes_some_and_then_no_more_gets_half_each_time():
    record, levels = WriterStatus(), []

    for second in range(3):
        record.note([moved(a=9), failed("a")], now=second * 100.0)
        levels.append(record.halvings(second * 100.0 + MAX_PAUSE_S))

    assert levels == [1, 2, 3]
    assert restraint(HALVINGS, moved=True, failed=True) == HALVINGS


def test_those_that_are_left_alone_do_not_slow_the_others_and_are_not_forgiven_by_them():
    record = WriterStatus()
    record.note([failed("down"), moved(up=1)], now=100.0)

    record.note([moved(up=1)], now=100.5)

    assert record.halvings(100.5) == 0
    assert record.halvings(100.0 + PAUSE_S) == HALVINGS


def test_a_destination_that_nothing_comes_for_any_more_is_forgotten():
    record = WriterStatus()
    record.note([failed("gone")], now=0.0)

    for second in range(HALVINGS):
        record.note([moved(up=1)], now=10.0 + second)

    assert record.halvings(100.0) == 0


def test_small_micro_batches_stay_small():
    assert Pace(20, None).size(0.0, 0.0, HALVINGS) == 20


def test_one_looks_past_what_must_wait_at_first_and_when_it_was_worth_it_and_now_and_then():
    past = LookPast()

    assert past.due(0.0, moved=7)
    assert not past.due(1.0, moved=7)
    assert past.due(2.0, moved=8)
    assert not past.due(3.0, moved=8)
    assert not past.due(2.0 + LOOK_PAST_S - 0.1, moved=8)
    assert past.due(2.0 + LOOK_PAST_S, moved=8)


def test_looks_past_become_rarer_while_nothing_is_moved():
    past, at, waits = LookPast(), 0.0, []
    assert past.due(at, moved=0)
    for _ in range(8):
        wait = next(s for s in range(1, 10_000) if LookPast.due(copy(past), at + s, moved=0))
        at += wait
        assert past.due(at, moved=0)
        waits.append(wait)

    assert waits == [30, 60, 120, 240, 480, 900, 900, 900]
    assert past.due(at + 1, moved=1)
    assert past.due(at + 1 + LOOK_PAST_S, moved=1)


def test_what_was_dead_lettered_is_progress_and_what_comes_a_second_time_is_not():
    record = WriterStatus()
    record.note([Outcome(dead_lettered=Counter(a=1))], now=5.0)
    assert record.progress_at == 5.0

    record.note([Outcome(moved=Counter(a=3), unsettled=3)], now=9.0)

    assert record.progress_at == 5.0
    assert record.unsettled == 3


def test_trouble_begins_with_the_first_error_and_ends_with_the_last():
    record = WriterStatus()
    record.note([failed("a")], now=1.0)
    record.note([failed("b")], now=2.0)
    assert record.trouble_since == 1.0

    record.note([moved(a=1)], now=3.0)
    assert record.trouble_since == 1.0
    record.note([moved(b=1)], now=4.0)
    assert record.trouble_since is None
