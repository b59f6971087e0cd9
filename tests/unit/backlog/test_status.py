"""The summary of an inspection, and the status file of a syphon."""

from dataclasses import replace
from typing import Any

import pytest

from pairbus.backlog.contents import BacklogContents, QueueContents
from pairbus.backlog.probe import ProbeResult
from pairbus.backlog.status import summarize
from pairbus.backlog.syphon_file import STALE_S, SyphonSummary, parse_syphon_status
from pairbus.errors import ConfigurationError

UP, DOWN = ProbeResult("host"), ProbeResult("host", "connection refused")
UNAUTHORIZED = ProbeResult("host", "the token was rejected", unauthorized=True)
NOW = 1_000_000.0
FILE: dict[str, Any] = {
    "running": True,
    "healthy": True,
    "problem": None,
    "moved": {"orders": 5, "bills": 2},
    "dead_lettered": {},
    "remaining": 3,
    "errors": {},
    "rate": 2.5,
    "seconds_to_go": 1.2,
    "time": NOW - 1,
}


def backlog_of(messages: int = 0, dead: int = 0, **changes: Any) -> BacklogContents:
    first = QueueContents(path="p/0", index=0, messages=messages, dead_lettered=dead, **changes)
    second = QueueContents(path="p/1", index=1, messages=0, dead_lettered=0)
    return BacklogContents(queues=(first, second), expected=2)


def without_listing(messages: int = 0) -> BacklogContents:
    """Return a backlog whose queues could not be listed."""
    return replace(backlog_of(messages), listing_error="no right to list", searched_to=11)


def with_unexpected_queues(*messages: int, **changes: Any) -> BacklogContents:
    """Return a backlog with queues beyond the expected count (2), from index 5 on."""
    others = [
        QueueContents(path=f"p/{index}", index=index, messages=count, dead_lettered=0, **changes)
        for index, count in enumerate(messages, 5)
    ]
    return replace(backlog_of(), queues=(*backlog_of().queues, *others))


ABSENT = BacklogContents(queues=(QueueContents(path="p/0", index=0, exists=False),), expected=1)
UNREADABLE = BacklogContents(
    queues=(QueueContents(path="p/0", index=0, problem="no right to listen"),), expected=1
)
MAY_BE_MORE = (
    "Backlog queues 0 to 11 are empty. Others may exist, because the queues could not be listed."
)


@pytest.mark.parametrize(
    ("primary", "secondary", "backlog", "status", "text"),
    [
        (UP, UP, backlog_of(), 0, "Both namespaces are available. The backlog is empty."),
        (DOWN, DOWN, None, 1, "Neither namespace is available."),
        (UP, DOWN, None, 1, "The secondary is not available. The backlog could not be read."),
        (
            UP,
            UNAUTHORIZED,
            None,
            1,
            "The secondary rejects the token. The backlog could not be read.",
        ),
        (
            UNAUTHORIZED,
            DOWN,
            None,
            1,
            "The primary rejects the token. The secondary is not available. ",
        ),
        (UNAUTHORIZED, UP, backlog_of(), 1, "The primary rejects the token. The backlog is empty."),
        (DOWN, UP, backlog_of(), 1, "The primary is not available. The backlog is empty."),
        (
            DOWN,
            UP,
            backlog_of(1),
            1,
            "The primary is not available. 1 message waits in the backlog.",
        ),
        (UP, UP, ABSENT, 1, "No backlog queue was found"),
        (UP, UP, without_listing(), 4, f"Both namespaces are available. {MAY_BE_MORE}"),
        (DOWN, UP, without_listing(), 1, f"The primary is not available. {MAY_BE_MORE}"),
        (UP, UP, without_listing(3), 3, "At least 3 messages wait in the backlog."),
        (
            UP,
            UP,
            with_unexpected_queues(0),
            0,
            "Both namespaces are available. The backlog is empty.",
        ),
        (
            *(UP, UP, with_unexpected_queues(0, 4, 1), 3),
            (
                "5 messages wait in the backlog. 5 of them are in backlog queues 6 to 7, beyond "
                "--backlog-queues 2."
            ),
        ),
        (UP, UP, UNREADABLE, 1, "The backlog could not be read."),
        (DOWN, UP, UNREADABLE, 1, "The primary is not available. The backlog could not be read."),
        (UP, UP, backlog_of(1200), 3, "1,200 messages wait in the backlog."),
        (UP, UP, backlog_of(dead=1), 3, "1 message is dead-lettered. See: pairbus dead-letters"),
        (UP, UP, backlog_of(1, more_messages=True), 3, "At least 1 message waits in the backlog."),
        (
            UP,
            UP,
            backlog_of(1, 2),
            3,
            "1 message waits in the backlog. 2 messages are dead-lettered",
        ),
    ],
)
def test_summary_is_one_line_and_a_condition(
    primary: ProbeResult,
    secondary: ProbeResult,
    backlog: BacklogContents | None,
    status: int,
    text: str,
) -> None:
    summary = summarize({"primary": primary, "secondary": secondary}, backlog, None)

    assert int(summary.condition) == status
    assert summary.text.startswith(text)
    assert "\n" not in summary.text


@pytest.mark.parametrize(
    ("syphon", "text"),
    [
        (SyphonSummary(True), "1 message waits in the backlog, and a syphon is running."),
        (
            SyphonSummary(True, "stuck"),
            "1 message waits in the backlog, and the syphon reports a problem.",
        ),
        (SyphonSummary(False, "gone"), "1 message waits in the backlog, and no syphon is running."),
    ],
)
def test_summary_contains_the_state_of_the_syphon(syphon: SyphonSummary, text: str) -> None:
    summary = summarize({"primary": UP, "secondary": UP}, backlog_of(1), syphon)

    assert (int(summary.condition), summary.text) == (3, text)


@pytest.mark.parametrize(
    ("changes", "running", "problem"),
    [
        ({}, True, None),
        ({"healthy": False, "problem": "nothing was confirmed"}, True, "nothing was confirmed"),
        ({"running": False}, False, "it has stopped"),
        ({"time": NOW - STALE_S - 1}, False, "it has not reported for 16 s"),
        ({"remaining": None}, True, None),
    ],
)
def test_syphon_is_running_according_to_a_status_file_that_is_not_stale(
    changes: dict[str, Any], running: bool, problem: str | None
) -> None:
    syphon = parse_syphon_status(FILE | changes, NOW)

    assert syphon.running is running
    assert syphon.moved == 7
    assert (syphon.problem or "").startswith(problem or "")
    assert (syphon.problem is None) is (problem is None)
    assert syphon.rate == (2.5 if running else 0)


def test_missing_status_file_means_that_no_syphon_runs() -> None:
    syphon = parse_syphon_status(None, NOW)

    assert not syphon.running
    assert "has not started" in (syphon.problem or "")


@pytest.mark.parametrize("values", [{}, [], 5, "text", FILE | {"time": "now"}])
def test_other_file_is_rejected(values: Any) -> None:
    with pytest.raises(ConfigurationError, match="not the status file of a syphon"):
        parse_syphon_status(values, NOW)


def test_counts_of_unreadable_queues_are_unknown_and_not_zero() -> None:
    assert (UNREADABLE.messages, UNREADABLE.dead_lettered) == (None, None)
    assert (ABSENT.messages, ABSENT.found) == (0, ())
    partly = replace(backlog_of(2), queues=(*backlog_of(2).queues, *UNREADABLE.queues))
    assert (partly.messages, partly.more_messages) == (2, True)
