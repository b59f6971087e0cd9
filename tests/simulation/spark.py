"""Spark, as far as a syphon notices it: a driver that plans micro-batches, and Python workers.

The stream reader, the planner, the long polls, the tasks that read and those that write are the
real ones. A task reads in one worker process and writes in another, at the same time, and the rows
pass between them in Arrow batches. Workers serve many tasks. A task whose worker dies is tried
again, up to four times; a task can run twice at once (speculation), and can start late.
"""

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import copy
from datetime import timedelta
from pathlib import Path
from typing import Any

from pairbus.amqp.client import ClientOptions
from pairbus.backlog.syphon_control import Control, ControlFile
from pairbus.spark.plans import PartitionPlan
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.sink import BacklogSink
from pairbus.syphon.source import backlog_reader, backlog_stream_reader
from pairbus.syphon.status_file import StatusFiles
from tests.simulation import spark_globals
from tests.simulation.journal import Journal
from tests.simulation.plan import Plan
from tests.simulation.scheduler import Machine, Process, ProcessKilled
from tests.simulation.world import World

MAX_ATTEMPTS = 4
MAX_BUFFERED = 2
"""Arrow batches between the two workers of a task."""
TRIGGER_S = 0.6
"""The time between two questions of Spark for new data."""
PLAN_S = 0.05
"""The time that Spark needs to start a micro-batch."""
STOP_S = 10.0
"""The time for which the end of a query waits for its polls."""
RESTART_S, ONCE_EVERY_S = 2.0, 10.0
"""The pause before a query that failed is started again, and between two runs with `once`."""


class Job:
    """Work for one worker process."""

    def __init__(self, work: Callable[[], Any], attempt: spark_globals.Attempt) -> None:
        self.work = work
        self.attempt = attempt
        self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None


class Worker:
    """A Python process of Spark. It serves one job after the other."""

    def __init__(self, syphon: "SimulatedSyphon", kind: str) -> None:
        self.kind = kind
        self.job: Job | None = None
        self._syphon = syphon
        syphon.worker_count += 1
        self.process = syphon.world.process(f"{kind}{syphon.worker_count}", syphon.machine)
        self._task = self.process.spawn(self._main)

    @property
    def idle(self) -> bool:
        return self.process.alive and self.job is None

    def run(self, job: Job) -> None:
        self.job = job
        self._task.wake()

    def _main(self) -> None:
        while True:
            while self.job is None:
                self._task.wait(None)
            job = self.job
            self._task.context = job.attempt
            try:
                job.result = job.work()
            except Exception as exc:  # noqa: BLE001  it fails the task
                job.error = exc
                self._syphon.world.trace(self.process.name, f"failed: {exc!r}"[:300])
            job.ended = True
            self.job = None
            self._syphon.wake()


