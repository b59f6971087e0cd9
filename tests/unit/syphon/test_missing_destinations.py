"""The time that messages wait for a destination that does not exist."""

from collections import Counter
from datetime import timedelta

import pytest

from pairbus.spark.outcome import Outcome
from pairbus.syphon.missing_destinations import (
    describe_missing,
    expired_destinations,
    next_attempt,
)
from pairbus.syphon.pacing import MAX_HALVINGS
from pairbus.syphon.reader_status import ReaderStatus
from pairbus.syphon.status import MAX_LOCK_S, find_problem
from pairbus.syphon.writer_status import MAX_BLOCK_S, MAX_MISSING_BLOCK_S, WriterStatus

pytestmark = pytest.mark.rule("Y5")
HOUR = timedelta(hours=1)
START = 1_000_000.0


def missing(path: str = "orders") -> Outcome:
    return Outcome(left=Counter({path: 1}), errors={path: "not found"}, missing={path})


def dead_lettered(path: str = "orders") -> Outcome:
    return Outcome(
        dead_lettered=Counter({path: 5}),
        dead_letter_reasons={path: Counter(EntityNotFound=5)},
        missing={path},
    )


def test_grace_counts_from_the_first_attempt():
    since = {"orders": START, "bills": START + 10}

    assert expired_destinations(since, HOUR, START + 3599) == frozenset()
    assert expired_destinations(since, HOUR, START + 3600) == {"orders"}
    assert expired_destinations(since, HOUR, START + 3610) == {"orders", "bills"}


def test_without_grace_all_expire_at_once_and_with_none_they_never_do():
    assert expired_destinations({}, timedelta(), START) is None
    assert expired_destinations({"orders": START}, None, START * 9) == frozenset()


def test_last_attempt_is_at_the_end_of_the_grace():
    assert next_attempt(START + 10, 60, START, HOUR) == START + 70
    assert next_attempt(START + 3590, 60, START, HOUR) == START + 3600
    assert next_attempt(START + 3601, 60, START, HOUR) == START + 3661
    assert next_attempt(START + 3590, 60, START, None) == START + 3650


@pytest.mark.parametrize(
    ("grace", "running", "text"),
    [
        (HOUR, True, "wait until 14:46 UTC, then they are dead-lettered"),
        (timedelta(days=2), True, "wait until 1970-01-14 13:46 UTC, then they are dead-lettered"),
        (timedelta(seconds=1), True, "are dead-lettered"),
        (None, True, "wait until it is created"),
        (HOUR, False, "stay in the backlog until it is created"),
    ],
)
def test_description_says_what_happens_to_the_messages(
    grace: timedelta | None, running: bool, text: str
) -> None:
    description = describe_missing(START, grace, START + 5, running=running)

    assert description == f"does not exist; its messages {text}"


def test_first_sight_survives_further_micro_batches_and_ends_when_the_destination_accepts():
    status = WriterStatus()
    status.add([missing(), missing("bills")], START, grace=HOUR)
    status.add([missing()], START + 60, grace=HOUR)
    status.add([Outcome(moved=Counter(other=1))], START + 61, grace=HOUR)
    assert status.missing_since == {"orders": START, "bills": START}

    status.add([Outcome(moved=Counter(orders=1))], START + 62, grace=HOUR)

    assert status.missing_since == {"bills": START}
    assert set(status.errors) == {"bills"}


def test_destination_that_fails_for_another_reason_exists():
    status = WriterStatus()
    status.add([missing()], START, grace=HOUR)

    status.add([Outcome(left=Counter(orders=1), errors={"orders": "busy"})], START + 5, grace=HOUR)

    assert (status.missing_since, status.errors) == ({}, {"orders": "busy"})


def test_attempts_become_rarer_than_those_of_a_destination_that_is_down():
    status, blocks, now = WriterStatus(), [], START
    for _ in range(9):
        status.add([missing()], now, grace=HOUR)
        blocks.append(status.blocked_until["orders"] - now)
        now = status.blocked_until["orders"]

    assert blocks == [1, 2, 4, 8, 16, 32, *[MAX_MISSING_BLOCK_S] * 3]
    assert MAX_MISSING_BLOCK_S > MAX_BLOCK_S


def test_block_ends_with_the_grace():
    status = WriterStatus()
    for now in (START, START + 1, START + 3, START + 7):
        status.add([missing()], now, grace=timedelta(seconds=10))

    assert status.blocked_until["orders"] == START + 10


def test_expired_destination_is_no_longer_an_error_and_stays_expired():
    status = WriterStatus()
    status.add([missing()], START, grace=HOUR)

    status.add([dead_lettered()], START + 3600, grace=HOUR)
    status.add([dead_lettered()], START + 3700, grace=HOUR)

    assert (status.errors, status.blocked_until, status.failing_since) == ({}, {}, None)
    assert status.missing_since == {"orders": START}
    assert status.dead_letter_reasons == {"orders": {"EntityNotFound": 10}}
    assert status.progress_at == START + 3700
    assert status.halvings == {"orders": MAX_HALVINGS - 2}


def test_dead_letter_that_its_destination_has_not_seen_does_not_end_its_failure():
    status = WriterStatus()
    status.add([missing()], START, grace=HOUR)

    status.add([Outcome(dead_lettered=Counter(orders=1))], START + 50, grace=HOUR)

    assert status.missing_since == {"orders": START}
    assert set(status.errors) == {"orders"}


def problem(reader: ReaderStatus, writer: WriterStatus, now: float, **texts: str) -> str | None:
    return find_problem(reader, writer, started_at=START, now=now, stuck_after_s=120, missing=texts)


def test_missing_destination_is_a_problem_at_once_and_does_not_make_a_run_stuck():
    writer = WriterStatus()
    writer.add([missing(), Outcome(moved=Counter(bills=1))], START, grace=HOUR)
    reader = ReaderStatus().update(START, waiting=True)

    assert problem(reader, writer, START + 1, orders="does not exist") == "orders does not exist"
    assert problem(reader, writer, START + 1) is None, "the planner would end a run"


def test_missing_destination_is_no_problem_when_its_messages_are_gone():
    writer = WriterStatus()
    writer.add([missing()], START, grace=HOUR)
    reader = ReaderStatus().update(START, waiting=False)
    now = START + MAX_LOCK_S + 1

    assert problem(reader.update(now, waiting=False), writer, now, orders="is missing") is None
