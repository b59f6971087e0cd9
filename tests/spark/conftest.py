"""Fixtures of the tests on Spark: one session, two namespaces, a backlog."""

import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from pairbus.emulator.namespace import LocalNamespace
from pairbus.spark.connector import register
from pairbus.spark.sessions import create_session
from tests.spark.kit import Backlog


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
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        yield primary, secondary


@pytest.fixture
def short_locks(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    """Return a new backlog whose locks expire after five seconds."""
    return Backlog(*namespaces, name=f"p{uuid4().hex[:8]}", lock_duration=timedelta(seconds=5))


@pytest.fixture
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    """Return a new backlog."""
    return Backlog(*namespaces, name=f"p{uuid4().hex[:8]}")
