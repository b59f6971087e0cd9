"""The verdict of the fault matrix on a run, the log of its senders, and the owners of sockets."""

from collections import Counter
from pathlib import Path

import pytest

from pairbus.drill.reconciliation import MessageKey
from tests.faults.matrix.plan import CELLS
from tests.faults.matrix.report import coverage_table
from tests.faults.matrix.sender_log import (
    SenderLog,
    SenderLogFile,
    SenderLogWriter,
    combine,
    sent_message,
)
from tests.faults.matrix.socket_owners import inode_of
from tests.faults.matrix.verdict import (
    SENT_AGAIN,
    SENT_ELSEWHERE,
    UNSETTLED,
    DeliveredCopy,
    FaultWindow,
    Verdict,
    judge,
)

A, B = MessageKey("plain", "a-1"), MessageKey("exact", "b-1")
FAULT = FaultWindow("worker/kill/draining", 100.0, 101.0)


def log_with(**values: object) -> SenderLog:
    """Return a log in which both messages were sent long before the fault."""
    return SenderLog(
        acknowledged={key: sent_message(key, None) for key in (A, B)},
        **{"calls": dict.fromkeys((A, B), (0.5, 0.6)), **values},  # type: ignore[arg-type]
    )


def verdict_on(
    *copies: DeliveredCopy,
    windows: tuple[FaultWindow, ...] = (),
    log: SenderLog | None = None,
    **options: object,
) -> Verdict:
    values = {"unsettled": 0, "exact": ["exact"], **options}
    return judge(
        log_with() if log is None else log,
        copies,
        windows=windows,
        **values,  # type: ignore[arg-type]
    )


def test_messages_delivered_once_are_no_problem() -> None:
    verdict = verdict_on(DeliveredCopy(A, 1.0), DeliveredCopy(B, 2.0))

    assert verdict.problems == ()
    assert (verdict.reconciliation.sent, verdict.reconciliation.delivered) == (2, 2)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "1 lost: b-1 of exact"),
        ({"in_backlog": [B]}, "1 left in the backlog: b-1 of exact"),
        ({"dead_lettered": [B]}, "1 dead-lettered: b-1 of exact"),
    ],
)
def test_message_that_was_not_delivered_is_a_problem(
    options: dict[str, object], problem: str
) -> None:
    assert verdict_on(DeliveredCopy(A, 1.0), **options).problems == (problem,)


@pytest.mark.parametrize("ordered", [False, True])
def test_session_out_of_order_is_a_problem_if_order_is_promised(ordered: bool) -> None:
    first, second = MessageKey("sessions", "p-1"), MessageKey("sessions", "p-2")
    log = SenderLog(
        acknowledged={key: sent_message(key, "p-session") for key in (first, second)},
        calls=dict.fromkeys((first, second), (0.5, 0.6)),
    )

    copies = DeliveredCopy(second, 1.0), DeliveredCopy(first, 2.0)
    verdict = verdict_on(*copies, log=log, ordered=ordered)

    problem = "1 delivered after a later one of their session: p-1 of sessions"
    assert verdict.problems == ((problem,) if ordered else ())


def test_message_that_a_redrive_lost_is_a_problem() -> None:
    copies = DeliveredCopy(A, 1.0), DeliveredCopy(B, 2.0)

    verdict = verdict_on(*copies, lost_by_redrive=[MessageKey("redriven", "r-1")])

    assert verdict.problems == ("1 lost by the redrive: r-1 of redriven",)


def test_explained_duplicate_in_spite_of_duplicate_detection_is_a_problem() -> None:
    verdict = verdict_on(
        DeliveredCopy(A, 99.0), DeliveredCopy(B, 99.0), DeliveredCopy(B, 105.0), windows=(FAULT,)
    )

    assert verdict.problems == ("1 duplicated in spite of duplicate detection: b-1 of exact",)


@pytest.mark.parametrize(
    ("first", "second", "explained"),
    [
        (99.0, 105.0, True),
        (100.5, 100.6, True),
        (104.0, 120.0, True),  # the message was in a buffer
        (120.0, 130.0, False),
        (80.0, 90.0, False),
    ],
)
def test_duplicate_is_explained_by_a_fault_between_its_deliveries(
    first: float, second: float, explained: bool
) -> None:
    verdict = verdict_on(
        DeliveredCopy(B, 1.0), DeliveredCopy(A, second), DeliveredCopy(A, first), windows=(FAULT,)
    )

    assert verdict.explained == Counter({FAULT.name: 1} if explained else {})
    assert bool(verdict.problems) != explained


def test_duplicate_is_explained_by_a_failed_send() -> None:
    verdict = verdict_on(
        DeliveredCopy(B, 1.0),
        DeliveredCopy(A, 1.0),
        DeliveredCopy(A, 2.0),
        log=log_with(attempts=Counter({A: 2, B: 1})),
    )

    assert verdict.explained == Counter({SENT_AGAIN: 1})
    assert not verdict.problems


