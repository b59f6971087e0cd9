"""Fixtures of the tests on Spark: one session, two namespaces, a backlog, and syphons for it."""

import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pairbus.emulator.namespace import LocalNamespace
from pairbus.spark.connector import register
from pairbus.spark.sessions import create_session
from pairbus.syphon import Syphon, SyphonStatus
from tests.backlog import Backlog
from tests.tiers import TEST_TIER
from tests.waiting import DEADLINE_S, wait_until

MakeSyphon = Callable[..., Syphon]
Drain = Callable[..., SyphonStatus]


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    """A Spark session for all tests of a worker."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = create_session("local[2]", "pairbus-tests")
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def namespaces() -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with (
        LocalNamespace("primary", tier=TEST_TIER) as primary,
        LocalNamespace("secondary", tier=TEST_TIER) as secondary,
    ):
        yield primary, secondary


@pytest.fixture
def lock_duration() -> timedelta:
    """The lock duration of the backlog queues."""
    return timedelta(minutes=1)


@pytest.fixture
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace], lock_duration: timedelta) -> Backlog:
    """Return a new backlog."""
    return Backlog(*namespaces, lock_duration=lock_duration)


@pytest.fixture
def make_syphon(session: SparkSession, backlog: Backlog) -> MakeSyphon:
    """Make a syphon for the backlog, with changes to its options. It runs in a `with` block."""
    return lambda **changes: Syphon(backlog.options(**changes), spark=session)


@pytest.fixture
def drain(backlog: Backlog, make_syphon: MakeSyphon) -> Drain:
    """Run a syphon with `once`, and return its final status. `after_peek` is called when it has
    peeked at the queues to see if they are empty."""

    def run(after_peek: Callable[[], object] | None = None, **changes: Any) -> SyphonStatus:
        syphon = make_syphon(**changes)
        syphon.start(once=True)
        try:
            if after_peek is not None:
                wait_until(lambda: backlog.peeks() > 0 or not syphon.status().running, "a peek")
                after_peek()
            assert syphon.wait(DEADLINE_S)
        finally:
            syphon.stop()
        return syphon.status()

    return run
