"""A syphon continues when parts of Spark are killed or frozen."""

from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.backlog import Backlog
from tests.faults.backlog_messages import MANY, BacklogMessages
from tests.faults.lock_clock import LockClock
from tests.faults.syphon_process import SyphonProcess
from tests.processes import kill, running
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    return Backlog(*namespaces)


@pytest.fixture(scope="module")
def syphon(backlog: Backlog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyphonProcess]:
    """A syphon on embedded Spark, as it is by default."""
    folder = tmp_path_factory.mktemp("running") / "syphon"
    with SyphonProcess(folder, *backlog.arguments, **backlog.variables) as process:
        yield process
        process.stop()


@pytest.mark.soak
@pytest.mark.rule("X1", "X2", "Y2")
def test_task_is_retried_when_its_python_worker_is_killed(
    backlog: Backlog, syphon: SyphonProcess, clock: LockClock
) -> None:
    messages = BacklogMessages(backlog, "worker")
    answer = messages.delay_answer()
    messages.put(MANY)
    messages.wait_for_unsettled(answer)
    assert messages.not_sent()

    workers = syphon.task_workers()
    assert workers
    kill(*workers)
    clock.expire_locks()

    messages.wait_until_drained()
    messages.put(100)
    messages.wait_until_drained()
    assert syphon.runs
    assert syphon.task_workers().keys().isdisjoint(workers)
    assert "worker exited unexpectedly" in syphon.output
    messages.check()


@pytest.mark.soak
@pytest.mark.rule("X1", "X2", "Y2")
def test_driver_that_is_frozen_until_its_locks_expire_loses_nothing(
    backlog: Backlog, syphon: SyphonProcess, clock: LockClock
) -> None:
    messages = BacklogMessages(backlog, "frozen")
    unsettled_before = syphon.unsettled
    answer = messages.delay_answer(seconds=10)
    messages.put(1000)
    answer.wait()

    with syphon.frozen():
        assert has_locks(backlog)
        clock.expire_locks()
        wait_until(lambda: not has_locks(backlog), "the locks to expire")

    messages.wait_until_drained()
    messages.check()
    # Messages that arrived after their locks had expired were delivered again, and were counted.
    arrived = len(messages.arrived(messages.plain))
    wait_until(lambda: syphon.writer_status().moved[messages.plain] == arrived, "the last status")
    assert messages.duplicates()
    arrivals = sum(syphon.writer_status().moved[path] for path in (messages.exact, messages.plain))
    assert arrivals - 2 * len(messages.sent) == syphon.unsettled - unsettled_before


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
def test_killed_executor_is_replaced(
    namespaces: tuple[LocalNamespace, LocalNamespace], clock: LockClock, tmp_path: Path
) -> None:
    backlog = Backlog(*namespaces)
    messages = BacklogMessages(backlog)
    # Messages in one queue are one task, so that only one executor works.
    messages.put(MANY, (0,))
    answer = messages.delay_answer()
    # Executors write to Spark's home folder, so the test needs a copy of it.
    home = tmp_path / "spark"
    home.mkdir()
    for part in Path(pyspark.__path__[0]).iterdir():
        (home / part.name).symlink_to(part)
    with SyphonProcess(
        tmp_path / "syphon",
        *(*backlog.arguments, "--master", "local-cluster[2,1,1024]"),
        **backlog.variables,
        SPARK_HOME=str(home),
    ) as process:
        expected_duplicates = messages.wait_for_unsettled(answer)
        assert messages.not_sent()
        (executor,) = set(process.task_workers().values())
        assert executor in process.executors()
        killed = [executor, *process.task_workers()]
        kill(*killed)
        possible_duplicates = expected_duplicates | messages.in_both_places()
        clock.expire_locks()
        messages.wait_until_drained()
        messages.put(500)
        messages.wait_until_drained()
        assert executor not in process.task_workers().values()
        unsettled = process.unsettled
        process.stop()
    assert running(killed) == []

    messages.check()
    assert messages.duplicates() >= expected_duplicates
    assert len(messages.duplicates() - possible_duplicates) <= unsettled