def test_duplicate_is_not_explained_by_an_attempt_that_sent_nothing() -> None:
    verdict = verdict_on(
        DeliveredCopy(B, 1.0),
        DeliveredCopy(A, 1.0),
        DeliveredCopy(A, 2.0),
        log=log_with(attempts=Counter({A: 2, B: 1}), not_sent=Counter({A: 1})),
    )

    assert verdict.problems == (
        "1 duplicated without explanation for more than 0 of them: a-1 of plain",
    )


@pytest.mark.parametrize(("attempts", "is_problem"), [(1, True), (2, False)])
def test_delivery_of_a_message_that_was_reported_as_not_sent_is_a_problem(
    attempts: int, is_problem: bool
) -> None:
    late = MessageKey("plain", "a-2")
    verdict = verdict_on(
        *(DeliveredCopy(key, 1.0) for key in (A, B, late)),
        log=log_with(attempts=Counter({late: attempts}), not_sent=Counter({late: 1})),
    )

    expected = ("1 delivered, but reported as not sent: a-2 of plain",)
    assert verdict.problems == (expected if is_problem else ())


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ((98.0, 100.5), FAULT.name),
        ((50.0, 52.0), SENT_ELSEWHERE),
        ((52.0, 60.0), None),
        ((102.0, 103.0), None),
    ],
)
def test_duplicates_delivered_together_are_explained_by_a_fault_during_the_call(
    call: tuple[float, float], reason: str | None
) -> None:
    log = log_with(calls={A: call}, rerouted=[51.0])

    verdict = verdict_on(
        DeliveredCopy(B, 1.0),
        DeliveredCopy(A, 200.0),
        DeliveredCopy(A, 200.0),
        windows=(FAULT,),
        log=log,
    )

    assert verdict.explained == Counter({} if reason is None else {reason: 1})
    assert bool(verdict.problems) == (reason is None)


@pytest.mark.parametrize(("unsettled", "explained"), [(0, False), (1, False), (2, True)])
def test_duplicates_that_the_syphon_reported_are_explained(unsettled: int, explained: bool) -> None:
    verdict = verdict_on(
        DeliveredCopy(B, 1.0),
        DeliveredCopy(A, 1.0),
        DeliveredCopy(A, 2.0),
        DeliveredCopy(A, 3.0),
        unsettled=unsettled,
    )

    assert verdict.explained == Counter({UNSETTLED: unsettled} if unsettled else {})
    assert bool(verdict.problems) != explained


def test_log_is_read_while_it_grows_without_an_incomplete_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writer, file = SenderLogWriter(path), SenderLogFile(path)
    assert file.read().attempts == Counter()
    writer.write("attempt", path="plain", ids=["a-1", "a-2"])
    writer.write("acknowledged", path="plain", ids=["a-1"], session="s")
    assert file.read().acknowledged == {A: sent_message(A, "s")}
    writer.write("failed", path="plain", ids=["a-2"], error="SendUnavailable")
    writer.write("state", path="plain", state="failover")
    writer.write("Pinged")
    writer.close()
    with path.open("a") as incomplete:
        incomplete.write('{"kind": "acknowledged", "pa')

    log = file.read()

    assert (log.state("plain"), log.state("exact")) == ("failover", "healthy")
    assert log.events == Counter({"Pinged": 1})
    assert len(log.rerouted) == 1
    both = combine([log, SenderLog(errors=Counter(SendUnavailable=1))])
    assert both.acknowledged == {A: sent_message(A, "s")}
    assert both.calls.keys() == {A}
    assert both.ambiguous() == {MessageKey("plain", "a-2")}
    assert both.errors["SendUnavailable"] == 2


def test_message_without_response_or_with_several_attempts_is_ambiguous(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    writer = SenderLogWriter(path)
    for id in ("a-1", "a-2", "a-2", "a-3", "a-4"):
        writer.write("attempt", path="plain", ids=[id])
    writer.write("acknowledged", path="plain", ids=["a-2", "a-3"])
    writer.write("failed", path="plain", ids=["a-4"], error="SendUnavailable", not_sent=["a-4"])
    writer.close()

    log = SenderLogFile(path).read()

    assert log.ambiguous() == {A, MessageKey("plain", "a-2")}
    assert log.reported_as_not_sent() == {MessageKey("plain", "a-4")}


def test_socket_is_found_by_both_ports() -> None:
    coverage_table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout"
        " inode\n"
        "   0: 0100007F:1388 0100007F:C350 01 00000000:00000000 00:00000000 00000000  0  0 111 1\n"
        "   1: 0100007F:C350 0100007F:1388 01 00000000:00000000 00:00000000 00000000  0  0 222 1\n"
    )

    assert inode_of(coverage_table, 0xC350, 0x1388) == "222"
    assert inode_of(coverage_table, 0x1388, 0xC350) == "111"
    assert inode_of(coverage_table, 1, 2) is None


def test_coverage_table_has_a_row_per_fault_and_a_column_per_stage() -> None:
    lines = coverage_table(Counter(CELLS))

    assert len(lines) == 29
    assert lines[0].split() == ["before", "filling", "failback", "draining"]
    assert lines[1].split() == ["sender", "kill", "1", "1", "1", "1"]
