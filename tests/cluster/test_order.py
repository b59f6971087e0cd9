"""The order within sessions when executors of a cluster are killed, frozen and replaced, and when a
frozen syphon wakes up beside another one.

Each message has one destination that keeps the first copy only, so that its order is that of first
arrivals.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.backlog import Backlog
from tests.cluster.standalone import Cluster
from tests.faults.lock_clock import LockClock
from tests.faults.session_messages import LONG_LOCK, SessionMessages, expire_long_locks
from tests.faults.syphon_process import SyphonProcess
from tests.processes import frozen, kill
from tests.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800), pytest.mark.rule("Y10", "X1")]
ANSWER_S = 2.0
"""The time until the primary answers: so long that faults happen in the middle of a drain."""
COUNT = 10_000


@pytest.fixture(scope="module")
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    return Backlog(*namespaces, lock_duration=LONG_LOCK)


@pytest.fixture(scope="module")
def syphon(cluster: Cluster, backlog: Backlog) -> Iterator[SyphonProcess]:
    """`pairbus syphon` on a cluster with two workers."""
    cluster.start_worker(0)
    cluster.start_worker(1)
    with cluster.start_syphon("syphon", *backlog.arguments, **backlog.variables) as process:
        yield process


def retries(cluster: Cluster) -> set[int]:
    """Return the ids of tasks that are not the first attempts."""
    return {
        id
        for index in cluster.workers
        for id, attempt in cluster.attempts(index).items()
        if attempt > 0
    }


def wait_for_retry(cluster: Cluster, before: set[int]) -> None:
    wait_until(lambda: retries(cluster) - before, "another attempt of a task")


@contextmanager
def slow_drain(sessions: SessionMessages) -> Iterator[None]:
    """Store messages, and wait until some of them have arrived. The primary answers late until the
    end of the block."""
    primary = sessions.backlog.primary
    primary.add_fault("answer-late", sessions.path, seconds=ANSWER_S)
    sessions.put(COUNT)
    wait_until(sessions.arrived, "the first messages")
    try:
        yield
    finally:
        primary.clear_faults()


@pytest.mark.parametrize("killed", ["executor", "python"])
def test_killed_executor_or_python_worker(
    cluster: Cluster, backlog: Backlog, syphon: SyphonProcess, clock: LockClock, killed: str
) -> None:
    sessions = SessionMessages(backlog, killed)
    answer = sessions.delay_answer()
    sessions.put()
    sessions.wait_for_locks(answer)
    busy = cluster.busy_worker()
    before = retries(cluster)

    kill(*(cluster.executors(busy) if killed == "executor" else cluster.python_workers(busy)))
    wait_for_retry(cluster, before)
    sessions.put(500)
    expire_long_locks(clock)

    sessions.wait_until_drained()
    sessions.check()
    assert syphon.runs


def test_frozen_executor_that_wakes_up_beside_a_speculative_copy(
    cluster: Cluster, backlog: Backlog, syphon: SyphonProcess, clock: LockClock
) -> None:
    sessions = SessionMessages(backlog, "speculation")
    before = retries(cluster)
    with slow_drain(sessions):
        busy = next(index for index in cluster.workers if cluster.running_tasks(index))
        with frozen(*cluster.task_side(busy)):
            tasks = cluster.running_tasks(busy)
            assert tasks
            expire_long_locks(clock)
            wait_for_retry(cluster, before)
            arrived = len(sessions.arrived())
            wait_until(lambda: len(sessions.arrived()) > arrived, "messages of the copy")
            assert backlog.left() > 0
        # From here on, both attempts send.
        sessions.put(500)
        sessions.wait_until_drained()
    wait_until(lambda: not tasks & cluster.running_tasks(busy), "the frozen tasks to end")
    sessions.check()
    assert syphon.runs


@pytest.mark.parametrize("with_executors", [False, True])
def test_frozen_syphon_that_wakes_up_beside_its_successor(
    cluster: Cluster,
    backlog: Backlog,
    syphon: SyphonProcess,
    clock: LockClock,
    tmp_path: Path,
    with_executors: bool,
) -> None:
    sessions = SessionMessages(backlog, f"frozen-{with_executors}")
    with slow_drain(sessions), ExitStack() as processes:
        with ExitStack() as freeze:
            freeze.enter_context(syphon.frozen())
            if with_executors:
                for index in cluster.workers:
                    freeze.enter_context(frozen(*cluster.task_side(index)))
            # Without the driver, executors still finish the micro-batch.
            sessions.put(COUNT)
            expire_long_locks(clock)
            successor = processes.enter_context(
                SyphonProcess(
                    tmp_path / "successor",
                    *(*backlog.arguments, "--master", "local[2,4]"),
                    **backlog.variables,
                )
            )
            wait_until(lambda: successor.moved_so_far > 0, "messages of the successor")
            assert backlog.left() > 0
        # From here on, both syphons send.
        sessions.wait_until_drained()
        successor.stop()
    sessions.check()
    assert syphon.runs
