"""The syphon on a standalone cluster of Spark, as docs/cluster.md describes it.

Each worker is in a network namespace of its own. The Python of the workers has neither pairbus nor
the Azure SDK.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.backlog import Backlog
from tests.cluster.networks import NetworkNamespace
from tests.cluster.servers import SparkServer, free_port, master, worker, worker_environment
from tests.faults.backlog_messages import MANY, BacklogMessages
from tests.faults.lock_clock import LockClock
from tests.faults.syphon_process import SyphonProcess
from tests.processes import all_processes, frozen
from tests.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


class Cluster:
    """A master and two workers."""

    def __init__(self, folder: Path, resources: ExitStack) -> None:
        self.folder = folder
        self._resources = resources
        self.python = worker_environment(folder / "python")
        self.networks = [resources.enter_context(NetworkNamespace(index)) for index in (0, 1)]
        self.host = self.networks[0].host
        self.url = f"spark://{self.host}:{free_port(self.host)}"
        self.master = self.start_master("master.log")
        self.workers: dict[int, SparkServer] = {}
        self._started = 0

    def start_master(self, log: str) -> SparkServer:
        port = int(self.url.rpartition(":")[2])
        server = self._resources.enter_context(master(self.folder / log, self.host, port))
        server.wait_for("New state: ALIVE")
        return server

    def start_worker(self, index: int) -> SparkServer:
        self._started += 1
        folder = self.folder / f"worker-{index}-{self._started}"
        server = worker(folder, self.networks[index], self.url)
        self.workers[index] = self._resources.enter_context(server)
        server.wait_for("Successfully registered with master")
        return server

    def executors(self, index: int) -> list[int]:
        """Return the executors of a worker."""
        pids = set(self.workers[index].pids())
        return [
            process.pid
            for process in all_processes()
            if process.pid in pids and "CoarseGrainedExecutorBackend" in " ".join(process.arguments)
        ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as resources:
        yield Cluster(tmp_path_factory.mktemp("cluster"), resources)


@pytest.fixture(scope="module")
def clock() -> LockClock:
    return LockClock()


@pytest.fixture(scope="module")
def backlog(cluster: Cluster, clock: LockClock) -> Iterator[Backlog]:
    settings = {"host": cluster.host, "allow_plaintext": True}
    with (
        LocalNamespace("primary", **settings) as primary,
        LocalNamespace("secondary", now_ms=clock, **settings) as secondary,
    ):
        yield Backlog(primary, secondary)


@pytest.fixture(scope="module")
def syphon(cluster: Cluster, backlog: Backlog) -> Iterator[SyphonProcess]:
    """`pairbus syphon` on the cluster, which has no worker yet."""
    with SyphonProcess(
        cluster.folder / "syphon",
        *(*backlog.arguments, "--master", cluster.url, "--executor-timeout", "45"),
        *("--status-file", str(cluster.folder / "status.json")),
        **backlog.variables,
        PYSPARK_PYTHON=str(cluster.python),
        SPARK_LOCAL_IP=cluster.host,
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
    (busy,) = [index for index in (0, 1) if _runs_a_task(cluster, index)]

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
    (busy,) = [index for index in (0, 1) if _runs_a_task(cluster, index)]
    with frozen(*_task_side(cluster, busy), *cluster.executors(busy)):
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


def _task_side(cluster: Cluster, index: int) -> list[int]:
    pids = set(cluster.workers[index].pids())
    return [
        process.pid
        for process in all_processes()
        if process.pid in pids and process.arguments[-2:] == ["pyspark.daemon", "pyspark.worker"]
    ]


def _runs_a_task(cluster: Cluster, index: int) -> bool:
    """Return True if a Python worker of a machine has connections to a namespace."""
    for pid in _task_side(cluster, index):
        links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
        if sum(link.startswith("socket:") for link in links) > 1:
            return True
    return False
