"""Helpers of the fault tests of the syphon: `pairbus syphon` as a process with all that Spark
starts, messages for it to move, and a fault that stops it in the middle of a batch."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairbus.amqp.client import Client, ClientOptions, Management
from pairbus.amqp.section_edit import read_fields
from pairbus.amqp.sections import MESSAGE_ID, Message
from pairbus.spark.messages import destination_of, sequence_number_of
from pairbus.syphon.counts import backlog_size
from pairbus.syphon.status_file import StatusFiles
from pairbus.syphon.writer_status import WriterStatus
from pairbus.transfer import to_backlog
from tests.spark.kit import Backlog, message

DEADLINE_S = 300.0
"""The deadline of every wait. Several instances of Spark that start at once are slow."""
NEVER_S = 600.0
"""The delay of an answer that arrives after the test has ended."""


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.05)


MANY = 6000
"""Messages for each of two paths: more than can be in flight at a time."""


class Clock:
    """A clock that a test can advance, so that it need not wait for a lock to expire."""

    def __init__(self) -> None:
        self._offset_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self._offset_ms

    def advance(self, seconds: float) -> None:
        self._offset_ms += int(seconds * 1000)


class SyphonProcess:
    """`pairbus syphon` in a separate session, so that the processes of Spark can be found."""

    def __init__(self, backlog: Backlog, folder: Path, *options: str, **environment: str) -> None:
        folder.mkdir()
        self.folder = folder
        with (folder / "output").open("w") as output:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-u", "-m", "pairbus", "syphon"),
                    *("--primary-name", backlog.name, "--backlog-queues", "2", *options),
                ],
                env={
                    **os.environ,
                    "PAIRBUS_PRIMARY": backlog.primary.connection_string,
                    "PAIRBUS_SECONDARY": backlog.secondary.connection_string,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "TMPDIR": str(folder),
                    **environment,
                },
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    def writer_status(self) -> WriterStatus:
        """Return the status of its writer; an initial one after it has ended."""
        folders = list(self.folder.glob("pairbus-syphon-*"))
        return StatusFiles(folders[0]).writer.read() if folders else WriterStatus()

    @property
    def moved(self) -> int:
        return self.writer_status().moved.total()

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
        """Kill the process, and all that it started."""
        self._signal(signal.SIGKILL, "XZ", "the syphon to be killed")
        assert self._process.wait() == -signal.SIGKILL

    def stop(self) -> None:
        """Stop it with SIGTERM."""
        self._process.terminate()
        assert self._process.wait(DEADLINE_S) == 0, self.output

    def close(self) -> None:
        """Kill what is still running. Idempotent."""
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
            for process in self.processes():
                os.kill(process.pid, signal.SIGCONT)

    def _signal(self, number: int, states: str, what: str) -> None:
        """Send a signal to every process, also to those that start meanwhile, until all are in one
        of these states."""

        def is_done() -> bool:
            pending = [process for process in self.processes() if process.state not in states]
            for process in pending:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
            return not pending

        wait_until(is_done, what)

    def processes(self) -> "list[Process]":
        """Return all processes of the syphon."""
        # Spark's daemons are in different process groups, but in one session.
        return [process for process in all_processes() if process.session == self._process.pid]

    def task_workers(self) -> dict[int, int]:
        """Return the Python processes in which tasks run, each with the JVM that it works for."""
        parents = self.task_side()
        return {pid: parents[parent] for pid, parent in parents.items() if parent in parents}

    def task_side(self) -> dict[int, int]:
        """Return the task workers and the daemons that they are forked from, each with its
        parent."""
        # Spark has a daemon for each kind of worker.
        return {
            process.pid: process.parent
            for process in self.processes()
            if process.arguments[-2:] == ["pyspark.daemon", "pyspark.worker"]
        }

    def executors(self) -> set[int]:
        """Return the JVMs that the driver's JVM started."""
        parents = {
            process.pid: process.parent for process in self.processes() if process.name == "java"
        }
        return {pid for pid, parent in parents.items() if parent in parents}


@contextlib.contextmanager
def syphon(
    backlog: Backlog, folder: Path, *options: str, **environment: str
) -> Iterator[SyphonProcess]:
    """Run `pairbus syphon`, and kill it at the end."""
    process = SyphonProcess(backlog, folder, *options, **environment)
    try:
        yield process
    except BaseException as exc:
        exc.add_note(f"output of the syphon: {process.output}")
        raise
    finally:
        process.close()


@dataclass(frozen=True)
class Process:
    """A process of this machine, as /proc shows it."""

    pid: int
    name: str
    state: str
    parent: int
    session: int
    arguments: list[str]
    """The command line."""


