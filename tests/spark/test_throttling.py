"""A primary that throttles: the drain slows down, loses nothing, and recovers."""

import time
from datetime import timedelta
from itertools import count, islice
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from pairbus.emulator.namespace import LocalNamespace
from pairbus.spark.destination_sender import MAX_IN_FLIGHT
from pairbus.syphon.pacing import MIN_RETRY_BATCH
from pairbus.syphon.query import Syphon
from pairbus.syphon.writer_status import BLOCK_S, MAX_BLOCK_S, WriterStatus
from tests.spark.kit import Backlog, message, wait_until

pytestmark = pytest.mark.timeout(600)
CORES = 2


@pytest.fixture
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    """Return a backlog whose locks expire soon."""
    return Backlog(*namespaces, name=f"p{uuid4().hex[:8]}", lock_duration=timedelta(seconds=15))


def writer_status(syphon: Syphon) -> WriterStatus:
    assert syphon._files is not None
    return syphon._files.writer.read()


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
    session: SparkSession, backlog: Backlog, in_session: str | None
) -> None:
    path = backlog.path("throttled", requires_duplicate_detection=True)
    ids = [f"m-{n}" for n in range(3000)]
    options = backlog.options(stuck_after=timedelta(seconds=3))
    with Syphon(options, spark=session) as syphon:
        backlog.put(path, [message(id, session=in_session) for id in ids[:500]])
        wait_until(lambda: backlog.left() == 0, "the drain to be under way")
        wait_until(lambda: syphon.status().moved[path] >= 500, "the first status")
        before = writer_status(syphon)
        fault = backlog.primary.add_fault("throttle", path)
        began = time.monotonic()
        backlog.put(path, [message(id, session=in_session) for id in ids[500:]])
        wait_until(
            lambda: writer_status(syphon).failures.get(path, 0) >= 3, "three failures in a row"
        )
        wait_until(lambda: not syphon.status().healthy, "the syphon to be unhealthy")

        throttled = writer_status(syphon)
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
    session: SparkSession, backlog: Backlog
) -> None:
    down, up = backlog.path("down"), backlog.path("up")
    backlog.put(down, [message(f"down-{n}", session="s") for n in range(4 * MIN_RETRY_BATCH)])
    fault = backlog.primary.add_fault("throttle", down)
    with Syphon(backlog.options(), spark=session) as syphon:
        wait_until(
            lambda: writer_status(syphon).failures.get(down, 0) >= 2, "two failures in a row"
        )
        backlog.put(up, [message(f"up-{n}") for n in range(100)])
        wait_until(
            lambda: syphon.status().moved[up] == 100, "the messages for the other destination"
        )
        assert syphon.status().moved[down] == 0
        assert fault.fired > 0
        backlog.primary.clear_faults()
        wait_until(lambda: backlog.left() == 0, "the remaining messages")

    assert backlog.ids(down) == [f"down-{n}" for n in range(4 * MIN_RETRY_BATCH)]


@pytest.mark.rule("Y8")
def test_run_once_waits_for_throttled_messages(session: SparkSession, backlog: Backlog) -> None:
    path = backlog.path("throttled")
    backlog.put(path, [message(f"m-{n}") for n in range(200)])
    fault = backlog.primary.add_fault("throttle", path, count=2)
    syphon = Syphon(backlog.options(), spark=session)
    syphon.start(once=True)
    assert syphon.wait(120)
    syphon.stop()

    assert fault.fired == 2
    assert sorted(backlog.ids(path)) == sorted(f"m-{n}" for n in range(200))
    assert syphon.status().errors == {}
    assert backlog.left() == 0


@pytest.mark.rule("Y8")
@pytest.mark.parametrize("in_session", ["s", None], ids=["session", "no session"])
def test_run_once_ends_when_there_is_no_progress(
    session: SparkSession, backlog: Backlog, in_session: str | None
) -> None:
    path = backlog.path("down")
    backlog.put(path, [message(f"m-{n}", session=in_session) for n in range(10)])
    fault = backlog.primary.add_fault("disable", path)
    syphon = Syphon(backlog.options(stuck_after=timedelta(seconds=3)), spark=session)
    syphon.start(once=True)
    assert syphon.wait(120)
    syphon.stop()
    backlog.primary.clear_faults()

    assert fault.fired > 0
    assert list(syphon.status().errors) == [path]
    assert not syphon.status().healthy
    assert backlog.left() == 10
