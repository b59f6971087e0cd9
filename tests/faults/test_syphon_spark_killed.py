"""Parts of Spark that are killed or frozen under a syphon, which goes on."""

from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.faults.syphon_kit import (
    MANY,
    Cargo,
    Clock,
    Held,
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
    """A syphon on a Spark that tries a task four times."""
    folder = tmp_path_factory.mktemp("running") / "syphon"
    with syphon(backlog, folder, "--master", "local[2,4]") as process:
        yield process
        process.stop()


@pytest.mark.soak
@pytest.mark.rule("X1", "X2", "Y2")
def test_a_task_whose_python_worker_is_killed_is_tried_again(
    backlog: Backlog, running: SyphonProcess, clock: Clock
) -> None:
    cargo = Cargo(backlog, "worker")
    held = Held(backlog.primary.connection_string, cargo.exact)
    cargo.put(MANY)
    wait_until(lambda: held.happened, "a task to be in the middle")
    wait_until(lambda: bool(cargo.in_both_places()), "something to have arrived")
    assert cargo.not_sent()

    workers = running.task_workers()
    assert workers
    kill(*workers)
    clock.put_forward(LOCK_S)

    wait_until(lambda: cargo.left() == 0, "the backlog to be empty")
    cargo.put(100)
    wait_until(lambda: cargo.left() == 0, "more of it")
    assert running.runs
    assert running.task_workers().keys().isdisjoint(workers)
    assert "worker exited unexpectedly" in running.said
    cargo.check()


@pytest.mark.rule("X1", "X2", "Y2")
def test_a_driver_that_is_frozen_for_longer_than_its_locks_loses_nothing(
    backlog: Backlog, running: SyphonProcess, clock: Clock
) -> None:
    cargo = Cargo(backlog, "frozen")
    before = running.unsettled
    held = Held(backlog.primary.connection_string, cargo.exact, seconds=10)
    cargo.put(1000)
    wait_until(lambda: held.happened, "a task to be in the middle")

    with running.frozen():
        assert has_locks(backlog)
        clock.put_forward(LOCK_S)
        wait_until(lambda: not has_locks(backlog), "the locks to expire")

    wait_until(lambda: cargo.left() == 0, "the backlog to be empty")
    cargo.check()
    # What had no lock any more when it arrived came again, and all of that was counted.
    arrived = len(cargo.arrived(cargo.plain))
    wait_until(lambda: running.record().moved[cargo.plain] == arrived, "the last to be noted")
    assert cargo.twice()
    arrivals = sum(running.record().moved[path] for path in (cargo.exact, cargo.plain))
    assert arrivals - 2 * len(cargo.sent) == running.unsettled - before


def has_locks(backlog: Backlog) -> bool:
    """Whether messages of the backlog are locked."""
    return backlog.secondary.call(
        lambda core: any(
            core.entities.source(queue)[1].next_lock_expiry_ms() is not None
            for queue in backlog.queues
        )
    )


@pytest.mark.rule("X1", "X2", "Y1", "Y2")
@pytest.mark.soak
def test_an_executor_that_is_killed_is_replaced(tmp_path: Path) -> None:
    clock = Clock()
    with (
        LocalNamespace("primary") as primary,
        LocalNamespace("secondary", now_ms=clock) as secondary,
    ):
        backlog = Backlog(primary, secondary, name="executor")
        cargo = Cargo(backlog, "orders")
        # One queue is one task, so that one executor has work.
        cargo.put(MANY, (0,))
        held = Held(primary.connection_string, cargo.exact)
        # Executors write below Spark's home.
        home = tmp_path / "spark"
        home.mkdir()
        for part in Path(pyspark.__path__[0]).iterdir():
            (home / part.name).symlink_to(part)
        master = ("--master", "local-cluster[2,1,1024]")
        with syphon(backlog, tmp_path / "syphon", *master, SPARK_HOME=str(home)) as process:
            wait_until(lambda: held.happened, "a task to be in the middle")
            wait_until(lambda: bool(cargo.in_both_places()), "something to have arrived")
            twice = cargo.in_both_places()
            assert cargo.not_sent()
            (executor,) = set(process.task_workers().values())
            assert executor in process.executors()
            doomed = [executor, *process.task_workers()]
            kill(*doomed)
            at_most = twice | cargo.in_both_places()
            clock.put_forward(LOCK_S)
            wait_until(lambda: cargo.left() == 0, "the backlog to be empty")
            cargo.put(500)
            wait_until(lambda: cargo.left() == 0, "more of it")
            assert executor not in process.task_workers().values()
            unsettled = process.unsettled
            process.stop()
        assert all(map(is_gone, doomed))

        cargo.check()
        assert cargo.twice() >= twice
        assert len(cargo.twice() - at_most) <= unsettled
