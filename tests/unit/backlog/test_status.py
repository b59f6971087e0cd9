"""The verdict on a pairing, from what was seen of it."""

from dataclasses import replace
from typing import Any

import pytest

from pairbus.backlog.queues import BacklogContents, QueueContents
from pairbus.backlog.status import (
    SILENT_S,
    ProbeResult,
    SyphonSummary,
    parse_syphon_status,
    verdict,
)
from pairbus.errors import ConfigurationError

UP, DOWN = ProbeResult("host"), ProbeResult("host", "connection refused")
LOCKED = ProbeResult("host", "the token was refused", refused=True)
NOW = 1_000_000.0
FILE: dict[str, Any] = {
    "running": True,
    "healthy": True,
    "problem": None,
    "moved": {"orders": 5, "bills": 2},
    "dead_lettered": {},
    "left": 3,
    "errors": {},
    "rate": 2.5,
    "seconds_to_go": 1.2,
    "when": NOW - 1,
}


def look(messages: int = 0, dead: int = 0, **changes: Any) -> BacklogContents:
    first = QueueContents(path="p/0", index=0, messages=messages, dead_lettered=dead, **changes)
    second = QueueContents(path="p/1", index=1, messages=0, dead_lettered=0)
    return BacklogContents(queues=(first, second), expected=2)


def partial(messages: int = 0) -> BacklogContents:
    """The same without a list of the queues that exist."""
    return replace(look(messages), not_listed="no right to list", searched_to=11)


def beyond(*messages: int, **changes: Any) -> BacklogContents:
    """Queues that exist beyond the given number, 2, from index 5 on."""
    others = [
        QueueContents(path=f"p/{index}", index=index, messages=count, dead_lettered=0, **changes)
        for index, count in enumerate(messages, 5)
    ]
    return replace(look(), queues=(*look().queues, *others))


ABSENT = BacklogContents(queues=(QueueContents(path="p/0", index=0, there=False),), expected=1)
UNSEEN = BacklogContents(
    queues=(QueueContents(path="p/0", index=0, problem="no right to listen"),), expected=1
)
NOT_KNOWN = "Nothing waits in backlog queues 0 to 11; whether there are others is not known."


@pytest.mark.parametrize(
    ("primary", "secondary", "backlog", "status", "words"),
    [
        (UP, UP, look(), 0, "Both namespaces answer, and nothing waits."),
        (DOWN, DOWN, None, 1, "Neither namespace answers."),
        (UP, DOWN, None, 1, "The secondary does not answer. The backlog cannot be seen."),
        (UP, LOCKED, None, 1, "The secondary refuses the token. The backlog cannot be seen."),
        (LOCKED, DOWN, None, 1, "The primary refuses the token. The secondary does not answer. "),
        (LOCKED, UP, look(), 1, "The primary refuses the token. Nothing waits."),
        (DOWN, UP, look(), 1, "The primary does not answer. Nothing waits."),
        (DOWN, UP, look(1), 1, "The primary does not answer. 1 message waits in the backlog."),
        (UP, UP, ABSENT, 1, "No backlog queue was found"),
        (UP, UP, partial(), 4, f"Both namespaces answer. {NOT_KNOWN}"),
        (DOWN, UP, partial(), 1, f"The primary does not answer. {NOT_KNOWN}"),
        (UP, UP, partial(3), 3, "At least 3 messages wait in the backlog."),
        (UP, UP, beyond(0), 0, "Both namespaces answer, and nothing waits."),
        (
            *(UP, UP, beyond(0, 4, 1), 3),
            (
                "5 messages wait in the backlog. 5 of them are in backlog queues 6 to 7, beyond "
                "--backlog-queues 2."
            ),
        ),
        (UP, UP, UNSEEN, 1, "The backlog cannot be seen."),
        (DOWN, UP, UNSEEN, 1, "The primary does not answer. The backlog cannot be seen."),
        (UP, UP, look(1200), 3, "1,200 messages wait in the backlog."),
        (UP, UP, look(dead=1), 3, "1 message is dead-lettered: see pairbus backlog peek"),
        (UP, UP, look(1, more_messages=True), 3, "At least 1 message waits in the backlog."),
        (UP, UP, look(1, 2), 3, "1 message waits in the backlog. 2 messages are dead-lettered"),
    ],
)
def test_the_verdict_is_one_line_and_an_exit_status(
    primary: ProbeResult,
    secondary: ProbeResult,
    backlog: BacklogContents | None,
    status: int,
    words: str,
) -> None:
    found = verdict({"primary": primary, "secondary": secondary}, backlog, None)

    assert found.status == status
    assert found.words.startswith(words)
    assert "\n" not in found.words


@pytest.mark.parametrize(
    ("syphon", "said"),
    [
        (SyphonSummary(True), "1 message waits in the backlog, and a syphon is at work."),
        (SyphonSummary(True, "stuck"), "1 message waits in the backlog, and the syphon is stuck."),
        (SyphonSummary(False, "gone"), "1 message waits in the backlog, and no syphon is at work."),
    ],
)
def test_the_verdict_says_who_moves_what_waits(syphon: SyphonSummary, said: str) -> None:
    found = verdict({"primary": UP, "secondary": UP}, look(1), syphon)

    assert (found.status, found.words) == (3, said)


@pytest.mark.parametrize(
    ("changes", "at_work", "problem"),
    [
        ({}, True, None),
        ({"healthy": False, "problem": "nothing was confirmed"}, True, "nothing was confirmed"),
        ({"running": False}, False, "it has stopped"),
        ({"when": NOW - SILENT_S - 1}, False, "it has said nothing for 16 s"),
        ({"left": None}, True, None),
    ],
)
def test_a_syphon_is_at_work_if_its_file_says_so_and_is_fresh(
    changes: dict[str, Any], at_work: bool, problem: str | None
) -> None:
    found = parse_syphon_status(FILE | changes, NOW)

    assert found.at_work is at_work
    assert found.moved == 7
    assert (found.problem or "").startswith(problem or "")
    assert (found.problem is None) is (problem is None)
    assert found.rate == (2.5 if at_work else 0)


def test_a_file_that_is_not_there_is_no_syphon() -> None:
    found = parse_syphon_status(None, NOW)

    assert not found.at_work
    assert "it has not started" in (found.problem or "")


@pytest.mark.parametrize("values", [{}, [], 5, "text", FILE | {"when": "now"}])
def test_another_file_is_a_mistake(values: Any) -> None:
    with pytest.raises(ConfigurationError, match="not the status file of a syphon"):
        parse_syphon_status(values, NOW)


def test_counts_of_queues_that_nobody_may_see_are_not_zero() -> None:
    assert (UNSEEN.messages, UNSEEN.dead_lettered) == (None, None)
    assert (ABSENT.messages, ABSENT.there) == (0, 0)
    partly = replace(look(2), queues=(*look(2).queues, *UNSEEN.queues))
    assert (partly.messages, partly.more_messages) == (2, True)