class Pipe:
    """Arrow batches on their way from the reader to the writer of a task."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._batches: list[Any] = []
        self._closed = False
        self._waiting: list[Any] = []

    def _wait(self) -> None:
        task = self._world.scheduler.current_task()
        self._waiting.append(task)
        task.wait(None)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            task.wake()

    def write(self, batches: Iterator[Any]) -> None:
        for batch in batches:
            while len(self._batches) >= MAX_BUFFERED:
                self._wait()
            self._batches.append(batch)
            self._wake()
        self._closed = True
        self._wake()

    def read(self) -> Iterator[Any]:
        while True:
            while not self._batches and not self._closed:
                self._wait()
            if not self._batches:
                return
            batch = self._batches.pop(0)
            self._wake()
            yield batch


class TaskAttempt:
    """One attempt of a task: its two workers."""

    def __init__(
        self, syphon: "SimulatedSyphon", partition: PartitionPlan, sink: BacklogSink, number: int
    ) -> None:
        options = syphon.options
        pipe = Pipe(syphon.world)
        reader, sink = backlog_reader(options), copy(sink)
        attempt = spark_globals.Attempt(number, syphon.settled_messages(), syphon.paused_paths)
        self.reading = Job(lambda: pipe.write(reader.read(partition)), attempt)
        self.writing = Job(lambda: sink.write(pipe.read()), attempt)
        self.workers = (syphon.worker("reader"), syphon.worker("writer"))
        self.workers[0].run(self.reading)
        self.workers[1].run(self.writing)
        self._syphon = syphon

    @property
    def succeeded(self) -> bool:
        return (
            self.reading.ended
            and self.writing.ended
            and self.reading.error is None
            and self.writing.error is None
        )

    @property
    def failed(self) -> bool:
        for job, worker in zip((self.reading, self.writing), self.workers, strict=True):
            if job.error is not None or (not job.ended and not worker.process.alive):
                return True
        return False

    def kill(self) -> None:
        """End the workers that are still busy with this attempt."""
        for job, worker in zip((self.reading, self.writing), self.workers, strict=True):
            if not job.ended:
                self._syphon.world.kill(worker.process)


class SimulatedSyphon:
    """A syphon: its driver and its workers, on one machine. It starts again after a kill."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        number: int,
        journal: Journal,
        primary: ClientOptions,
        secondary: ClientOptions,
        *,
        ledger: str | None = None,
        left_since: Callable[[float], str | None],
        settled_messages: Callable[[], frozenset[str]],
    ) -> None:
        """`left_since` returns a message that is in the backlog since before a time, if any,
        `settled_messages` those that were stored in the backlog and are not there any more."""
        self.world = world
        self.plan = plan
        self.name = f"syphon{number}"
        self.journal = journal
        self.machine = Machine(
            self.name,
            offset_s=plan.clock_offset_s,
            rate=plan.clock_rate,
        )
        self.options = SyphonOptions(
            primary=primary,
            secondary=secondary,
            primary_name="primary",
            backlog_queue_count=plan.backlog_queues,
            poll=timedelta(seconds=60),
            stuck_after=timedelta(seconds=60),
            ledger=ledger,
        )
        self.workers: list[Worker] = []
        self.worker_count = 0
        self.late_s = 0.0
        """The delay of the next task that starts."""
        self.runs_twice = False
        """The next task runs twice at once."""
        self.left_polls = False
        """A query has ended before its polls did, so the ledger lacks them."""
        self.batches = 0
        self.times_drained = 0
        self.stopping = False
        self.paused_paths: tuple[str, ...] = ()
        """The paths that were paused when the last micro-batch was planned, or planned again."""
        self.process: Process
        self._left_since = left_since
        self.settled_messages = settled_messages
        self._folder: Path | None = None
        self._planned, self._committed = 0, 0
        """The offsets in the checkpoint of the query."""
        self._main_task: Any = None

    # Life.

    def start(self) -> None:
        self.process = self.world.process(self.name, self.machine)
        self.stopping = False
        if self.world.random.random() < 0.5:  # a new checkpoint
            self._planned = self._committed = 0
        if self._folder is None:
            prefix = "pairbus-simulation-"
            self._folder = Path(tempfile.mkdtemp(prefix=prefix, dir=scratch_folder()))
        shutil.rmtree(self._status_folder, ignore_errors=True)
        self._status_folder.mkdir()
        self._main_task = self.process.spawn(self._main)

    def kill(self, *, silent: bool) -> None:
        """Kill the driver. Its workers end at once, or a little later."""
        self.world.kill(self.process, silent=silent)
        workers, self.workers = self.workers, []
        for worker in workers:
            if silent or self.world.random.random() < 0.5:
                self.world.kill(worker.process, silent=silent)
            else:
                self.world.scheduler.call_later(
                    self.world.random.random() * 5,
                    lambda worker=worker: self.world.kill(worker.process),  # type: ignore[misc]
                )

    def restart(self) -> None:
        """Let the query end after its micro-batch, and start it again in another process."""
        process, query = self.process, self._main_task
        self.stopping = True

        def end() -> None:
            query.join()
            self.world.scheduler.call_soon(start_again, process)

        def start_again() -> None:
            self.kill(silent=False)
            self.start()

        process.spawn(end, "restart")

    def close(self) -> None:
        """Delete the files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @property
    def _status_folder(self) -> Path:
        assert self._folder is not None
        return self._folder / "status"

    @property
    def _control(self) -> ControlFile:
        assert self._folder is not None
        return ControlFile(self._folder / "control.json")

    def set_control(self, change: Callable[[Control], Control]) -> None:
        """Change the control file, as an operator does."""
        control = self._control.update(change)
        self.world.trace(self.name, f"control: {' '.join(control.describe())}")

    def wake(self) -> None:
        if self.process.alive:
            self._main_task.wake()

    @property
    def has_ended(self) -> bool:
        """True if the driver was killed, or has ended after it was asked to stop."""
        return not self.process.alive or self._main_task.ended

    def worker(self, kind: str) -> Worker:
        """Return an idle worker, or a new one."""
        self.workers = [worker for worker in self.workers if worker.process.alive]
        for worker in self.workers:
            if worker.kind == kind and worker.idle and not worker.process.frozen:
                return worker
        worker = Worker(self, kind)
        self.workers.append(worker)
        return worker

    # The driver.

    def _main(self) -> None:
        world, task = self.world, self._main_task
        while True:
            try:
                self._run_query()
            except ProcessKilled:
                raise
            except Exception as exc:  # noqa: BLE001  the query failed, and is started again
                world.trace(self.name, f"query failed: {type(exc).__name__}: {str(exc)[:200]}")
            if self.stopping:
                return
            task.wait(ONCE_EVERY_S if self.plan.once else RESTART_S)

    def _run_query(self) -> None:
        world = self.world
        task = world.scheduler.current_task()
        files = StatusFiles(self._status_folder)
        reader = backlog_stream_reader(self.options, files, control=self._control)
        once = self.plan.once
        world.trace(self.name, f"query started{' (once)' if once else ''}")
        try:
            if once:
                reader.prepareForTriggerAvailableNow()
            if self._planned > self._committed:
                # The checkpoint has a micro-batch that did not end, and may be paused now.
                control = self._control.read_or_keep()
                self.paused_paths = control.paused_destinations
                if control.paused:
                    self.paused_paths = tuple(f"queue{n}" for n in range(self.plan.paths))
                self._run_batch(reader, files)
            while not self.stopping:
                start = {"batch": self._committed}
                end = reader.latestOffset(start, reader.getDefaultReadLimit())
                if end == start:
                    if once:
                        break
                    task.wait(TRIGGER_S)
                    continue
                self._planned = end["batch"]
                control: Control = self.process.__dict__["control"]
                self.paused_paths = control.paused_destinations
                if control.paused:
                    self.journal.violate("Y12", f"{self.name} is paused and plans a micro-batch")
                self._run_batch(reader, files)
            if once:
                self._check_drained(files)
        finally:
            if self.process.alive:
                self._stop(reader)

    def _stop(self, reader: Any) -> None:
        """Stop the reader, and check that it has closed its connections. Polls of a namespace that
        does not answer are left after a time."""
        began = self.process.monotonic()
        reader.stop()
        if self.process.monotonic() - began >= STOP_S:
            self.left_polls = True
        elif names := self.world.network.open_connections(self.process):
            self.journal.violate(
                "S14", f"the query of {self.name} has ended and keeps {', '.join(names)}"
            )

    def _check_drained(self, files: StatusFiles) -> None:
        status = files.reader.read()
        self.world.trace(self.name, f"query ended, drained: {status.drained}")
        if status.drained:
            self.times_drained += 1
            checked_at = self.process.__dict__["emptiness_checked_at"]
            if (left := self._left_since(checked_at)) is not None:
                self.journal.violate("Y8", f"{self.name} said drained, and {left} is left")

    def _run_batch(self, reader: Any, files: StatusFiles) -> None:
        task = self.world.scheduler.current_task()
        number = self._planned
        partitions = reader.partitions({"batch": self._committed}, {"batch": number})
        task.wait(PLAN_S)
        self.batches += 1
        self.world.trace(
            self.name,
            f"micro-batch {number}: "
            + "; ".join(" ".join(partition.queues) for partition in partitions),
        )
        commits = self._run_tasks(partitions, files)
        # Spark creates another sink for the commit.
        BacklogSink(self.options, files).commit(commits, number)
        self._committed = number

    def _run_tasks(self, partitions: list[PartitionPlan], files: StatusFiles) -> list[Any]:
        task = self.world.scheduler.current_task()
        sink = BacklogSink(self.options, files)
        waiting = list(enumerate(partitions))
        running: dict[int, list[TaskAttempt]] = {}
        attempts: dict[int, int] = defaultdict(int)
        commits: dict[int, Any] = {}
        while len(commits) < len(partitions):
            while waiting and len(running) < self.plan.task_slots:
                index, partition = waiting.pop(0)
                if self.late_s > 0:
                    late_s, self.late_s = self.late_s, 0.0
                    task.wait(late_s)
                running[index] = [TaskAttempt(self, partition, sink, attempts[index])]
                attempts[index] += 1
                if self.runs_twice:
                    self.runs_twice = False
                    running[index].append(TaskAttempt(self, partition, sink, attempts[index]))
                    attempts[index] += 1
            for index, tries in list(running.items()):
                winner = next((attempt for attempt in tries if attempt.succeeded), None)
                if winner is not None:
                    commits[index] = winner.writing.result
                    for attempt in tries:
                        attempt.kill()
                    del running[index]
                    continue
                for attempt in [attempt for attempt in tries if attempt.failed]:
                    attempt.kill()
                    tries.remove(attempt)
                if not tries:
                    if attempts[index] >= MAX_ATTEMPTS:
                        for others in running.values():
                            for attempt in others:
                                attempt.kill()
                        # Spark lets the sink see what the other tasks have done.
                        BacklogSink(self.options, files).abort(list(commits.values()), 0)
                        raise RuntimeError(f"task {index} failed {MAX_ATTEMPTS} times")
                    running[index] = [TaskAttempt(self, partitions[index], sink, attempts[index])]
                    attempts[index] += 1
            if len(commits) < len(partitions):
                task.wait(0.25)
        return list(commits.values())


def scratch_folder() -> str | None:
    """Return a folder in memory, where the status files of syphons are."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
