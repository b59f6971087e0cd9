"""A primary that throttles: the drain slows down, nothing is lost, and it recovers."""

import time
from datetime import timedelta
from itertools import count, islice
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from pairbus.emulator.namespace import LocalNamespace
from pairbus.spark.forwarder import WINDOW
from pairbus.syphon.pacing import FEWEST
from pairbus.syphon.progress import MAX_PAUSE_S, PAUSE_S, WriterStatus, WriterStatusFile
from pairbus.syphon.syphon import Syphon
from tests.spark.kit import Backlog, message, wait_until

pytestmark = pytest.mark.timeout(600)
CORES = 2


@pytest.fixture
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    """One in which what failed comes again soon."""
    return Backlog(*namespaces, name=f"p{uuid4().hex[:8]}", lock_duration=timedelta(seconds=15))


def record_of(syphon: Syphon) -> WriterStatus:
    assert isinstance(syphon._record, WriterStatusFile)
    return syphon._record.read()


def tries_within(seconds: float) -> int:
    """How often a destination that fails each time may be tried."""
    pauses = (min(PAUSE_S * 2**n, MAX_PAUSE_S) for n in count())
    at, tries = 0.0, 1
    for pause in islice(pauses, 1000):
        at += pause
        if at > seconds:
            break
        tries += 1
    return tries


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
        wait_until(lambda: syphon.status().moved[path] >= 500, "it to be noted")
        before = record_of(syphon)
        fault = backlog.primary.add_fault("throttle", path)
        began = time.monotonic()
        backlog.put(path, [message(id, session=in_session) for id in ids[500:]])
        wait_until(lambda: record_of(syphon).failures.get(path, 0) >= 3, "three failures in a row")
        wait_until(lambda: not syphon.status().healthy, "it to be noticed")

        throttled = record_of(syphon)
        tried = tries_within(time.monotonic() - began)
        assert 3 <= fault.fired <= CORES * (WINDOW + tried)
        # Batches in which it was left alone count, too, where they have read past it.
        assert throttled.batches - before.batches <= 2 * tried
        assert throttled.left[path] <= FEWEST + CORES
        assert throttled.moved[path] == before.moved[path]
        assert path in (syphon.status().problem or "")

        backlog.primary.clear_faults()
        wait_until(lambda: backlog.left() == 0, "the backlog to be empty")
        wait_until(lambda: syphon.status().healthy, "it to be well again")
        wait_until(lambda: not record_of(syphon).errors, "the error to be forgotten")

    assert sorted(backlog.ids(path)) == sorted(ids)
    if in_session is not None:
        assert backlog.ids(path) == ids
    assert backlog.dead_letters() == []


@pytest.mark.rule("Y4", "Y8")
@pytest.mark.soak
def test_what_lies_behind_a_destination_that_is_tried_with_few_messages_is_moved(
    session: SparkSession, backlog: Backlog
) -> None:
    down, up = backlog.path("down"), backlog.path("up")
    backlog.put(down, [message(f"down-{n}", session="s") for n in range(4 * FEWEST)])
    fault = backlog.primary.add_fault("throttle", down)
    with Syphon(backlog.options(), spark=session) as syphon:
        wait_until(lambda: record_of(syphon).failures.get(down, 0) >= 2, "it to be tried with few")
        backlog.put(up, [message(f"up-{n}") for n in range(100)])
        wait_until(lambda: syphon.status().moved[up] == 100, "what is behind it")
        assert syphon.status().moved[down] == 0
        assert fault.fired > 0
        backlog.primary.clear_faults()
        wait_until(lambda: backlog.left() == 0, "the rest")

    assert backlog.ids(down) == [f"down-{n}" for n in range(4 * FEWEST)]


@pytest.mark.rule("Y8")
def test_running_once_waits_for_what_was_throttled(session: SparkSession, backlog: Backlog) -> None:
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
def test_running_once_ends_when_it_is_stuck(
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
