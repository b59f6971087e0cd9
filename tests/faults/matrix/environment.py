"""The environment of a run: two namespaces, relays to them, a syphon, and a sender process."""

import contextlib
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.servicebus.administration import AdministrationClient, AdministrationOptions
from pairbus.servicebus.backlog_paths import backlog_paths
from pairbus.syphon.counts import backlog_size as count_backlog
from pairbus.transfer import to_backlog
from tests.faults.matrix.console import MatrixConsole
from tests.faults.matrix.guard import ProcessGuard
from tests.faults.matrix.plan import LOCK_S
from tests.faults.matrix.redrive import Redrive
from tests.faults.matrix.relays import Connection, Cut, Relay, Relays
from tests.faults.matrix.sender import SenderConfig
from tests.faults.matrix.sender_log import SenderLog, SenderLogFile
from tests.faults.matrix.socket_owners import owner_of
from tests.faults.namespace_process import Namespace
from tests.faults.syphon_process import SyphonProcess
from tests.messages import message
from tests.tiers import when_admitted

ROOT = Path(__file__).resolve().parents[3]
NAME = "primary"
QUEUES = 2
DEADLINE_S = 400.0
"""The timeout of every wait in a run."""
MAX_RATE = 1000
"""The maximum rate of the syphon, so that the drain takes some time."""
WARM_UP_QUEUE = "warm-up"
FIRST_TIER = "unlimited"
"""The tier until the first run sets its own."""
SIZE_S = 0.5
"""The shortest time between two counts of the backlog, which cost credits."""


class SenderProcess:
    """A sender process. After a kill it is replaced by a new one."""

    def __init__(self, config: SenderConfig) -> None:
        self._log_file = SenderLogFile(Path(config.log))
        self.output = Path(config.log).with_suffix(".output")
        with self.output.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.matrix.sender"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(config.to_json() + "\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def log(self) -> SenderLog:
        """Return the log so far."""
        return self._log_file.read()

    def kill(self) -> None:
        self._process.kill()
        assert self._process.wait(DEADLINE_S) == -signal.SIGKILL
        self._close_input()

    def stop(self) -> None:
        """Stop the process, and wait until it has ended."""
        self._close_input()
        try:
            assert self._process.wait(DEADLINE_S) == 0, self.output.read_text()
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(1)
            raise AssertionError(f"the sender process hangs: {self.output.read_text()}") from None

    def close(self) -> None:
        if self.is_running:
            self._process.kill()
            self._process.wait()
        self._close_input()

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()


