"""Totals of a syphon, and destinations that fail."""

from collections import Counter
from itertools import pairwise

import pytest

from pairbus.spark.outcome import Outcome
from pairbus.syphon.pacing import MAX_HALVINGS, MIN_RETRY_BATCH, Pacer
from pairbus.syphon.writer_status import BLOCK_S, MAX_BLOCK_S, WriterStatus


def moved(**counts: int) -> Outcome:
    return Outcome(moved=Counter(counts), bytes=10 * sum(counts.values()))


def failed(path: str) -> Outcome:
    return Outcome(left=Counter({path: 1}), errors={path: "down"})


def test_totals_add_up_over_tasks_and_micro_batches():
    status = WriterStatus()

    status.add([moved(a=2), moved(a=1, b=5)], now=100.0)
    status.add([moved(b=1)], now=102.0)

    assert status.moved == Counter(a=3, b=6)
    assert (status.batches, status.bytes) == (2, 90)
    assert status.progress_at == 102.0
    assert status.rate == pytest.approx(0.5)


def test_failing_destination_is_blocked_for_longer_each_time_up_to_a_maximum():
    status, block_times = WriterStatus(), []

    for number in range(8):
        status.add([failed("a")], now=float(number * 100))
        block_times.append(status.blocked_until["a"] - number * 100)

    assert block_times[:3] == [BLOCK_S, 2 * BLOCK_S, 4 * BLOCK_S]
    assert block_times[-1] == MAX_BLOCK_S
    assert status.blocked(700.0 + MAX_BLOCK_S - 0.1) == {"a"}
    assert status.blocked(700.0 + MAX_BLOCK_S) == frozenset()


def test_destination_that_accepts_messages_again_is_not_blocked():
    status = WriterStatus()
    status.add([failed("a"), failed("b")], now=1.0)

    status.add([moved(a=1)], now=5.0)

    assert status.errors == {"b": "down"}
    assert status.blocked(5.0) == frozenset()
    assert status.failures == {"b": 1}


def test_destination_that_failed_in_one_of_two_tasks_has_failed():
    status = WriterStatus()

    status.add([moved(a=1), failed("a")], now=1.0)

    assert status.blocked(1.5) == {"a"}


def test_micro_batch_that_removed_nothing_is_no_progress():
    status = WriterStatus()
    status.add([moved(a=1)], now=1.0)

    status.add([failed("a")], now=9.0)

    assert status.progress_at == 1.0


def test_dead_letter_is_progress_and_message_that_is_sent_again_is_not():
    status = WriterStatus()
    status.add([Outcome(dead_lettered=Counter(a=1))], now=5.0)
    assert status.progress_at == 5.0

    status.add([Outcome(moved=Counter(a=3), unsettled=3)], now=9.0)

    assert status.progress_at == 5.0
    assert status.unsettled == 3


def test_failing_time_begins_with_the_first_error_and_ends_with_the_last():
    status = WriterStatus()
    status.add([failed("a")], now=1.0)
    status.add([failed("b")], now=2.0)
    assert status.failing_since == 1.0

    status.add([moved(a=1)], now=3.0)
    assert status.failing_since == 1.0
    status.add([moved(b=1)], now=4.0)
    assert status.failing_since is None


def test_destination_that_accepts_nothing_is_retried_with_small_batches_that_double():
    pacer, status, sizes = Pacer(200_000, None), WriterStatus(), []
    status.add([failed("a")], now=0.0)
    assert status.batch_halvings(0.5) == 0, "a blocked destination must not slow down others"
    assert pacer.size(0.0, 0.0, status.batch_halvings(BLOCK_S)) == MIN_RETRY_BATCH

    for second in range(2, 15):
        status.add([moved(a=1)], now=float(second))
        sizes.append(pacer.size(0.0, 0.0, status.batch_halvings(float(second))))

    assert sizes[0] == 200_000 >> (MAX_HALVINGS - 1)
    assert all(after in (2 * before, 2 * before + 1) for before, after in pairwise(sizes[:10]))
    assert sizes[-1] == 200_000
    assert status.halvings == {}


def test_destination_that_accepts_a_part_gets_half_as_many_each_time():
    status, halvings = WriterStatus(), []

    for second in range(3):
        status.add([moved(a=9), failed("a")], now=second * 100.0)
        halvings.append(status.batch_halvings(second * 100.0 + MAX_BLOCK_S))

    assert halvings == [1, 2, 3]


def test_blocked_destination_does_not_slow_down_others_and_keeps_its_small_batches():
    status = WriterStatus()
    status.add([failed("down"), moved(up=1)], now=100.0)

    status.add([moved(up=1)], now=100.5)

    assert status.batch_halvings(100.5) == 0
    assert status.batch_halvings(100.0 + BLOCK_S) == MAX_HALVINGS


def test_destination_without_further_messages_is_forgotten():
    status = WriterStatus()
    status.add([failed("gone")], now=0.0)

    for second in range(MAX_HALVINGS):
        status.add([moved(up=1)], now=10.0 + second)

    assert status.batch_halvings(100.0) == 0


def test_block_that_ends_during_a_micro_batch_is_no_success():
    """A destination that is blocked when a micro-batch is planned gets none of its messages."""
    status = WriterStatus()
    status.add([failed("down"), moved(up=1)], now=100.0)

    status.add([moved(up=1)], now=100.0 + 2 * BLOCK_S, started_at=100.0 + BLOCK_S / 2)

    assert status.halvings == {"down": MAX_HALVINGS}
    status.add([moved(up=1)], now=110.0, started_at=109.0)
    assert status.halvings == {"down": MAX_HALVINGS - 1}
