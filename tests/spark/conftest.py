"""Fixtures of the tests on Spark: one session, two namespaces, a backlog, and syphons for it."""

import os
import sys
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
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


class SparkOutput:
    """The log and the event log of Spark, and the pages of its web interface."""

    PAGES = ("environment", "SQL", "StreamingQuery", "jobs", "stages", "executors")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "stderr.log"
        """The standard error of the JVM and of the workers."""

    def files(self) -> list[Path]:
        return [file for file in self.folder.rglob("*") if file.is_file()]

    def pages(self, session: SparkSession) -> dict[str, bytes]:
        """Return the content of the pages by their addresses."""
        context = session.sparkContext
        api = f"api/v1/applications/{context.applicationId}"
        names = [f"{page}/" for page in self.PAGES] + [f"{api}/environment", f"{api}/sql"]
        urls = [f"{context.uiWebUrl}/{name}" for name in names]
        return {url: urllib.request.urlopen(url, timeout=DEADLINE_S).read() for url in urls}


@pytest.fixture(scope="session")
def spark_output(tmp_path_factory: pytest.TempPathFactory) -> SparkOutput:
    return SparkOutput(tmp_path_factory.mktemp("events"))


@pytest.fixture(scope="session")
def session(spark_output: SparkOutput) -> Iterator[SparkSession]:
    """A Spark session for all tests of a worker."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"enabled": "true", "compress": "false", "dir": spark_output.folder.as_uri()}
    options = [f"-Dspark.eventLog.{name}={value}" for name, value in settings.items()]
    with pytest.MonkeyPatch.context() as patches:
        patches.setenv("SPARK_SUBMIT_OPTS", " ".join(options), prepend=" ")
        session = create_session("local[2]", "pairbus-tests", log=spark_output.log)
    register(session)
    yield session
    session.stop()
    print(spark_output.log.read_text())


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
