"""A standalone cluster of Spark: a master and two workers, each in a network namespace of its own.

The Python of the workers has neither pairbus nor the Azure SDK.
"""

import re
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from tests.cluster.networks import NetworkNamespace
from tests.cluster.servers import SparkServer, free_port, master, worker, worker_environment
from tests.faults.syphon_process import SyphonProcess
from tests.processes import Process, all_processes
from tests.waiting import wait_until

_STARTED = re.compile(r"Running task \d+\.(\d+) in stage \S+ \(TID (\d+)\)")
_ENDED = re.compile(
    r"(?:Finished|Exception in|Executor (?:interrupted and )?killed|Not reporting error .*) "
    r"task \S+ in stage \S+ \(TID (\d+)\)"
)


class Cluster:
    """A master, and workers with one core each."""

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

    def start_syphon(self, name: str, *arguments: str, **variables: str) -> SyphonProcess:
        """Start `pairbus syphon` on the cluster, in a folder of this name."""
        return SyphonProcess(
            self.folder / name,
            *(*arguments, "--master", self.url, "--executor-timeout", "45"),
            PYSPARK_PYTHON=str(self.python),
            SPARK_LOCAL_IP=self.host,
            **variables,
        )

    def executors(self, index: int) -> list[int]:
        """Return the executors of a worker."""
        return [process.pid for process in self._executors(index)]

    def python_processes(self, index: int) -> dict[int, int]:
        """Return the Python processes of a worker for tasks, and the daemons that they are forked
        from, each with its parent."""
        return {
            process.pid: process.parent for process in self._processes(index) if process.runs_tasks
        }

    def python_workers(self, index: int) -> list[int]:
        """Return the Python processes of a worker for tasks."""
        parents = self.python_processes(index)
        return [pid for pid, parent in parents.items() if parent in parents]

    def task_side(self, index: int) -> list[int]:
        """Return all processes of a worker in which tasks run."""
        return [*self.python_processes(index), *self.executors(index)]

    def attempts(self, index: int) -> dict[int, int]:
        """Return the tasks that executors of a worker have started: the number of the attempt, by
        the id of the task. Later attempts than 0 are retries or speculative copies."""
        logs = self.workers[index].log.parent.glob("work/app-*/*/stderr")
        text = "\n".join(log.read_text() for log in logs)
        return {int(id): int(attempt) for attempt, id in _STARTED.findall(text)}

    def running_tasks(self, index: int) -> set[int]:
        """Return the ids of the tasks that run in the executors of a worker."""
        running: set[int] = set()
        for process in self._executors(index):
            options = dict(pairwise(process.arguments))
            log = f"work/{options['--app-id']}/{options['--executor-id']}/stderr"
            text = (self.workers[index].log.parent / log).read_text()
            running |= {int(id) for _, id in _STARTED.findall(text)}
            running -= set(map(int, _ENDED.findall(text)))
        return running

    def busy_worker(self) -> int:
        """Wait until exactly one worker runs a task, and return its index."""

        def busy() -> list[int]:
            return [index for index in self.workers if self.running_tasks(index)]

        wait_until(lambda: len(busy()) == 1, "one worker to run a task")
        return busy()[0]

    def _executors(self, index: int) -> list[Process]:
        return [
            process
            for process in self._processes(index)
            if "CoarseGrainedExecutorBackend" in " ".join(process.arguments)
        ]

    def _processes(self, index: int) -> list[Process]:
        pids = set(self.workers[index].pids())
        return [process for process in all_processes() if process.pid in pids]
