"""A syphon continues when parts of Spark are killed or frozen."""

from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.faults.syphon_kit import (
    MANY,
    BacklogMessages,
    Clock,
    DelayedAnswer,
    SyphonProcess,
    is_gone,
    kill,
    syphon,
    wait_until,
)
from tests.spark.kit import Backlog

pytestmark = pytest.mark.timeout(900)
LOCK_S = 61.0


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def backlog(clock: Clock) -> Iterator[Backlog]:
    with (
        LocalNamespace("primary") as primary,
        LocalNamespace("secondary", now_ms=clock) as secondary,
    ):
        yield Backlog(primary, secondary, name="spark")


@pytest.fixture(scope="module")
def running(backlog: Backlog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyphonProcess]:
    """A syphon on Spark with four attempts for each task."""
    folder = tmp_path_factory.mktemp("running") / "syphon"
    with syphon(backlog, folder, "--master", "local[2,4]") as process:
        yield process
        process.stop()


@pytest.mark.soak
@pytest.mark.rule("X1", "X2", "Y2")
def test_task_is_retried_when_its_python_worker_is_killed(
    backlog: Backlog, running: SyphonProcess, clock: Clock
) -> None:
    messages = BacklogMessages(backlog, "worker")
    answer = DelayedAnswer(backlog.primary.connection_string, messages.exact)
    messages.put(MANY)
    wait_until(lambda: answer.happened, "a delivery without an answer")
    wait_until(lambda: bool(messages.in_both_places()), "a message to arrive")
    assert messages.not_sent()

    workers = running.task_workers()
    assert workers
    kill(*workers)
    clock.advance(LOCK_S)

    wait_until(lambda: messages.left() == 0, "the backlog to be empty")
    messages.put(100)
    wait_until(lambda: messages.left() == 0, "the backlog to be empty again")
    assert running.runs
    assert running.task_workers().keys().isdisjoint(workers)
    assert "worker exited unexpectedly" in running.output
    messages.check()


@pytest.mark.rule("X1", "X2", "Y2")
def test_driver_that_is_frozen_until_its_locks_expire_loses_nothing(
    backlog: Backlog, running: SyphonProcess, clock: Clock
) -> None:
    messages = BacklogMessages(backlog, "frozen")
    unsettled_before = running.unsettled
    answer = DelayedAnswer(backlog.primary.connection_string, messages.exact, seconds=10)
    messages.put(1000)
    wait_until(lambda: answer.happened, "a delivery without an answer")

    with running.frozen():
        assert has_locks(backlog)
        clock.advance(LOCK_S)
        wait_until(lambda: not has_locks(backlog), "the locks to expire")

    wait_until(lambda: messages.left() == 0, "the backlog to be empty")
    messages.check()
    # Messages that arrived after their locks had expired were delivered again, and were counted.
    arrived = len(messages.arrived(messages.plain))
    wait_until(lambda: running.writer_status().moved[messages.plain] == arrived, "the last status")
    assert messages.duplicates()
    arrivals = sum(running.writer_status().moved[path] for path in (messages.exact, messages.plain))
    assert arrivals - 2 * len(messages.sent) == running.unsettled - unsettled_before


def has_locks(backlog: Backlog) -> bool:
    """Return whether any message of the backlog is locked."""
    return backlog.secondary.call(
        lambda core: any(
            core.entities.source(queue)[1].next_lock_expiry_ms() is not None
            for queue in backlog.queues
        )
    )


@pytest.mark.rule("X1", "X2", "Y1", "Y2")
@pytest.mark.soak
def test_killed_executor_is_replaced(tmp_path: Path) -> None:
    clock = Clock()
    with (
        LocalNamespace("primary") as primary,
        LocalNamespace("secondary", now_ms=clock) as secondary,
    ):
        backlog = Backlog(primary, secondary, name="executor")
        messages = BacklogMessages(backlog, "orders")
        # Messages in one queue are one task, so that only one executor works.
        messages.put(MANY, (0,))
        answer = DelayedAnswer(primary.connection_string, messages.exact)
        # Executors write to Spark's home folder, so the test needs a copy of it.
        home = tmp_path / "spark"
        home.mkdir()
        for part in Path(pyspark.__path__[0]).iterdir():
            (home / part.name).symlink_to(part)
        master = ("--master", "local-cluster[2,1,1024]")
        with syphon(backlog, tmp_path / "syphon", *master, SPARK_HOME=str(home)) as process:
            wait_until(lambda: answer.happened, "a delivery without an answer")
            wait_until(lambda: bool(messages.in_both_places()), "a message to arrive")
            expected_duplicates = messages.in_both_places()
            assert messages.not_sent()
            (executor,) = set(process.task_workers().values())
            assert executor in process.executors()
            killed = [executor, *process.task_workers()]
            kill(*killed)
            possible_duplicates = expected_duplicates | messages.in_both_places()
            clock.advance(LOCK_S)
            wait_until(lambda: messages.left() == 0, "the backlog to be empty")
            messages.put(500)
            wait_until(lambda: messages.left() == 0, "the backlog to be empty again")
            assert executor not in process.task_workers().values()
            unsettled = process.unsettled
            process.stop()
        assert all(map(is_gone, killed))

        messages.check()
        assert messages.duplicates() >= expected_duplicates
        assert len(messages.duplicates() - possible_duplicates) <= unsettled
