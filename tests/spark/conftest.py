"""What the tests on Spark share: one session, two namespaces, a backlog."""

import os
import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from pairbus.emulator.namespace import LocalNamespace
from pairbus.spark.connector import register
from pairbus.syphon.spark_session import own_session
from tests.spark.kit import Backlog


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = own_session("local[2]", "pairbus-tests")
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def namespaces() -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        yield primary, secondary


@pytest.fixture
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    """A backlog of its own for each test."""
    return Backlog(*namespaces, name=f"p{uuid4().hex[:8]}")
