"""What the fault tests of the syphon share: `pairbus syphon` as a process with all that Spark
starts, messages for it to move, and a way to hold it in the middle."""

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
from pairbus.spark.columns import destination_of, sequence_of
from pairbus.syphon.counts import backlog_size
from pairbus.syphon.progress import WriterStatus, WriterStatusFile
from pairbus.transfer import to_backlog
from tests.spark.kit import Backlog, message

DEADLINE_S = 300.0
"""How long anything may take: several Sparks that start at once are slow."""
FOR_EVER_S = 600.0
"""An answer that comes so late comes after the test."""


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


MANY = 6000
"""Messages for each of two paths: more than are sent before the first is answered."""


class Clock:
    """A clock that can be put forward, so that nobody waits for a lock to expire."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def put_forward(self, seconds: float) -> None:
        self._ahead_ms += int(seconds * 1000)


class SyphonProcess:
    """`pairbus syphon`, in a session of its own, so that what Spark starts can be found."""

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
    def said(self) -> str:
        return (self.folder / "output").read_text()

    def record(self) -> WriterStatus:
        """What it has noted of its work, as long as it is there."""
        folders = list(self.folder.glob("pairbus-syphon-*"))
        return WriterStatusFile(folders[0] / "record.json").read() if folders else WriterStatus()

    @property
    def moved(self) -> int:
        return self.record().moved.total()

    @property
    def unsettled(self) -> int:
        """How many completions it could not make."""
        return self.record().unsettled

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @property
    def runs(self) -> bool:
        return self.exit_code is None

    def kill(self) -> None:
        """Kill it, and all that it started."""
        self._signal(signal.SIGKILL, "XZ", "it to be killed")
        assert self._process.wait() == -signal.SIGKILL

    def stop(self) -> None:
        """Have it end by itself."""
        self._process.terminate()
        assert self._process.wait(DEADLINE_S) == 0, self.said

    def close(self) -> None:
        self._signal(signal.SIGKILL, "XZ", "it to be killed")
        self._process.wait()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all of it, and let it go on."""
        self._signal(signal.SIGSTOP, "TXZ", "it to be frozen")
        try:
            yield
            assert all(one.state in "TXZ" for one in self.processes())
        finally:
            for one in self.processes():
                os.kill(one.pid, signal.SIGCONT)

    def _signal(self, number: int, states: str, what: str) -> None:
        """Send a signal to every process of it, those too that are started meanwhile, until all
        are in one of these states."""

        def is_done() -> bool:
            todo = [one for one in self.processes() if one.state not in states]
            for one in todo:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, number)
            return not todo

        wait_until(is_done, what)

    def processes(self) -> "list[Process]":
        # Spark's daemons have groups of their own, but all are of one session.
        return [one for one in all_processes() if one.session == self._process.pid]

    def task_workers(self) -> dict[int, int]:
        """The Python processes in which tasks run, each with the JVM that it works for."""
        side = self.task_side()
        return {pid: side[parent] for pid, parent in side.items() if parent in side}

    def task_side(self) -> dict[int, int]:
        """These and the daemons that they are forked from, each with the process that started
        it."""
        # Spark has a daemon for each kind of worker.
        return {
            one.pid: one.parent
            for one in self.processes()
            if one.words[-2:] == ["pyspark.daemon", "pyspark.worker"]
        }

    def executors(self) -> set[int]:
        """The JVMs that the driver's JVM started."""
        machines = {one.pid: one.parent for one in self.processes() if one.name == "java"}
        return {pid for pid, parent in machines.items() if parent in machines}


@contextlib.contextmanager
def syphon(
    backlog: Backlog, folder: Path, *options: str, **environment: str
) -> Iterator[SyphonProcess]:
    process = SyphonProcess(backlog, folder, *options, **environment)
    try:
        yield process
    except BaseException as exc:
        exc.add_note(f"the syphon said: {process.said}")
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
    words: list[str]
    """Its command."""


def all_processes() -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                before, _, after = (folder / "stat").read_text().rpartition(")")
                state, parent, _, session, *_ = after.split()
                words = (folder / "cmdline").read_text().split("\0")[:-1]
                name = before.partition("(")[2]
                yield Process(int(folder.name), name, state, int(parent), int(session), words)