class MatrixEnvironment:
    """All processes and relays, for one run or several."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._resources = contextlib.ExitStack()
        self.sender_config: SenderConfig | None = None
        self.sender: SenderProcess | None = None
        """None after it was killed."""
        self.sender_processes: list[SenderProcess] = []
        """All sender processes of this run."""
        self.syphon: SyphonProcess | None = None
        self.syphons: list[SyphonProcess] = []
        self._counted_at = 0.0
        self.backlog_queues = tuple(backlog_paths(NAME, QUEUES))
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        guard = ProcessGuard()
        self._resources.callback(guard.close)
        self.primary = Namespace("primary", self.folder / "primary", tier=FIRST_TIER)
        self._resources.callback(self.primary.close)
        self.secondary = Namespace("secondary", self.folder / "secondary", tier=FIRST_TIER)
        self._resources.callback(self.secondary.close)
        relays = Relays()
        self._resources.callback(relays.close)
        self._relays = relays
        self.sender_primary, self.syphon_primary = (relays.to(self.primary.port) for _ in "12")
        self.sender_secondary, self.syphon_secondary = (
            relays.to(self.secondary.port) for _ in "12"
        )
        with self.administration(self.secondary) as administration:
            for queue in self.backlog_queues:
                administration.create_queue(
                    queue, lock_duration=timedelta(seconds=LOCK_S), max_delivery_count=2147483647
                )
        self.redrive = Redrive(self, relays.to(self.secondary.port))
        self.console = MatrixConsole(
            relays,
            self.folder / "console",
            *("--primary-name", NAME, "--backlog-queues", str(QUEUES)),
            PAIRBUS_SECONDARY=self.secondary.connection_string,
            XDG_STATE_HOME=str(self.folder),
        )
        self._resources.callback(self.console.close)
        with self.administration(self.primary) as administration:
            administration.create_queue(WARM_UP_QUEUE, requires_duplicate_detection=True)
        self.start_syphon()

    def close(self) -> None:
        """Close everything that was opened."""
        for sender in self.sender_processes:
            sender.close()
        for syphon in self.syphons:
            syphon.close()
        self._resources.close()

    def __enter__(self) -> "MatrixEnvironment":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Processes.

    def start_sender(self) -> None:
        """Start a sender process, with its own message ids and its own log."""
        assert self.sender_config is not None
        number = len(self.sender_processes) + 1
        log = self.folder / f"{self.sender_config.prefix}-{number}.log"
        prefix = f"{self.sender_config.prefix}-{number}"
        config = replace(self.sender_config, log=str(log), prefix=prefix, seed=f"{prefix} {number}")
        self.sender = SenderProcess(config)
        self.sender_processes.append(self.sender)

    def start_syphon(self) -> None:
        """Start a syphon, with its own folder for its output."""
        self.syphon = SyphonProcess(
            self.folder / f"syphon-{len(self.syphons) + 1}",
            *("--primary-name", NAME, "--backlog-queues", str(QUEUES)),
            *("--master", "local[2,4]", "--max-rate", str(MAX_RATE)),
            PAIRBUS_PRIMARY=self.syphon_primary.address(self.primary.connection_string),
            PAIRBUS_SECONDARY=self.syphon_secondary.address(self.secondary.connection_string),
            XDG_STATE_HOME=str(self.folder),
        )
        self.syphons.append(self.syphon)

    @property
    def moved(self) -> int:
        """The number of messages that all syphons of this environment have moved."""
        return sum(syphon.moved for syphon in self.syphons)

    @property
    def unsettled(self) -> int:
        return sum(syphon.unsettled for syphon in self.syphons)

    def warm_up(self) -> None:
        """Make Spark start its workers, which it ends after an idle minute."""
        self.put(WARM_UP_QUEUE, [str(uuid.uuid4()) for _ in range(20)])
        self.wait(lambda: self.backlog_size() == 0, "the warm-up messages")

    def workers(self) -> set[int]:
        """Return the Python processes that run the tasks of Spark."""
        assert self.syphon is not None
        return set(self.syphon.task_workers())

    def driver(self) -> set[int]:
        """Return all processes of the syphon except the workers and the daemon that forks them."""
        assert self.syphon is not None
        return {process.pid for process in self.syphon.processes()} - set(self.syphon.task_side())

    # The network.

    def cut(
        self,
        *relays: Relay,
        selects: Callable[[Connection], bool] | None = None,
        answers_only: bool = False,
    ) -> Cut:
        return Cut(self._relays, relays, selects or (lambda _: True), answers_only=answers_only)

    def connections_of(self, pids: Callable[[], set[int]]) -> Callable[[Connection], bool]:
        """Return a filter for connections whose client is one of these processes."""

        def selects(connection: Connection) -> bool:
            return owner_of(connection.port, connection.relay.port, pids()) is not None

        return selects

    # The contents of the namespaces, read directly and not through the relays.

    @contextlib.contextmanager
    def administration(self, namespace: Namespace) -> Iterator[Any]:
        options = AdministrationOptions.from_connection_string(namespace.connection_string)
        with AdministrationClient(options) as administration:
            yield administration

    def backlog_size(self) -> int | None:
        """Return the number of messages in the backlog, or None while it is unknown."""
        time.sleep(max(0.0, self._counted_at + SIZE_S - time.monotonic()))
        self._counted_at = time.monotonic()
        options = ClientOptions.from_connection_string(self.secondary.connection_string)
        return count_backlog(options, self.backlog_queues)

    def set_tier(self, tier: str) -> None:
        """Set the tier of both namespaces."""
        for namespace in (self.primary, self.secondary):
            namespace.set_tier(tier)

    def put(self, path: str, ids: list[str]) -> None:
        """Store messages in all backlog queues, in the format of a paired sender."""
        options = ClientOptions.from_connection_string(self.secondary.connection_string)
        with Client(options) as client:
            for index, queue in enumerate(self.backlog_queues):
                payloads = [to_backlog(message(id), path) for id in ids[index::QUEUES]]
                with Sender(client, queue) as sender:
                    for start in range(0, len(payloads), 200):
                        batch = payloads[start : start + 200]
                        when_admitted(partial(sender.send_batch, batch))

    def wait(self, condition: Callable[[], Any], event: str) -> None:
        """Wait for a condition. Raises AssertionError if a process ends meanwhile."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"timed out waiting for {event}"
            self.check()
            time.sleep(0.05)

    def check(self) -> None:
        assert self.syphon is None or self.syphon.runs, "the syphon has ended"
        if self.sender is not None:
            assert self.sender.is_running, (
                f"the sender process has ended: {self.sender.output.read_text()}"
            )
            assert not self.sender.log().unexpected, self.sender.log().unexpected

    def output(self) -> str:
        """Return the output of the processes, which may explain a failure."""
        parts = [f"{syphon.folder.name}: {syphon.output}" for syphon in self.syphons[-2:]]
        if self.sender is not None:
            parts.append(f"senders: {self.sender.output.read_text()}")
        return "\n".join(parts)
