"""The health of a syphon: each way to make no progress."""

from collections import Counter

import pytest

from pairbus.spark.outcome import Outcome
from pairbus.syphon.reader_status import ReaderReporter, ReaderStatus
from pairbus.syphon.status import MAX_LOCK_S, STARTUP_S, combine, find_problem
from pairbus.syphon.writer_status import WriterStatus

pytestmark = pytest.mark.rule("Y8")
START, LIMIT_S = 1000.0, 120.0


def problem(now: float, reader: ReaderStatus, writer: WriterStatus | None = None) -> str | None:
    return find_problem(
        reader,
        WriterStatus() if writer is None else writer,
        started_at=START,
        now=now,
        stuck_after_s=LIMIT_S,
    )


def failing(at: float, *, progress_at: float = 0.0) -> WriterStatus:
    writer = WriterStatus(progress_at=progress_at)
    writer.add([Outcome(left=Counter(a=1), errors={"a": "down"})], now=at)
    return writer


def test_empty_backlog_stays_healthy():
    reader = ReaderStatus().update(START + 10_000, waiting=False)

    assert problem(START + 10_000, reader) is None


def test_backlog_without_progress_is_a_problem_without_a_known_reason():
    reader = ReaderStatus().update(START + 50, waiting=True).update(START + 80, waiting=True)

    assert problem(START + 50 + LIMIT_S, reader) is None
    assert problem(START + 50 + LIMIT_S + 1, reader) == (
        "the primary accepted no message for 121 s (the reason is not known)"
    )


def test_progress_makes_the_syphon_healthy_again():
    reader = ReaderStatus().update(START, waiting=True)
    now = START + LIMIT_S + 50
    assert problem(now, reader) is not None

    assert problem(now, reader, WriterStatus(progress_at=now - 1)) is None


def test_failing_destination_is_a_problem_while_its_messages_are_locked():
    reader = ReaderStatus().update(START + 200, waiting=False)
    writer = failing(START + 100)

    assert problem(START + 100 + LIMIT_S, reader, writer) is None
    assert "(a: down)" in (problem(START + 101 + LIMIT_S, reader, writer) or "")


def test_failure_after_a_long_idle_time_is_not_a_problem_at_once():
    writer = failing(START + 5000, progress_at=START + 1)

    assert problem(START + 5001, ReaderStatus(reported_at=START + 5001), writer) is None


def test_locks_of_another_receiver_are_the_reason_unless_a_destination_fails():
    reader = ReaderStatus().update(START, waiting=True, remaining="5 messages are left")
    now = START + LIMIT_S + 1

    assert problem(now, reader) == (
        "the primary accepted no message for 121 s (5 messages are left)"
    )
    assert "5 messages" not in (problem(now, reader, failing(START)) or "")


def test_drained_backlog_is_healthy_after_a_destination_failed():
    reader = ReaderStatus().update(START, waiting=False, drained=True)

    assert problem(START + LIMIT_S + 1, reader, failing(START)) is None


def test_repeated_receives_of_the_same_messages_are_no_progress():
    writer, reader = failing(START), ReaderStatus()
    for second in range(0, 130, 10):
        reader = reader.update(START + second, waiting=second % 60 == 0)

    assert problem(START + 130, reader, writer) is not None


def test_failure_is_forgotten_when_its_messages_are_gone():
    writer, reader = failing(START), ReaderStatus().update(START, waiting=False)

    now = START + MAX_LOCK_S + 1
    reader = reader.update(now, waiting=False)

    assert problem(now - 2, reader, writer) is not None
    assert problem(now, reader, writer) is None


def test_unreadable_backlog_is_a_problem_until_it_can_be_read():
    reader = ReaderStatus().update(START + 10, waiting=False, error="refused")
    reader = reader.update(START + 100, waiting=False, error="timed out")

    assert problem(START + 10 + LIMIT_S, reader) is None
    now = START + 11 + LIMIT_S
    assert problem(now, reader) == "the backlog cannot be read: timed out"
    assert problem(now, reader.update(now, waiting=False)) is None


