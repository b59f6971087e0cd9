"""The syphon on a standalone cluster of Spark, as docs/how-to/cluster.md describes it."""

from collections.abc import Iterator

import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.backlog import Backlog
from tests.cluster.standalone import Cluster
from tests.faults.backlog_messages import MANY, BacklogMessages
from tests.faults.lock_clock import LockClock
from tests.faults.syphon_process import SyphonProcess
from tests.processes import frozen
from tests.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    return Backlog(*namespaces)


@pytest.fixture(scope="module")
def syphon(cluster: Cluster, backlog: Backlog) -> Iterator[SyphonProcess]:
    """`pairbus syphon` on the cluster, which has no worker yet."""
    status_file = str(cluster.folder / "status.json")
    with cluster.start_syphon(
        "syphon", *backlog.arguments, "--status-file", status_file, **backlog.variables
    ) as process:
        yield process


@pytest.mark.rule("Y1")
def test_executors_that_come_late_drain_the_backlog(
    cluster: Cluster, backlog: Backlog, syphon: SyphonProcess
) -> None:
    messages = BacklogMessages(backlog, "late")
    messages.put(500)
    cluster.start_worker(0)
    messages.wait_until_drained()
    messages.check()

    cluster.start_worker(1)
    wait_until(lambda: cluster.executors(1), "an executor of the second worker")
    messages.put(500)
    messages.wait_until_drained()
    messages.check()
    assert syphon.runs


@pytest.mark.rule("X1", "Y1")
def test_lost_worker_is_replaced_by_the_other(
    cluster: Cluster, backlog: Backlog, syphon: SyphonProcess, clock: LockClock
) -> None:
    messages = BacklogMessages(backlog, "lost")
    answer = messages.delay_answer()
    messages.put(MANY, (0,))
    messages.wait_for_unsettled(answer)
    busy = cluster.busy_worker()

    cluster.workers[busy].kill()
    clock.expire_locks()

    messages.wait_until_drained()
    messages.check()
    assert syphon.runs
    cluster.start_worker(busy)
    wait_until(lambda: cluster.executors(busy), "an executor of the worker that came back")


@pytest.mark.rule("X1", "Y1")
def test_frozen_executor_does_not_hold_up_the_backlog(
    cluster: Cluster, backlog: Backlog, syphon: SyphonProcess, clock: LockClock
) -> None:
    messages = BacklogMessages(backlog, "frozen")
    answer = messages.delay_answer()
    messages.put(1000, (0,))
    messages.wait_for_unsettled(answer)
    busy = cluster.busy_worker()
    with frozen(*cluster.task_side(busy)):
        clock.expire_locks()
        messages.put(500, (1,))
        messages.wait_until_drained()
    messages.check()
    assert syphon.runs


def test_cluster_without_executors_is_reported_and_ends_the_syphon(
    cluster: Cluster, backlog: Backlog, syphon: SyphonProcess
) -> None:
    cluster.master.kill()
    for server in cluster.workers.values():
        server.kill()
    cluster.start_master("master-2.log")
    messages = BacklogMessages(backlog, "starved")
    messages.put(10)

    wait_until(lambda: not syphon.runs, "the syphon to end")

    assert syphon.exit_code == 1
    assert "Traceback" not in syphon.output
    assert "no executors" in syphon.output
    assert messages.left() == 20
    status = (cluster.folder / "status.json").read_text()
    assert '"running": false' in status
    assert "no executors" in status
