"""A primary that throttles: the drain slows down, loses nothing, and recovers."""

import time
from datetime import timedelta
from itertools import count, islice

import pytest

from pairbus.spark.destination_sender import MAX_IN_FLIGHT
from pairbus.syphon.pacing import MIN_RETRY_BATCH
from pairbus.syphon.query import Syphon
from pairbus.syphon.query_status import FileReports
from pairbus.syphon.writer_status import BLOCK_S, MAX_BLOCK_S, WriterStatus
from tests.backlog import Backlog
from tests.messages import message, numbered
from tests.spark.conftest import Drain, MakeSyphon
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
CORES = 2


@pytest.fixture
def lock_duration() -> timedelta:
    return timedelta(seconds=15)


def writer_status(syphon: Syphon) -> WriterStatus:
    assert isinstance(syphon._reports, FileReports)
    return syphon._reports.files.writer.read()


def max_attempts(seconds: float) -> int:
    """Return how often a destination that always fails is tried at most."""
    block_times = (min(BLOCK_S * 2**n, MAX_BLOCK_S) for n in count())
    elapsed, attempts = 0.0, 1
    for block_s in islice(block_times, 1000):
        elapsed += block_s
        if elapsed > seconds:
            break
        attempts += 1
    return attempts


@pytest.mark.rule("Y8", "X1")
@pytest.mark.parametrize("in_session", ["s", None], ids=["session", "no session"])
def test_throttling_slows_the_drain_and_it_recovers(
    backlog: Backlog, make_syphon: MakeSyphon, in_session: str | None
) -> None:
    path = backlog.path("throttled", requires_duplicate_detection=True)
    ids = [f"m-{n}" for n in range(3000)]
    with make_syphon(stuck_after=timedelta(seconds=3)) as syphon:
        backlog.put(path, [message(id, session=in_session) for id in ids[:500]])
        wait_until(lambda: backlog.left() == 0, "the drain to be under way")
        wait_until(lambda: writer_status(syphon).moved[path] >= 500, "the first status")
        before = writer_status(syphon)
        fault = backlog.primary.add_fault("throttle", path)
        began = time.monotonic()
        backlog.put(path, [message(id, session=in_session) for id in ids[500:]])
        wait_until(
            lambda: writer_status(syphon).failures.get(path, 0) >= 3, "three failures in a row"
        )
        wait_until(lambda: not syphon.status().healthy, "the syphon to be unhealthy")

        throttled = writer_status(syphon)
        assert syphon.status().throttled_sends > 0
        attempts = max_attempts(time.monotonic() - began)
        assert 3 <= fault.fired <= CORES * (MAX_IN_FLIGHT + attempts)
        # Some batches only read past the messages of the blocked destination.
        assert throttled.batches - before.batches <= 2 * attempts
        assert throttled.left[path] <= MIN_RETRY_BATCH + CORES
        assert throttled.moved[path] == before.moved[path]
        assert path in (syphon.status().problem or "")

        backlog.primary.clear_faults()
        wait_until(lambda: backlog.left() == 0, "the backlog to be empty")
        wait_until(lambda: syphon.status().healthy, "the syphon to be healthy")
        wait_until(lambda: not writer_status(syphon).errors, "the error to be cleared")

    assert sorted(backlog.ids(path)) == sorted(ids)
    if in_session is not None:
        assert backlog.ids(path) == ids
    assert backlog.dead_letters() == []


@pytest.mark.rule("Y4", "Y8")
@pytest.mark.soak
def test_messages_behind_those_of_a_throttled_destination_are_moved(
    backlog: Backlog, make_syphon: MakeSyphon
) -> None:
    down, up = backlog.path("down"), backlog.path("up")
    backlog.put(down, numbered(4 * MIN_RETRY_BATCH, "down", session="s"))
    fault = backlog.primary.add_fault("throttle", down)
    with make_syphon() as syphon:
        wait_until(
            lambda: writer_status(syphon).failures.get(down, 0) >= 2, "two failures in a row"
        )
        backlog.put(up, numbered(100, "up"))
        wait_until(
            lambda: syphon.status().moved[up] == 100, "the messages for the other destination"
        )
        assert syphon.status().moved[down] == 0
        assert fault.fired > 0
        backlog.primary.clear_faults()
        wait_until(lambda: backlog.left() == 0, "the remaining messages")

    assert backlog.ids(down) == [f"down-{n}" for n in range(4 * MIN_RETRY_BATCH)]


@pytest.mark.rule("Y8")
def test_run_once_waits_for_throttled_messages(backlog: Backlog, drain: Drain) -> None:
    path = backlog.path("throttled")
    backlog.put(path, numbered(200))
    fault = backlog.primary.add_fault("throttle", path, count=2)

    status = drain()

    assert fault.fired == 2
    assert sorted(backlog.ids(path)) == sorted(f"m-{n}" for n in range(200))
    assert status.errors == {}
    assert backlog.left() == 0


@pytest.mark.rule("Y8")
@pytest.mark.parametrize("in_session", ["s", None], ids=["session", "no session"])
def test_run_once_ends_when_there_is_no_progress(
    backlog: Backlog, drain: Drain, in_session: str | None
) -> None:
    path = backlog.path("down")
    backlog.put(path, numbered(10, session=in_session))
    fault = backlog.primary.add_fault("disable", path)

    status = drain(stuck_after=timedelta(seconds=3))
    backlog.primary.clear_faults()

    assert fault.fired > 0
    assert list(status.errors) == [path]
    assert not status.healthy
    assert backlog.left() == 10
