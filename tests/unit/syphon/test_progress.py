"""Progress of a drain and its time to go."""

import pytest

from pairbus.syphon.progress import WINDOW_S, DrainProgress, seconds_to_go

pytestmark = pytest.mark.rule("Y9")


def test_time_to_go_needs_a_count_and_a_rate():
    assert seconds_to_go(100, 50.0) == 2.0
    assert seconds_to_go(None, 50.0) is None
    assert seconds_to_go(100, 0.0) is None
    assert seconds_to_go(0, 0.0) == 0.0


def test_messages_that_still_arrive_take_time_too():
    assert seconds_to_go(100, 50.0, 25.0) == 4.0
    assert seconds_to_go(100, 50.0, 50.0) is None


def test_time_to_go_is_known_with_the_first_rate_and_count():
    progress = DrainProgress()
    progress.add(0.0, 0)
    progress.add_count(0.2, 0, 1000)
    assert progress.seconds_to_go is None
    progress.add(0.5, 50)
    assert progress.rate == 100.0
    assert progress.remaining == 950
    assert progress.seconds_to_go == 9.5


def test_start_of_spark_is_not_part_of_the_rate():
    progress = DrainProgress()
    for second in range(20):
        progress.add(second, 0)
    for second in range(20, 30):
        progress.add(second, 100 * (second - 19))
    assert progress.rate == pytest.approx(100)


def test_pauses_of_a_throttled_drain_hardly_change_the_time_to_go():
    progress = DrainProgress()
    progress.add_count(0.0, 0, 100_000)
    moved, times = 0, []
    for second in range(120):
        moved += 0 if second % 30 in (0, 1) and second else 400
        progress.add(second, moved)
        if second > 30:
            assert progress.seconds_to_go is not None
            left = (100_000 - moved) / (400 * 28 / 30)
            times.append(abs(progress.seconds_to_go - left) / left)
    assert max(times) < 0.1


def test_time_to_go_is_unknown_while_the_rest_cannot_be_moved():
    progress = DrainProgress()
    progress.add(0.0, 0)
    progress.add_count(0.0, 0, 10_500)
    for second in range(1, 11):
        progress.add(second, 1000 * second)
    assert progress.seconds_to_go == pytest.approx(0.5)

    for second in range(11, 16):
        progress.add(second, 10_000)
        assert progress.seconds_to_go is not None
    progress.add(16, 10_000)
    assert progress.seconds_to_go is None

    progress.add(17, 10_100)
    assert progress.seconds_to_go is not None
    progress.add(18, 10_500)
    assert progress.seconds_to_go == 0.0


def test_arrivals_follow_from_two_counts():
    progress = DrainProgress()
    for second in range(31):
        progress.add(second, 100 * second)
        if second % 5 == 0:
            progress.add_count(second, 100 * second, 10_000 - 70 * second)
    assert progress.arrivals == pytest.approx(30)
    assert progress.seconds_to_go == pytest.approx((10_000 - 70 * 30) / 70)


def test_remaining_and_total_are_of_the_same_moment():
    progress = DrainProgress()
    progress.add_count(0.0, 0, 1000)
    assert (progress.done, progress.remaining, progress.total) == (0, 1000, 1000)
    progress.add(5.0, 400)
    assert (progress.done, progress.remaining, progress.total) == (400, 600, 1000)
    progress.add(6.0, 390)  # a task was lost before its micro-batch ended
    assert (progress.done, progress.remaining, progress.total) == (400, 600, 1000)


def test_messages_of_the_micro_batch_in_progress_are_not_subtracted_twice():
    progress = DrainProgress()
    progress.add_count(0.0, 0, 1000)
    progress.add(1.0, 900)
    progress.add(2.0, 920)  # the micro-batch of the first 900 has ended, and another one begun
    progress.add_count(2.0, 900, 80)  # its first 20 messages are completed
    assert (progress.remaining, progress.total) == (80, 1000)
    progress.add(3.0, 950)
    assert (progress.remaining, progress.total) == (50, 1000)


def test_total_never_shrinks_before_the_backlog_is_empty():
    progress = DrainProgress()
    progress.add_count(0.0, 0, 1000)
    progress.add(1.0, 100)
    progress.add_count(2.0, 100, 500)  # others have removed messages
    assert progress.total == 1000
    progress.add_count(3.0, 100, 2000)
    assert progress.total == 2100
    progress.add(4.0, 2100)
    progress.add_count(4.0, 2100, 0)
    assert (progress.done, progress.total) == (0, 0)
    progress.add_count(5.0, 2100, 50)
    assert (progress.done, progress.total) == (0, 50)


def test_rate_is_that_of_the_last_seconds():
    progress = DrainProgress()
    for second in range(100):
        progress.add(second, 10 * min(second, 50))
    assert progress.rate == 0.0
    assert 99 - WINDOW_S > 50