def all_processes() -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                before, _, after = (folder / "stat").read_text().rpartition(")")
                state, parent, _, session, *_ = after.split()
                arguments = (folder / "cmdline").read_text().split("\0")[:-1]
                name = before.partition("(")[2]
                yield Process(int(folder.name), name, state, int(parent), int(session), arguments)


def kill(*pids: int) -> None:
    """Kill processes that are not children of this one, and wait until they are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it ended with one of the others
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: all(map(is_gone, pids)), f"processes {pids} to end")


def is_gone(pid: int) -> bool:
    return all(process.pid != pid or process.state in "XZ" for process in all_processes())


def payloads(connection_string: str, path: str) -> Iterator[bytes]:
    """Peek at all messages of a queue, locked ones included."""
    options = ClientOptions.from_connection_string(connection_string)
    with Client(options) as client, Management(client, path) as management:
        number = 1
        while page := management.peek(number, 250):
            yield from page
            number = sequence_number_of(page[-1]) + 1


def id_of(payload: bytes) -> str:
    return str(read_fields(Message.parse(payload).properties, (MESSAGE_ID,))[0])


class BacklogMessages:
    """The same messages for two queues: `exact` has duplicate detection, `plain` has none."""

    def __init__(self, backlog: Backlog, name: str) -> None:
        self.backlog = backlog
        self.exact = backlog.path(f"{name}-exact", requires_duplicate_detection=True)
        self.plain = backlog.path(f"{name}-plain")
        self.sent: list[bytes] = []

    @property
    def ids(self) -> list[str]:
        return [id_of(payload) for payload in self.sent]

    def put(self, count: int, queues: tuple[int, ...] = (0, 1), *, size: int = 10) -> None:
        """Store new messages in the backlog, each for both destinations."""
        numbers = range(len(self.sent), len(self.sent) + count)
        new = [message(f"m-{n}", body=b"%d" % n + b"x" * size) for n in numbers]
        self.sent += new
        paths = (self.exact, self.plain)
        for index, queue in enumerate(queues):
            share = new[index :: len(queues)]
            self.backlog.put_raw(
                [to_backlog(payload, path) for payload in share for path in paths], queue
            )

    def left(self) -> int | None:
        """Return the number of messages in the backlog, or None if it is not known."""
        options = ClientOptions.from_connection_string(self.backlog.secondary.connection_string)
        return backlog_size(options, tuple(self.backlog.queues))

    def arrived(self, path: str) -> list[str]:
        """Return the ids of the messages at a destination."""
        return list(map(id_of, payloads(self.backlog.primary.connection_string, path)))

    def in_both_places(self) -> set[str]:
        """Return the ids of messages for `plain` that have arrived and are still in the backlog:
        they will be delivered again."""
        return self._waiting() & set(self.arrived(self.plain))

    def not_sent(self) -> set[str]:
        """Return the ids of messages for `plain` that are in the backlog and have not arrived."""
        return self._waiting() - set(self.arrived(self.plain))

    def _waiting(self) -> set[str]:
        return {
            id_of(payload)
            for queue in self.backlog.queues
            for payload in payloads(self.backlog.secondary.connection_string, queue)
            if destination_of(payload) == self.plain
        }

    def duplicates(self) -> set[str]:
        """Return the ids of messages that arrived at `plain` more than once."""
        return {id for id, count in Counter(self.arrived(self.plain)).items() if count > 1}

    def check(self) -> None:
        """Assert that nothing is lost, and that `exact` has no duplicates."""
        assert Counter(self.arrived(self.exact)) == Counter(self.ids)
        assert set(self.arrived(self.plain)) == set(self.ids)


class DelayedAnswer:
    """A fault: the next delivery to a path is stored and answered late. Meanwhile the task waits,
    and its messages are not completed."""

    def __init__(self, connection_string: str, path: str, seconds: float = NEVER_S) -> None:
        self._options = ClientOptions.from_connection_string(connection_string)
        fault = {"kind": "answer-late", "entity": path, "count": 1, "seconds": seconds}
        self._number = self._request("POST", fault)["number"]

    @property
    def happened(self) -> bool:
        faults = self._request("GET", None)
        return any(fault["number"] == self._number and fault["fired"] == 1 for fault in faults)

    def _request(self, method: str, content: Any) -> Any:
        assert self._options.tokens is not None
        host, port = self._options.address
        token = self._options.tokens.token(f"https://{self._options.host}/", time.time())
        connection = http.client.HTTPConnection(host, port, timeout=NEVER_S)
        try:
            connection.request(
                method,
                "/$pairbus/faults",
                body=None if content is None else json.dumps(content),
                headers={"Authorization": token.text},
            )
            response = connection.getresponse()
            assert response.status in (200, 201), response.status
            return json.loads(response.read())
        finally:
            connection.close()