def kill(*pids: int) -> None:
    """Kill processes that are not ours to wait for."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it went with one before it
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: all(map(is_gone, pids)), f"{pids} to be gone")


def is_gone(pid: int) -> bool:
    return all(one.pid != pid or one.state in "XZ" for one in all_processes())


# What is put into the backlog, and what comes of it.


def payloads(connection_string: str, path: str) -> Iterator[bytes]:
    """The messages of a queue, locked ones too; they stay there."""
    options = ClientOptions.from_connection_string(connection_string)
    with Client(options) as client, Management(client, path) as management:
        number = 1
        while some := management.peek(number, 250):
            yield from some
            number = sequence_of(some[-1]) + 1


def id_of(payload: bytes) -> str:
    return str(read_fields(Message.parse(payload).properties, (MESSAGE_ID,))[0])


class Cargo:
    """Messages for a queue with duplicate detection, and as many for one without."""

    def __init__(self, backlog: Backlog, name: str) -> None:
        self.backlog = backlog
        self.exact = backlog.path(f"{name}-exact", requires_duplicate_detection=True)
        self.plain = backlog.path(f"{name}-plain")
        self.sent: list[bytes] = []

    @property
    def ids(self) -> list[str]:
        return [id_of(payload) for payload in self.sent]

    def put(self, count: int, queues: tuple[int, ...] = (0, 1), *, size: int = 10) -> None:
        """So many messages for each of the two."""
        numbers = range(len(self.sent), len(self.sent) + count)
        new = [message(f"m-{n}", body=b"%d" % n + b"x" * size) for n in numbers]
        self.sent += new
        for place, queue in enumerate(queues):
            mine = new[place :: len(queues)]
            paths = (self.exact, self.plain)
            self.backlog.put_raw([to_backlog(one, path) for one in mine for path in paths], queue)

    def left(self) -> int | None:
        """How many messages the backlog holds; None while nobody says so."""
        options = ClientOptions.from_connection_string(self.backlog.secondary.connection_string)
        return backlog_size(options, tuple(self.backlog.queues))

    def arrived(self, path: str) -> list[str]:
        """The ids of the messages of a path."""
        return list(map(id_of, payloads(self.backlog.primary.connection_string, path)))

    def in_both_places(self) -> set[str]:
        """Messages for the queue without duplicate detection that arrived, and are in the backlog
        still: they come a second time."""
        return self._waiting() & set(self.arrived(self.plain))

    def not_sent(self) -> set[str]:
        """Messages for that queue that are in the backlog, and have not arrived."""
        return self._waiting() - set(self.arrived(self.plain))

    def _waiting(self) -> set[str]:
        return {
            id_of(payload)
            for queue in self.backlog.queues
            for payload in payloads(self.backlog.secondary.connection_string, queue)
            if destination_of(payload) == self.plain
        }

    def twice(self) -> set[str]:
        """Messages that arrived more than once where nobody removes duplicates."""
        return {id for id, count in Counter(self.arrived(self.plain)).items() if count > 1}

    def check(self) -> None:
        """Nothing is lost, and nothing is there twice where duplicates are removed."""
        assert Counter(self.arrived(self.exact)) == Counter(self.ids)
        assert set(self.arrived(self.plain)) == set(self.ids)


class Held:
    """The next delivery to a path is stored, and answered late: until then a task waits, and what
    came with the delivery is not completed."""

    def __init__(self, connection_string: str, path: str, seconds: float = FOR_EVER_S) -> None:
        self._options = ClientOptions.from_connection_string(connection_string)
        fault = {"kind": "answer-late", "entity": path, "count": 1, "seconds": seconds}
        self._number = self._ask("POST", fault)["number"]

    @property
    def happened(self) -> bool:
        faults = self._ask("GET", None)
        return any(one["number"] == self._number and one["fired"] == 1 for one in faults)

    def _ask(self, method: str, content: Any) -> Any:
        assert self._options.tokens is not None
        host, port = self._options.address
        token = self._options.tokens.token(f"https://{self._options.host}/", time.time())
        connection = http.client.HTTPConnection(host, port, timeout=FOR_EVER_S)
        try:
            connection.request(
                method,
                "/$pairbus/faults",
                body=None if content is None else json.dumps(content),
                headers={"Authorization": token.text},
            )
            answer = connection.getresponse()
            assert answer.status in (200, 201), answer.status
            return json.loads(answer.read())
        finally:
            connection.close()
