"""Syphons that are killed during the drain and replaced by others; several syphons at once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.faults.syphon_kit import (
    MANY,
    BacklogMessages,
    Clock,
    DelayedAnswer,
    syphon,
    wait_until,
)
from tests.spark.kit import Backlog, meaning

pytestmark = pytest.mark.timeout(900)
LOCK_S = 61.0


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def namespaces(clock: Clock) -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with (
        LocalNamespace("primary") as primary,
        LocalNamespace("secondary", now_ms=clock) as secondary,
    ):
        yield primary, secondary


def batches(checkpoint: Path, kind: str) -> set[int]:
    """Return the micro-batches that Spark has planned (`offsets`) or completed (`commits`)."""
    return {int(file.name) for file in (checkpoint / kind).iterdir() if file.name.isdecimal()}


@pytest.mark.rule("X1", "X2", "Y2")
@pytest.mark.soak
def test_killed_syphon_is_replaced_with_its_checkpoint_and_with_a_new_one(
    namespaces: tuple[LocalNamespace, LocalNamespace], clock: Clock, tmp_path: Path
) -> None:
    backlog = Backlog(*namespaces, name="killed")
    messages = BacklogMessages(backlog, "orders")
    messages.put(MANY)
    checkpoint = tmp_path / "checkpoint"
    options = ("--checkpoint", str(checkpoint))
    expected_duplicates: set[str] = set()

    answer = DelayedAnswer(backlog.primary.connection_string, messages.exact)
    with syphon(backlog, tmp_path / "first", *options) as first:
        wait_until(lambda: answer.happened, "a delivery without an answer")
        wait_until(lambda: bool(messages.in_both_places()), "a message to arrive")
        first.kill()
    (planned,) = batches(checkpoint, "offsets") - batches(checkpoint, "commits")
    expected_duplicates |= messages.in_both_places()
    assert expected_duplicates
    assert messages.not_sent()
    clock.advance(LOCK_S)

    with syphon(backlog, tmp_path / "second", *options, "--max-rate", "1000") as second:
        wait_until(
            lambda: batches(checkpoint, "commits") >= {planned, planned + 1},
            "the planned micro-batch and another one",
        )
        assert second.moved > 0
        answer = DelayedAnswer(backlog.primary.connection_string, messages.exact)
        wait_until(lambda: answer.happened, "a delivery without an answer")
        wait_until(lambda: bool(messages.in_both_places()), "a message to arrive")
        second.kill()
    assert batches(checkpoint, "offsets") > batches(checkpoint, "commits")
    in_both_places = messages.in_both_places()
    assert in_both_places
    expected_duplicates |= in_both_places
    clock.advance(LOCK_S)

    with syphon(backlog, tmp_path / "third") as third:
        wait_until(lambda: messages.left() == 0, "the remaining messages to be moved")
        unsettled = sum(process.unsettled for process in (first, second, third))
        third.stop()

    messages.check()
    # The duplicates are the messages that had arrived and were not completed when a syphon was
    # killed. On a slow machine locks may expire as well, which the syphon counts.
    assert messages.duplicates() >= expected_duplicates
    assert len(messages.duplicates() - expected_duplicates) <= unsettled


@pytest.mark.soak
@pytest.mark.rule("X1", "X2", "Y7")
def test_two_syphons_at_once_lose_nothing_and_make_no_duplicates(
    namespaces: tuple[LocalNamespace, LocalNamespace], tmp_path: Path
) -> None:
    backlog = Backlog(*namespaces, name="several")
    messages = BacklogMessages(backlog, "orders")
    messages.put(200)

    with (
        syphon(backlog, tmp_path / "first", "--max-rate", "500") as first,
        syphon(backlog, tmp_path / "second", "--max-rate", "500") as second,
    ):

        def both_move_messages() -> bool:
            if messages.left() == 0:  # one of them starts more slowly
                messages.put(200)
            return first.moved > 0 and second.moved > 0

        wait_until(both_move_messages, "both syphons to move messages")
        moved_before = first.moved, second.moved
        messages.put(1000)
        wait_until(lambda: messages.left() == 0, "the backlog to be empty")

        def unsettled() -> int:
            return first.unsettled + second.unsettled

        # No message was moved by both, except for lost locks.
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
        arrived = map(meaning, backlog.arrived(path))
        assert set(map(str, arrived)) == {str(meaning(payload)) for payload in messages.sent}


@pytest.mark.soak
def test_run_once_ends_when_the_backlog_is_empty(
    namespaces: tuple[LocalNamespace, LocalNamespace], tmp_path: Path
) -> None:
    backlog = Backlog(*namespaces, name="empty")

    with syphon(backlog, tmp_path / "once", "--once") as process:
        wait_until(lambda: not process.runs, "the syphon to end")

    assert process.exit_code == 0
    assert "0 messages moved, 0 dead-lettered." in process.output
