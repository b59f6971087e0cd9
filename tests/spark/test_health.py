"""Health means progress: each way to make none, and coming back."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pairbus.syphon import health
from pairbus.syphon.syphon import Syphon
from tests.spark.kit import Backlog, message, wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.rule("Y8")]
SOON = timedelta(seconds=2)
READER = b"python_streaming_source_runner"


@contextmanager
def running(session: SparkSession, backlog: Backlog, **changes: object) -> Iterator[Syphon]:
    with Syphon(backlog.options(**changes), spark=session) as syphon:
        yield syphon


def wait_for_problem(syphon: Syphon, said: str) -> None:
    wait_until(lambda: said in (syphon.status().problem or ""), f"it to be noticed: {said}")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def readers() -> set[int]:
    """The processes in which our sources plan their micro-batches: children of our Java."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if READER in (folder / "cmdline").read_bytes():
                    pid = int(folder.name)
                    if parent_of(parent_of(pid)) == os.getpid():
                        found.add(pid)
            except OSError:  # it has ended meanwhile
                continue
    return found


def test_a_primary_that_says_nothing_at_all_is_noticed(
    session: SparkSession, backlog: Backlog
) -> None:
    path = backlog.path("silent")
    fault = backlog.primary.add_fault("answer-late", path, seconds=15, count=1)
    with running(session, backlog, stuck_after=SOON) as syphon:
        backlog.put(path, [message("m")])
        wait_until(lambda: fault.fired == 1, "a message that is not answered")
        wait_for_problem(syphon, "no reason is known")
        status = syphon.status()
        assert (status.errors, status.moved.total()) == ({}, 0)

        wait_until(lambda: syphon.status().moved[path] == 1, "the answer")
        wait_until(lambda: syphon.status().healthy, "it to be well again")

    assert backlog.ids(path) == ["m"]


def test_a_backlog_that_cannot_be_read_is_noticed(session: SparkSession, backlog: Backlog) -> None:
    path = backlog.path("one")
    with running(session, backlog, stuck_after=SOON) as syphon:
        backlog.put(path, [message("before")])
        wait_until(lambda: syphon.status().moved[path] == 1, "the first")
        backlog.secondary.stop()
        try:
            wait_for_problem(syphon, "cannot be read")
            assert syphon.status().unreadable is not None
        finally:
            backlog.secondary.start()
        wait_until(lambda: syphon.status().healthy, "it to be well again")
        assert syphon.status().unreadable is None
        backlog.put(path, [message("after")])
        wait_until(lambda: syphon.status().moved[path] == 2, "the second")


def test_a_reader_that_hangs_is_noticed(
    session: SparkSession, backlog: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "SILENT_S", 1.0)
    others = readers()
    with running(session, backlog, stuck_after=3 * SOON) as syphon:
        wait_until(lambda: bool(readers() - others), "the reader")
        (reader,) = readers() - others
        assert syphon._record is not None
        sight = health.ReaderStatusFile(health.sight_beside(syphon._record.path))
        wait_until(lambda: sight.read().looked_at > 0, "it to look at the queues")
        os.kill(reader, signal.SIGSTOP)
        try:
            wait_for_problem(syphon, "nobody looks")
        finally:
            os.kill(reader, signal.SIGCONT)
        wait_until(lambda: syphon.status().healthy, "it to be well again")


def test_a_low_rate_is_not_a_problem_nor_is_what_is_not_to_be_moved(
    session: SparkSession, backlog: Backlog
) -> None:
    path, other = backlog.path("one"), backlog.path("other")
    backlog.put(path, [message(f"m-{n}") for n in range(3)])
    backlog.put(other, [message("not to be moved")], queue=1)
    seen = []
    with running(
        session, backlog, max_rate=0.1, only=(path,), stuck_after=timedelta(seconds=8)
    ) as syphon:

        def moved() -> bool:
            status = syphon.status()
            seen.append(status.problem)
            return status.moved[path] == 3

        wait_until(moved, "all, ten seconds after each other")

    assert set(seen) == {None}
    assert backlog.ids(other) == []
