"""A syphon without progress is unhealthy, whatever the reason, until there is progress again."""

import os
import signal
from datetime import timedelta

import pytest

from pairbus.syphon import status
from pairbus.syphon.query import Syphon
from pairbus.syphon.query_status import FileReports
from tests.backlog import Backlog
from tests.messages import message, numbered
from tests.processes import all_processes
from tests.spark.conftest import MakeSyphon
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.rule("Y8")]
SOON = timedelta(seconds=2)
READER = "streaming_sourc"
"""The name of the processes in which Spark plans micro-batches."""


def wait_for_problem(syphon: Syphon, text: str) -> None:
    wait_until(lambda: text in (syphon.status().problem or ""), f"the problem {text!r}")


def readers() -> set[int]:
    """Return the processes in which Spark plans micro-batches for this test."""
    processes = {process.pid: process for process in all_processes()}
    return {
        process.pid
        for process in processes.values()
        if process.name == READER
        # They are forked from a child of the test process.
        and process.parent in processes
        and processes[process.parent].parent == os.getpid()
    }


def test_primary_that_does_not_answer_is_a_problem(
    backlog: Backlog, make_syphon: MakeSyphon
) -> None:
    path = backlog.path("silent")
    fault = backlog.primary.add_fault("answer-late", path, seconds=15, count=1)
    with make_syphon(stuck_after=SOON) as syphon:
        backlog.put(path, [message("m")])
        wait_until(lambda: fault.fired == 1, "a message without an answer")
        wait_for_problem(syphon, "the reason is not known")
        stuck = syphon.status()
        assert (stuck.errors, stuck.moved.total()) == ({}, 0)

        wait_until(lambda: syphon.status().moved[path] == 1, "the answer")
        wait_until(lambda: syphon.status().healthy, "the syphon to be healthy")

    assert backlog.ids(path) == ["m"]


def test_backlog_that_cannot_be_read_is_a_problem(
    backlog: Backlog, make_syphon: MakeSyphon
) -> None:
    path = backlog.path("one")
    with make_syphon(stuck_after=SOON) as syphon:
        backlog.put(path, [message("before")])
        wait_until(lambda: syphon.status().moved[path] == 1, "the first message")
        backlog.secondary.stop()
        try:
            wait_for_problem(syphon, "cannot be read")
            assert syphon.status().unreadable is not None
        finally:
            backlog.secondary.start()
        wait_until(lambda: syphon.status().healthy, "the syphon to be healthy")
        assert syphon.status().unreadable is None
        backlog.put(path, [message("after")])
        wait_until(lambda: syphon.status().moved[path] == 2, "the second message")


def test_reader_that_hangs_is_a_problem(
    backlog: Backlog, make_syphon: MakeSyphon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "STARTUP_S", 1.0)
    others = readers()
    with make_syphon(stuck_after=3 * SOON) as syphon:
        wait_until(lambda: bool(readers() - others), "the reader")
        (reader,) = readers() - others
        assert isinstance(syphon._reports, FileReports)
        files = syphon._reports.files
        wait_until(lambda: files.reader.read().reported_at > 0, "the first report of the reader")
        os.kill(reader, signal.SIGSTOP)
        try:
            wait_for_problem(syphon, "the backlog reader stopped reporting")
        finally:
            os.kill(reader, signal.SIGCONT)
        wait_until(lambda: syphon.status().healthy, "the syphon to be healthy")


def test_rate_limit_and_messages_for_other_paths_are_not_a_problem(
    backlog: Backlog, make_syphon: MakeSyphon
) -> None:
    path, other = backlog.path("one"), backlog.path("other")
    backlog.put(path, numbered(2))
    backlog.put(other, [message("not to be moved")], queue=1)
    problems = []
    with make_syphon(max_rate=0.1, only=(path,), stuck_after=timedelta(seconds=8)) as syphon:

        def moved() -> bool:
            current = syphon.status()
            problems.append(current.problem)
            return current.moved[path] == 2

        wait_until(moved, "all messages, one in ten seconds")

    assert set(problems) == {None}
    assert backlog.ids(other) == []
