"""Sizes of micro-batches, and pauses between them."""

from copy import copy

import pytest

from pairbus.syphon.pacing import (
    BLOCKED_READ_S,
    FIRST_RATE,
    MAX_BATCH_S,
    MAX_HALVINGS,
    MIN_BATCH,
    BlockedReadBackoff,
    Pacer,
    next_halvings,
)


def test_without_a_rate_limit_micro_batches_have_the_full_size_and_no_pause():
    pacer = Pacer(50_000, None)

    assert pacer.size(0.0, rate=0.0) == 50_000
    assert pacer.wait_s(0.0) == 0.0


def test_slow_primary_gets_micro_batches_that_end_before_their_locks():
    pacer = Pacer(50_000, None)

    assert pacer.size(0.0, rate=100.0) == 100 * MAX_BATCH_S
    assert pacer.size(0.0, rate=0.5) == MIN_BATCH


@pytest.mark.rule("Y13")
def test_short_locks_get_micro_batches_that_end_long_before_they_expire():
    pacer = Pacer(50_000, None)

    assert pacer.size(0.0, rate=300.0, lock_s=11) == 300 * 4
    assert pacer.size(0.0, rate=0.0, lock_s=11) == FIRST_RATE * 4
    assert pacer.size(0.0, rate=0.5, lock_s=11) == MIN_BATCH
    assert pacer.size(0.0, rate=0.5, lock_s=11, left=True) == MIN_BATCH / 5
    assert pacer.size(0.0, rate=0.0, lock_s=300) == 50_000
    assert pacer.size(0.0, rate=0.0, lock_s=59.9) == 50_000


def test_rate_limit_allows_the_messages_of_one_second_and_then_pauses():
    pacer = Pacer(50_000, 20.0)

    assert pacer.size(10.0, rate=0.0) == 20
    assert pacer.wait_s(10.0) == pytest.approx(1.0)
    assert pacer.wait_s(10.5) == pytest.approx(0.5)
    assert pacer.wait_s(11.5) == 0.0


def test_rate_limit_below_one_message_a_second_pauses_for_longer():
    pacer = Pacer(50_000, 0.5)

    assert pacer.size(0.0, rate=0.0) == 1
    assert pacer.wait_s(0.0) == pytest.approx(2.0)


def test_halving_does_not_enlarge_small_micro_batches():
    assert Pacer(20, None).size(0.0, 0.0, MAX_HALVINGS) == 20


def test_number_of_halvings_is_limited():
    assert next_halvings(MAX_HALVINGS, moved=True, failed=True) == MAX_HALVINGS


def test_blocked_queues_are_read_at_first_and_after_progress_and_after_a_wait():
    backoff = BlockedReadBackoff()

    assert backoff.is_due(0.0, moved=7)
    assert not backoff.is_due(1.0, moved=7)
    assert backoff.is_due(2.0, moved=8)
    assert not backoff.is_due(3.0, moved=8)
    assert not backoff.is_due(2.0 + BLOCKED_READ_S - 0.1, moved=8)
    assert backoff.is_due(2.0 + BLOCKED_READ_S, moved=8)


def test_blocked_queues_are_read_less_often_while_there_is_no_progress():
    backoff, now, waits = BlockedReadBackoff(), 0.0, []
    assert backoff.is_due(now, moved=0)
    for _ in range(8):
        wait = next(s for s in range(1, 10_000) if copy(backoff).is_due(now + s, moved=0))
        now += wait
        assert backoff.is_due(now, moved=0)
        waits.append(wait)

    assert waits == [30, 60, 120, 240, 480, 900, 900, 900]
    assert backoff.is_due(now + 1, moved=1)
    assert backoff.is_due(now + 1 + BLOCKED_READ_S, moved=1)
