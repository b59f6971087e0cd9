"""The processes of this machine, as /proc shows them."""

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import wait_until


@dataclass(frozen=True)
class Process:
    pid: int
    name: str
    state: str
    parent: int
    session: int
    arguments: list[str]
    """The command line."""

    @property
    def has_ended(self) -> bool:
        return self.state in "XZ"

    @property
    def runs_tasks(self) -> bool:
        """True for the Python processes in which Spark runs tasks, and for the daemons that they
        are forked from. An embedded Spark names them; others have the command line."""
        command = ["pyspark.daemon", "pyspark.worker"]
        return self.name == command[-1] or self.arguments[-2:] == command


def all_processes() -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                before, _, after = (folder / "stat").read_text().rpartition(")")
                state, parent, _, session, *_ = after.split()
                arguments = (folder / "cmdline").read_text().split("\0")[:-1]
                name = before.partition("(")[2]
                yield Process(int(folder.name), name, state, int(parent), int(session), arguments)


def running(pids: Iterable[int]) -> list[Process]:
    """Return those of the processes that have not ended."""
    wanted = set(pids)
    return [
        process for process in all_processes() if process.pid in wanted and not process.has_ended
    ]


def kill(*pids: int) -> None:
    """Kill processes that need not be children of this one, and wait until they have ended."""
    send_signal(pids, signal.SIGKILL)
    wait_until(lambda: not running(pids), f"processes {pids} to end")


@contextlib.contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """Stop processes within the block. Some of them may end before, but not all."""

    def are_frozen() -> bool:
        return {process.state for process in running(pids)} == {"T"}

    send_signal(pids, signal.SIGSTOP)
    try:
        wait_until(are_frozen, f"processes {pids} to be frozen")
        yield
        assert are_frozen(), f"not all of {pids} stayed frozen"
    finally:
        send_signal(pids, signal.SIGCONT)


def send_signal(pids: Iterable[int], number: int) -> None:
    """Send a signal to those of the processes that still exist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
