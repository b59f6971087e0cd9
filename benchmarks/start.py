"""The start of an embedded syphon compared with that of a bare Spark, and its memory.

The bare Spark is a `SparkSession` on this machine with the serial collector and only the fast
compiler, as the syphon has it, and a stream from a Python source to a Python sink that only write
one row. Both are timed from the start of their processes: until the session exists, and until the
first row is written or the first message delivered. They run in turns, and the figures are medians.
A first start, which is not counted, writes the archive of Java classes. CPU time is that of all
processes until then. Memory is the proportional set size of all processes, which counts shared
pages once, shortly after the last message, and when Spark has ended its idle workers.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.child_process import ChildProcess
from benchmarks.first_row import SESSION
from benchmarks.harness import MEGABYTES, OURS, SECONDS, Figure, Unit, medians
from benchmarks.syphon import NAME, POLL_S, Pairing, fill, pairing
from benchmarks.syphon_tree import Watch, descendants, processes
from pairbus.usage.ledger import Ledger
from pairbus.usage.operations import OperationKind, Purpose

BARE = "bare Spark"
MESSAGES, BODY = 100, 200
START_AIM = 1 / 0.75
"""At most 0.75 of the time of the bare Spark."""
ONCE_AIM, REPORT_AIM = 12.0, 10.0
"""Seconds."""
MEMORY_AIM = 650.0
"""MB: half of what an idle syphon took before its processes shared their memory."""
ROUNDS = 3
SETTLED_S = 3.0
"""The wait after the last message for the end of its micro-batch."""
IDLE_S = float(os.environ.get("BENCH_START_IDLE", "80"))
"""Spark ends a worker that was idle for a minute. 0: not measured."""
ARCHIVE_S = 60.0
"""The longest wait for the archive of Java classes, which is written when the JVM ends."""
DEADLINE_S = 300.0
CPU_SECONDS = Unit("CPU seconds")
PROCESSES = Unit("processes", digits=0)


@dataclass(frozen=True, slots=True)
class Start:
    """The start of one contender: seconds from the start of its process."""

    pid: int
    session_s: float
    first_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Footprint:
    """The memory of a process and its descendants, and their number."""

    megabytes: float
    processes: int


@contextmanager
def started(name: str, argument: str, has_arrived: Callable[[], bool]) -> Iterator[Start]:
    """Start a contender, wait for its first row, and stop it after the block."""
    begin = time.perf_counter()
    with ChildProcess("benchmarks.first_row", name, argument) as process:
        with Watch(process.pid, "all") as watch:
            while line := process.read_line():
                if line.strip() == SESSION:  # the JVM may write other lines
                    break
            assert line, "the process ended"
            session_s = time.perf_counter() - begin
            while not has_arrived():
                assert time.perf_counter() < begin + DEADLINE_S, "nothing arrived"
                time.sleep(POLL_S)
            first_s = time.perf_counter() - begin
        yield Start(process.pid, session_s, first_s, watch.usage().cpu_s.total())


def start_bare(folder: Path) -> Start:
    file = Path(tempfile.mkdtemp(dir=folder), "rows")
    with started("bare", str(file), file.exists) as start:
        return start


def start_syphon(idle_s: float) -> tuple[Start, list[Footprint]]:
    """Start a syphon with a backlog. Return also its memory after the drain, and again after
    `idle_s` if that is not 0."""
    with pairing() as pair:
        fill(pair, MESSAGES, BODY)
        options = {
            "primary": pair.primary.connection_string,
            "secondary": pair.secondary.connection_string,
            "primary_name": NAME,
            "backlog_queue_count": pair.queues,
        }
        with started("syphon", json.dumps(options), lambda: pair.arrived() > 0) as start:
            wait_for_all(pair)
            time.sleep(SETTLED_S)
            footprints = [footprint(start.pid)]
            if idle_s:
                time.sleep(idle_s)
                footprints.append(footprint(start.pid))
        return start, footprints


def wait_for_all(pair: Pairing) -> None:
    deadline = time.perf_counter() + DEADLINE_S
    while pair.arrived() < MESSAGES:
        assert time.perf_counter() < deadline, "not all messages arrived"
        time.sleep(POLL_S)


def footprint(root: int) -> Footprint:
    """Return the proportional set size of a process and its descendants."""
    sizes = []
    for pid in descendants(root, processes()):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # the process has ended
            continue
        sizes += [int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")]
    return Footprint(sum(sizes), len(sizes))


def drain_once() -> float:
    """Return the seconds of `pairbus syphon --once` with a small backlog."""
    with pairing() as pair:
        fill(pair, MESSAGES, BODY)
        seconds = run(
            "syphon",
            "--once",
            f"--primary-name={NAME}",
            f"--backlog-queues={pair.queues}",
            PAIRBUS_PRIMARY=pair.primary.connection_string,
            PAIRBUS_SECONDARY=pair.secondary.connection_string,
        )
        assert pair.arrived() == MESSAGES
        return seconds


def write_small_ledger(folder: Path) -> None:
    with Ledger(folder, writer="pairing") as ledger:
        for number in range(MESSAGES):
            ledger.add(
                namespace="contoso-backup",
                entity=f"queue-{number % 4}",
                kind=OperationKind.SEND,
                purpose=Purpose.BACKLOG,
                bytes=BODY,
            )


def run(*arguments: str, **variables: str) -> float:
    """Run a command of pairbus, and return its seconds."""
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pairbus", *arguments],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - begin


def archiving() -> set[int]:
    """Return the JVMs that write an archive of Java classes when they end."""
    found = set()
    for pid in processes():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:  # the process has ended
            continue
        if b"ArchiveClassesAtExit" in command:
            found.add(pid)
    return found


def wait_for_archives(others: set[int]) -> None:
    """Wait until all such JVMs but some others have ended."""
    deadline = time.perf_counter() + ARCHIVE_S
    while archiving() - others and time.perf_counter() < deadline:
        time.sleep(0.5)


def figures(rounds: int) -> list[Figure]:
    rounds = min(rounds, ROUNDS)
    bare: list[Start] = []
    ours: list[Start] = []
    footprints: list[list[Footprint]] = []
    once: list[float] = []
    report: list[float] = []
    with tempfile.TemporaryDirectory("-start") as name:
        folder = Path(name)
        ledger = folder / "ledger"
        write_small_ledger(ledger)
        others = archiving()
        start_syphon(0)
        run("cost", "report", str(ledger))
        wait_for_archives(others)
        for number in range(rounds):
            bare.append(start_bare(folder))
            idle_s = IDLE_S if number == rounds - 1 else 0.0
            start, memory = start_syphon(idle_s)
            ours.append(start)
            footprints.append(memory)
            once.append(drain_once())
            report.append(run("cost", "report", str(ledger)))
        started_at = time.perf_counter()
        refused = subprocess.run(
            [sys.executable, "-m", "pairbus", "cost", "report", str(folder / "missing")],
            capture_output=True,
            check=False,
        )
        refused_s = time.perf_counter() - started_at
        assert refused.returncode == 1, refused.stderr
    result = [
        medians(
            "first row",
            SECONDS,
            [start.first_s for start in ours],
            [start.first_s for start in bare],
            contender=BARE,
            aim=START_AIM,
        ),
        medians(
            "session",
            SECONDS,
            [start.session_s for start in ours],
            [start.session_s for start in bare],
            contender=BARE,
        ),
        value(f"`pairbus syphon --once`, {MESSAGES} messages", once, SECONDS, ONCE_AIM),
        value("`pairbus cost report`, a small ledger", report, SECONDS, REPORT_AIM),
        value("a ledger that does not exist is refused", [refused_s], SECONDS, None),
        medians(
            "all processes until the first row",
            CPU_SECONDS,
            [start.cpu_s for start in ours],
            [start.cpu_s for start in bare],
            contender=BARE,
        ),
    ]
    settled = [memory[0] for memory in footprints]
    result.append(memory_figure("after the drain", settled, None))
    result.append(count_figure("after the drain", settled))
    if IDLE_S:
        idle = [footprints[-1][-1]]
        result.append(memory_figure("idle", idle, MEMORY_AIM))
        result.append(count_figure("idle", idle))
    return result


def value(name: str, values: list[float], unit: Unit, aim: float | None) -> Figure:
    """Return the median, with the range as the remark."""
    remark = f"{unit.format(min(values))} to {unit.format(max(values))}" if len(values) > 1 else ""
    return Figure(
        name, {OURS: median(values)}, unit, aim, remark=remark, aim_is_value=aim is not None
    )


def memory_figure(name: str, footprints: list[Footprint], aim: float | None) -> Figure:
    return value(f"memory, {name}", [each.megabytes for each in footprints], MEGABYTES, aim)


def count_figure(name: str, footprints: list[Footprint]) -> Figure:
    return value(
        f"processes, {name}", [float(each.processes) for each in footprints], PROCESSES, None
    )
