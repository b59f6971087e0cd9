"""Syphons that are killed during the drain and replaced by others; several syphons at once."""

from pathlib import Path

import pytest

from pairbus.backlog.syphon_control import Control, ControlFile
from tests.backlog import Backlog
from tests.faults.backlog_messages import MANY, BacklogMessages
from tests.faults.conftest import StartSyphon
from tests.faults.lock_clock import LockClock
from tests.messages import content_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def batches(checkpoint: Path, kind: str) -> set[int]:
    """Return the micro-batches that Spark has planned (`offsets`) or completed (`commits`)."""
    return {int(file.name) for file in (checkpoint / kind).iterdir() if file.name.isdecimal()}


@pytest.mark.rule("X1", "X2", "Y2")
def test_killed_syphon_is_replaced_with_its_checkpoint_and_with_a_new_one(
    messages: BacklogMessages, start_syphon: StartSyphon, clock: LockClock, tmp_path: Path
) -> None:
    messages.put(MANY)
    checkpoint = tmp_path / "checkpoint"
    options = ("--checkpoint", str(checkpoint))

    answer = messages.delay_answer()
    with start_syphon("first", *options) as first:
        messages.wait_for_unsettled(answer)
        first.kill()
    (planned,) = batches(checkpoint, "offsets") - batches(checkpoint, "commits")
    expected_duplicates = messages.in_both_places()
    assert expected_duplicates
    assert messages.not_sent()
    clock.expire_locks()

    with start_syphon("second", *options, "--max-rate", "1000") as second:
        wait_until(
            lambda: batches(checkpoint, "commits") >= {planned, planned + 1},
            "the planned micro-batch and the next one",
        )
        assert second.moved > 0
        messages.wait_for_unsettled(messages.delay_answer())
        second.kill()
    assert batches(checkpoint, "offsets") > batches(checkpoint, "commits")
    in_both_places = messages.in_both_places()
    assert in_both_places
    expected_duplicates |= in_both_places
    clock.expire_locks()

    with start_syphon("third") as third:
        messages.wait_until_drained()
        unsettled = sum(process.unsettled for process in (first, second, third))
        third.stop()

    messages.check()
    # The duplicates are the messages that had arrived and were not completed when a syphon was
    # killed. On a slow machine locks may expire as well, which the syphon counts.
    assert messages.duplicates() >= expected_duplicates
    assert len(messages.duplicates() - expected_duplicates) <= unsettled


@pytest.mark.rule("Y12")
def test_syphon_that_is_paused_after_its_death_moves_nothing_when_it_starts_again(
    messages: BacklogMessages, start_syphon: StartSyphon, clock: LockClock, tmp_path: Path
) -> None:
    messages.put(MANY)
    checkpoint, control = tmp_path / "checkpoint", ControlFile(tmp_path / "control.json")
    options = ("--checkpoint", str(checkpoint), "--control-file", str(control.path))
    answer = messages.delay_answer()
    with start_syphon("first", *options) as first:
        messages.wait_for_unsettled(answer)
        first.kill()
    (planned,) = batches(checkpoint, "offsets") - batches(checkpoint, "commits")
    not_sent = messages.not_sent()
    assert not_sent
    clock.expire_locks()
    control.update(Control.pause)

    with start_syphon("second", *options) as second:
        wait_until(lambda: planned in batches(checkpoint, "commits"), "the planned micro-batch")
        assert second.moved == 0
        assert messages.not_sent() == not_sent
        control.update(Control.resume)
        messages.wait_until_drained()
        second.stop()

    messages.check()


@pytest.mark.rule("X1", "X2", "Y7")
def test_two_syphons_at_once_lose_nothing_and_make_no_duplicates(
    backlog: Backlog, messages: BacklogMessages, start_syphon: StartSyphon
) -> None:
    messages.put(200)

    with (
        start_syphon("first", "--max-rate", "500") as first,
        start_syphon("second", "--max-rate", "500") as second,
    ):

        def both_move_messages() -> bool:
            if messages.left() == 0:  # one of the syphons starts later
                messages.put(200)
            return first.moved > 0 and second.moved > 0

        wait_until(both_move_messages, "both syphons to move messages")
        moved_before = first.moved, second.moved
        messages.put(1000)
        messages.wait_until_drained()

        def unsettled() -> int:
            return first.unsettled + second.unsettled

        # No message was moved by both syphons, except for those whose lock was lost.
        wait_until(
            lambda: first.moved + second.moved == 2 * len(messages.sent) + unsettled(),
            "the last status",
        )
        max_duplicates = unsettled()
        assert first.moved > moved_before[0]
        assert second.moved > moved_before[1]
        first.stop()
        second.stop()

    messages.check()
    assert len(messages.duplicates()) <= max_duplicates
    for path in (messages.exact, messages.plain):
        arrived = map(content_of, backlog.arrived(path))
        assert set(map(str, arrived)) == {str(content_of(payload)) for payload in messages.sent}


def test_run_once_ends_when_the_backlog_is_empty(start_syphon: StartSyphon) -> None:
    with start_syphon("once", "--once") as process:
        wait_until(lambda: not process.runs, "the syphon to end")

    assert process.exit_code == 0
    assert "0 messages moved, 0 dead-lettered." in process.output
