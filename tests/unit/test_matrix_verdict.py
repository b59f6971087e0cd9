"""What the fault matrix makes of a run: notes, owners of connections, lost and explained."""

from collections import Counter
from pathlib import Path

import pytest

from pairbus.drill.reconciliation import MessageKey
from tests.faults.matrix.notes import NoteFile, Notes, NoteWriter, sent, together
from tests.faults.matrix.owners import inode_of
from tests.faults.matrix.plan import CELLS
from tests.faults.matrix.report import table
from tests.faults.matrix.verdict import (
    SENT_AGAIN,
    SENT_ELSEWHERE,
    UNSETTLED,
    Copy,
    Verdict,
    Window,
    judge,
)

A, B = MessageKey("plain", "a-1"), MessageKey("exact", "b-1")
FAULT = Window("worker/kill/draining", 100.0, 101.0)


def noted(**given: object) -> Notes:
    """Both were sent, long before anything happened."""
    return Notes(
        acknowledged={key: sent(key, None) for key in (A, B)},
        **{"calls": dict.fromkeys((A, B), (0.5, 0.6)), **given},  # type: ignore[arg-type]
    )


def verdict(
    *copies: Copy, windows: tuple[Window, ...] = (), notes: Notes | None = None, **given: object
) -> Verdict:
    values = {"unsettled": 0, "exact": ["exact"], **given}
    return judge(
        noted() if notes is None else notes,
        copies,
        windows=windows,
        **values,  # type: ignore[arg-type]
    )


def test_what_arrived_once_is_well() -> None:
    found = verdict(Copy(A, 1.0), Copy(B, 2.0))

    assert found.problems == ()
    assert (found.reckoning.sent, found.reckoning.delivered) == (2, 2)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "1 lost: b-1 of exact"),
        ({"in_backlog": [B]}, "1 left in the backlog: b-1 of exact"),
        ({"dead_lettered": [B]}, "1 dead-lettered: b-1 of exact"),
    ],
)
def test_what_did_not_arrive_is_a_problem_wherever_it_is(
    given: dict[str, object], problem: str
) -> None:
    assert verdict(Copy(A, 1.0), **given).problems == (problem,)


def test_what_is_there_twice_where_duplicates_are_removed_is_a_problem_though_it_is_explained() -> (
    None
):
    found = verdict(Copy(A, 99.0), Copy(B, 99.0), Copy(B, 105.0), windows=(FAULT,))

    assert found.problems == ("1 twice in spite of duplicate detection: b-1 of exact",)


@pytest.mark.parametrize(
    ("first", "second", "explained"),
    [
        (99.0, 105.0, True),
        (100.5, 100.6, True),
        (104.0, 120.0, True),  # it lay in a buffer
        (120.0, 130.0, False),
        (80.0, 90.0, False),
    ],
)
def test_a_duplicate_is_explained_by_a_fault_between_its_copies(
    first: float, second: float, explained: bool
) -> None:
    found = verdict(Copy(B, 1.0), Copy(A, second), Copy(A, first), windows=(FAULT,))

    assert found.explained == Counter({FAULT.what: 1} if explained else {})
    assert bool(found.problems) != explained


def test_a_duplicate_is_explained_by_a_send_that_failed() -> None:
    found = verdict(Copy(B, 1.0), Copy(A, 1.0), Copy(A, 2.0), notes=noted(failed={A}))

    assert found.explained == Counter({SENT_AGAIN: 1})
    assert not found.problems


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ((98.0, 100.5), FAULT.what),
        ((50.0, 52.0), SENT_ELSEWHERE),
        ((52.0, 60.0), None),
        ((102.0, 103.0), None),
    ],
)
def test_copies_that_came_together_are_explained_by_what_happened_to_the_call(
    call: tuple[float, float], reason: str | None
) -> None:
    notes = noted(calls={A: call}, given_up=[51.0])

    found = verdict(Copy(B, 1.0), Copy(A, 200.0), Copy(A, 200.0), windows=(FAULT,), notes=notes)

    assert found.explained == Counter({} if reason is None else {reason: 1})
    assert bool(found.problems) == (reason is None)


@pytest.mark.parametrize(("unsettled", "well"), [(0, False), (1, False), (2, True)])
def test_as_many_duplicates_as_the_syphon_counted_are_explained(unsettled: int, well: bool) -> None:
    found = verdict(Copy(B, 1.0), Copy(A, 1.0), Copy(A, 2.0), Copy(A, 3.0), unsettled=unsettled)

    assert found.explained == Counter({UNSETTLED: unsettled} if unsettled else {})
    assert bool(found.problems) != well


def test_notes_are_read_as_they_grow_and_a_torn_end_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    writer, file = NoteWriter(path), NoteFile(path)
    assert file.look().tries == Counter()
    writer.write("try", path="plain", ids=["a-1", "a-2"])
    writer.write("done", path="plain", ids=["a-1"], session="s")
    assert file.look().acknowledged == {A: sent(A, "s")}
    writer.write("failed", path="plain", ids=["a-2"], error="SendUnavailable")
    writer.write("state", path="plain", state="failover")
    writer.write("Pinged")
    writer.close()
    with path.open("a") as torn:
        torn.write('{"what": "done", "pa')

    notes = file.look()

    assert (notes.state("plain"), notes.state("exact")) == ("failover", "healthy")
    assert notes.events == Counter({"Pinged": 1})
    assert len(notes.given_up) == 1
    both = together([notes, Notes(errors=Counter(SendUnavailable=1))])
    assert both.acknowledged == {A: sent(A, "s")}
    assert both.calls.keys() == {A}
    assert both.doubtful() == {MessageKey("plain", "a-2")}
    assert both.errors["SendUnavailable"] == 2


def test_a_message_that_was_tried_and_never_answered_or_more_than_once_is_doubtful(
    tmp_path: Path,
) -> None:
    path = tmp_path / "notes"
    writer = NoteWriter(path)
    for id in ("a-1", "a-2", "a-2", "a-3"):
        writer.write("try", path="plain", ids=[id])
    writer.write("done", path="plain", ids=["a-2", "a-3"])
    writer.close()

    assert NoteFile(path).look().doubtful() == {A, MessageKey("plain", "a-2")}


def test_a_connection_is_found_by_both_its_ports() -> None:
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout"
        " inode\n"
        "   0: 0100007F:1388 0100007F:C350 01 00000000:00000000 00:00000000 00000000  0  0 111 1\n"
        "   1: 0100007F:C350 0100007F:1388 01 00000000:00000000 00:00000000 00000000  0  0 222 1\n"
    )

    assert inode_of(table, 0xC350, 0x1388) == "222"
    assert inode_of(table, 0x1388, 0xC350) == "111"
    assert inode_of(table, 1, 2) is None


def test_the_table_has_a_row_for_each_fault_and_a_column_for_each_stage() -> None:
    lines = table(Counter(CELLS))

    assert len(lines) == 16
    assert lines[0].split() == ["before", "filling", "failback", "draining"]
    assert lines[1].split() == ["sender", "kill", "1", "1", "1", "1"]
