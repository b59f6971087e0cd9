"""The decision when to read messages again that a filter dropped."""

import pytest

from pairbus.syphon.filtered_reads import FIRST_WAIT_S, MAX_WAIT_S, FilteredReads

pytestmark = pytest.mark.rule("Y11")


def test_nothing_was_dropped_before_the_first_batch_and_after_progress():
    reads = FilteredReads()
    assert not reads.were_dropped(0)

    reads.planned(0.0, 0)

    assert reads.were_dropped(0)
    assert not reads.were_dropped(1)


def test_wait_doubles_up_to_the_maximum_and_starts_again_after_progress():
    reads, waits = FilteredReads(), []
    for _ in range(8):
        reads.planned(100.0, 5)
        waits.append(reads.wait_s(100.0))
    reads.planned(100.0, 6)

    assert waits[:3] == [FIRST_WAIT_S, 2 * FIRST_WAIT_S, 4 * FIRST_WAIT_S]
    assert waits[-1] == MAX_WAIT_S
    assert reads.wait_s(100.0) == FIRST_WAIT_S


def test_check_that_finds_nothing_extends_the_wait():
    reads = FilteredReads()
    reads.planned(0.0, 0)
    assert reads.wait_s(FIRST_WAIT_S) == 0

    reads.found_none(FIRST_WAIT_S)

    assert reads.wait_s(FIRST_WAIT_S) == 2 * FIRST_WAIT_S
