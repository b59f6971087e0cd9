"""Whether a syphon gets on: each way not to."""

from collections import Counter
from pathlib import Path

import pytest

from pairbus.spark.forwarder import Outcome
from pairbus.syphon.health import (
    BEAT_S,
    LOCKED_S,
    SILENT_S,
    ReaderStatus,
    ReaderStatusFile,
    problem_of,
)
from pairbus.syphon.progress import WriterStatus

pytestmark = pytest.mark.rule("Y8")
START, LIMIT_S = 1000.0, 120.0


def problem(now: float, sight: ReaderStatus, record: WriterStatus | None = None) -> str | None:
    return problem_of(
        WriterStatus() if record is None else record,
        sight,
        started_at=START,
        now=now,
        stuck_after_s=LIMIT_S,
    )


def failing(at: float, *, moved_at: float = 0.0) -> WriterStatus:
    record = WriterStatus(progress_at=moved_at)
    record.note([Outcome(left=Counter(a=1), errors={"a": "down"})], now=at)
    return record


def test_an_empty_backlog_is_healthy_for_ever():
    sight = ReaderStatus().after(START + 10_000, seen=False)

    assert problem(START + 10_000, sight) is None


def test_a_backlog_of_which_nothing_is_confirmed_is_not_though_nobody_knows_why():
    sight = ReaderStatus().after(START + 50, seen=True).after(START + 80, seen=True)

    assert problem(START + 50 + LIMIT_S, sight) is None
    said = problem(START + 50 + LIMIT_S + 1, sight)
    assert said == "nothing was confirmed for 121 s: no reason is known"


def test_what_is_confirmed_makes_it_healthy_again():
    sight = ReaderStatus().after(START, seen=True)
    now = START + LIMIT_S + 50
    assert problem(now, sight) is not None

    assert problem(now, sight, WriterStatus(progress_at=now - 1)) is None


def test_a_destination_that_fails_counts_though_its_messages_are_locked_and_not_seen():
    sight = ReaderStatus().after(START + 200, seen=False)
    record = failing(START + 100)

    assert problem(START + 100 + LIMIT_S, sight, record) is None
    assert "a: down" in (problem(START + 101 + LIMIT_S, sight, record) or "")


def test_a_failure_after_a_long_idle_time_is_not_a_problem_at_once():
    record = failing(START + 5000, moved_at=START + 1)

    assert problem(START + 5001, ReaderStatus(looked_at=START + 5001), record) is None


def test_messages_that_another_receiver_holds_are_the_reason_unless_a_destination_fails():
    sight = ReaderStatus().after(START, seen=True, remaining="5 messages are left")
    now = START + LIMIT_S + 1

    assert problem(now, sight) == "nothing was confirmed for 121 s: 5 messages are left"
    assert "5 messages" not in (problem(now, sight, failing(START)) or "")


def test_a_backlog_that_is_known_to_be_empty_is_healthy_though_a_destination_failed():
    sight = ReaderStatus().after(START, seen=False, drained=True)

    assert problem(START + LIMIT_S + 1, sight, failing(START)) is None


def test_messages_that_come_and_go_do_not_hide_that_nothing_is_confirmed():
    record, sight = failing(START), ReaderStatus()
    for second in range(0, 130, 10):
        sight = sight.after(START + second, seen=second % 60 == 0)

    assert problem(START + 130, sight, record) is not None


def test_a_failure_whose_messages_are_gone_is_forgotten():
    record, sight = failing(START), ReaderStatus().after(START, seen=False)

    now = START + LOCKED_S + 1
    sight = sight.after(now, seen=False)

    assert problem(now - 2, sight, record) is not None
    assert problem(now, sight, record) is None


def test_a_backlog_that_cannot_be_read_is_a_problem_after_a_while_and_none_when_it_can():
    sight = ReaderStatus().after(START + 10, seen=False, error="refused")
    sight = sight.after(START + 100, seen=False, error="timed out")

    assert problem(START + 10 + LIMIT_S, sight) is None
    now = START + 11 + LIMIT_S
    assert problem(now, sight) == "the backlog cannot be read: timed out"
    assert problem(now, sight.after(now, seen=False)) is None


def test_a_reader_that_is_silent_is_a_problem():
    sight = ReaderStatus().after(START + 500, seen=False)

    assert problem(START + 500 + LIMIT_S + SILENT_S, sight) is None
    assert problem(START + 501 + LIMIT_S + SILENT_S, sight) == "nobody looks at the backlog"
    assert problem(START + 1 + LIMIT_S + SILENT_S, ReaderStatus()) == "nobody looks at the backlog"


def test_time_that_the_cap_on_the_rate_takes_does_not_count():
    sight = ReaderStatus().after(START, seen=True, pause_s=1000)

    assert problem(START + 1000 + LIMIT_S, sight) is None
    assert problem(START + 1001 + LIMIT_S, sight) is not None
    idle = ReaderStatus().after(START, seen=False, pause_s=1000)
    assert problem(START + 1000 + LIMIT_S + SILENT_S, idle) is None


def test_the_file_is_written_when_there_is_something_new_and_else_now_and_then(tmp_path: Path):
    time = [START]
    file = ReaderStatusFile(tmp_path / "sight.json", now=lambda: time[0])
    assert file.read() == ReaderStatus()

    file.note(seen=True)
    assert file.read() == ReaderStatus(looked_at=START, seen_since=START)
    time[0] += BEAT_S / 2
    file.note(seen=True)
    assert file.read().looked_at == START
    file.note(seen=False, error="down")
    assert file.read() == ReaderStatus(looked_at=time[0], failing_since=time[0], error="down")
    time[0] += BEAT_S
    file.note(seen=False, error="down")
    assert file.read().looked_at == time[0]
    assert [path.name for path in tmp_path.iterdir()] == ["sight.json"]