def test_reader_that_stops_reporting_is_a_problem():
    reader = ReaderStatus().update(START + 500, waiting=False)
    expected = "the backlog reader stopped reporting"

    assert problem(START + 500 + LIMIT_S + STARTUP_S, reader) is None
    assert problem(START + 501 + LIMIT_S + STARTUP_S, reader) == expected
    assert problem(START + 1 + LIMIT_S + STARTUP_S, ReaderStatus()) == expected


def test_pauses_of_the_rate_limit_do_not_count():
    reader = ReaderStatus().update(START, waiting=True, pause_s=1000)

    assert problem(START + 1000 + LIMIT_S, reader) is None
    assert problem(START + 1001 + LIMIT_S, reader) is not None
    idle = ReaderStatus().update(START, waiting=False, pause_s=1000)
    assert problem(START + 1000 + LIMIT_S + STARTUP_S, idle) is None


def test_status_combines_those_of_reader_and_writer():
    reader = ReaderStatus().update(START, waiting=False, error="refused", drained=True)
    writer = failing(START)
    writer.add([Outcome(moved=Counter(b=2), bytes=20)], now=START + 1)

    status = combine(reader, writer, running=True, failure=None, problem="a problem")

    assert (status.running, status.batches, status.bytes) == (True, 2, 20)
    assert (status.moved, status.errors) == (Counter(b=2), {"a": "down"})
    assert (status.healthy, status.problem, status.unreadable) == (False, "a problem", "refused")
    assert status.drained
    failed = combine(reader, writer, running=False, failure="out of memory", problem=None)
    assert (failed.failure, failed.drained) == ("out of memory", False)


def test_reason_why_messages_wait_is_in_the_status_while_it_runs():
    reader = ReaderStatus().update(START, waiting=True, remaining="2 are locked")

    running = combine(reader, WriterStatus(), running=True, failure=None, problem=None)
    ended = combine(reader, WriterStatus(), running=False, failure=None, problem=None)

    assert (running.wait_reason, ended.wait_reason) == ("2 are locked", None)


@pytest.mark.rule("Y12")
def test_paused_syphon_is_healthy_and_has_its_whole_time_after_the_pause():
    reader = ReaderStatus().update(START, waiting=True)
    resumed_at = START + 10_000
    paused = reader.update(resumed_at, waiting=False, paused=True)
    assert problem(resumed_at, paused, failing(START)) is None
    assert combine(paused, WriterStatus(), running=True, failure=None, problem=None).paused

    resumed = paused.update(resumed_at + 1, waiting=True)

    assert not resumed.paused
    assert problem(resumed_at + LIMIT_S, resumed, failing(START)) is None
    assert problem(resumed_at + LIMIT_S + 2, resumed, failing(START)) is not None


@pytest.mark.rule("Y12")
def test_paused_reader_that_stops_reporting_is_a_problem():
    paused = ReaderStatus().update(START, waiting=False, paused=True)

    assert problem(START + LIMIT_S + STARTUP_S + 1, paused) == (
        "the backlog reader stopped reporting"
    )


def test_pause_is_written_at_once_and_its_renewal_once_a_second() -> None:
    clock, written = iter([START, START, START + 0.2, START + 0.4, START + 1.2]), []
    reporter = ReaderReporter(written.append, lambda: next(clock))
    reporter.report(waiting=True)
    for pause_s in (10, 10, 10, 10):
        reporter.report(waiting=True, pause_s=pause_s)
    assert [status.paused_until for status in written] == [0, START + 10, START + 11.2]


def test_throttled_receives_are_read_only_for_a_report_that_is_written() -> None:
    clock, written = iter([START, START + 0.2, START + 0.4, START + 1.2]), []
    counts = iter([3, 5])
    reporter = ReaderReporter(written.append, lambda: next(clock), lambda: next(counts))
    for _ in range(4):
        reporter.report(waiting=True)
    assert [status.throttled for status in written] == [3, 5]
