"""`pairbus syphon` as a process, with all processes that Spark starts."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pairbus.syphon.query_status import FileReports
from pairbus.syphon.status_file import StatusFiles
from pairbus.syphon.writer_status import WriterStatus
from tests.commands import command
from tests.processes import Process, all_processes, send_signal
from tests.waiting import DEADLINE_S, wait_until


class SyphonProcess:
    """`pairbus syphon` in a separate session, so that the processes of Spark can be found. It is
    killed at the end of a `with` block."""

    def __init__(self, folder: Path, *arguments: str, **variables: str) -> None:
        folder.mkdir()
        self.folder = folder
        with (folder / "output").open("w") as output:
            self._process = subprocess.Popen(
                command("syphon", *arguments),
                env={
                    **os.environ,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "TMPDIR": str(folder),
                    **variables,
                },
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> "SyphonProcess":
        return self

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        if exc is not None:
            exc.add_note(f"output of the syphon: {self.output}")
        self.close()

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    def writer_status(self) -> WriterStatus:
        """Return the status of its writer, or an initial status after it has ended."""
        folders = list(self.folder.glob("pairbus-syphon-*"))
        return StatusFiles(folders[0]).writer.read() if folders else WriterStatus()

    @property
    def moved(self) -> int:
        """The number of messages that were moved, at the end of the last micro-batch."""
        return self.writer_status().moved.total()

    @property
    def moved_so_far(self) -> int:
        """The same, with the messages of the current micro-batch. For tasks on this machine."""
        folders = list(self.folder.glob("pairbus-syphon-*"))
        return FileReports(StatusFiles(folders[0])).read()[1].moved.total() if folders else 0

    @property
    def unsettled(self) -> int:
        """The number of completions that failed."""
        return self.writer_status().unsettled

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @property
    def runs(self) -> bool:
        return self.exit_code is None

    def kill(self) -> None:
        """Kill the process, and all processes that it started."""
        self.close()
        assert self.exit_code == -signal.SIGKILL

    def stop(self) -> None:
        """Stop it with SIGTERM."""
        self._process.terminate()
        assert self._process.wait(DEADLINE_S) == 0, self.output

    def close(self) -> None:
        """Kill all processes that are still running. Idempotent."""
        self._signal(signal.SIGKILL, "XZ", "the syphon to be killed")
        self._process.wait()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze all processes, and resume them at the end."""
        self._signal(signal.SIGSTOP, "TXZ", "the syphon to be frozen")
        try:
            yield
            assert all(process.state in "TXZ" for process in self.processes())
        finally:
            send_signal((process.pid for process in self.processes()), signal.SIGCONT)

    def _signal(self, number: int, states: str, event: str) -> None:
        """Send a signal to every process, including new ones, until all are in one of these
        states."""

        def is_done() -> bool:
            pending = [process.pid for process in self.processes() if process.state not in states]
            send_signal(pending, number)
            return not pending

        wait_until(is_done, event)

    def processes(self) -> list[Process]:
        """Return all processes of the syphon."""
        # Spark's daemons are in different process groups, but in one session.
        return [process for process in all_processes() if process.session == self._process.pid]

    def task_workers(self) -> dict[int, int]:
        """Return the Python processes in which tasks run, each with the parent of the daemon that
        it is forked from: the JVM that it works for, or the fork server of an embedded Spark."""
        parents = self.task_side()
        return {pid: parents[parent] for pid, parent in parents.items() if parent in parents}

    def task_side(self) -> dict[int, int]:
        """Return the task workers and the daemons that they are forked from, each with its
        parent."""
        # Spark has a daemon for each kind of worker.
        return {process.pid: process.parent for process in self.processes() if process.runs_tasks}

    def executors(self) -> set[int]:
        """Return the JVMs that the driver's JVM started."""
        parents = {
            process.pid: process.parent for process in self.processes() if process.name == "java"
        }
        return {pid for pid, parent in parents.items() if parent in parents}
