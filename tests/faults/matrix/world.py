"""Where a run happens: two namespaces, the wires to them, a syphon, and a sender process."""

import contextlib
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient

from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.pairing.administration import administration_of
from pairbus.servicebus.backlog_paths import backlog_paths
from pairbus.syphon.counts import backlog_size
from pairbus.transfer import to_backlog
from tests.faults.matrix.guard import Guard
from tests.faults.matrix.notes import NoteFile, Notes
from tests.faults.matrix.owners import owner_of
from tests.faults.matrix.plan import LOCK_S
from tests.faults.matrix.sender import Orders
from tests.faults.matrix.wires import Connection, Cut, Wire, Wires
from tests.faults.pairing_kit import Namespace
from tests.faults.syphon_kit import SyphonProcess
from tests.spark.kit import message

ROOT = Path(__file__).resolve().parents[3]
NAME = "primary"
QUEUES = 2
DEADLINE_S = 400.0
"""How long anything may take before a run gives up on it."""
MAX_RATE = 1000
"""Messages a second that the syphon moves, so that draining is a stage, not a moment."""
WARM = "warm"


class SenderProcess:
    """One life of the sender process."""

    def __init__(self, orders: Orders) -> None:
        self.file = NoteFile(Path(orders.notes))
        self.output = Path(orders.notes).with_suffix(".output")
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
        self._process.stdin.write(orders.to_json() + "\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def notes(self) -> Notes:
        return self.file.look()

    def kill(self) -> None:
        self._process.kill()
        assert self._process.wait(DEADLINE_S) == -signal.SIGKILL
        self._hang_up()

    def stop(self) -> None:
        """Have it end by itself."""
        self._hang_up()
        try:
            assert self._process.wait(DEADLINE_S) == 0, self.output.read_text()
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(1)
            raise AssertionError(f"the senders hang: {self.output.read_text()}") from None

    def close(self) -> None:
        if self.runs:
            self._process.kill()
            self._process.wait()
        self._hang_up()

    def _hang_up(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()


@dataclass(frozen=True)
class _Place:
    connection_string: str


@dataclass(frozen=True)
class _Sides:
    """Both namespaces, as a syphon is told of them."""

    primary: _Place
    secondary: _Place
    name: str = NAME


class World:
    """All of it, for one run or many. Close it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ends = contextlib.ExitStack()
        self.orders: Orders | None = None
        self.sender: SenderProcess | None = None
        """None while it is killed."""
        self.lives: list[SenderProcess] = []
        """All that it had in this run."""
        self.syphon: SyphonProcess | None = None
        self.syphons: list[SyphonProcess] = []
        self.backlog_queues = tuple(backlog_paths(NAME, QUEUES))
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        guard = Guard()
        self._ends.callback(guard.close)
        self.primary = Namespace("primary", self.folder / "primary")
        self._ends.callback(self.primary.close)
        self.secondary = Namespace("secondary", self.folder / "secondary")
        self._ends.callback(self.secondary.close)
        wires = Wires()
        self._ends.callback(wires.close)
        self._wires = wires
        self.sender_primary, self.syphon_primary = (wires.to(self.primary.port) for _ in "12")
        self.sender_secondary, self.syphon_secondary = (wires.to(self.secondary.port) for _ in "12")
        with self.administration(self.secondary) as administration:
            for queue in self.backlog_queues:
                administration.create_queue(
                    queue, lock_duration=timedelta(seconds=LOCK_S), max_delivery_count=2147483647
                )
        with self.administration(self.primary) as administration:
            administration.create_queue(WARM, requires_duplicate_detection=True)
        self.start_syphon()

    def close(self) -> None:
        """Whatever is left of it."""
        for life in self.lives:
            life.close()
        for syphon in self.syphons:
            syphon.close()
        self._ends.close()

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Processes.

    def start_sender(self) -> None:
        """In its first life, or in another after it was killed: with ids and notes of its own."""
        assert self.orders is not None
        life = len(self.lives) + 1
        notes = self.folder / f"{self.orders.prefix}-{life}.notes"
        prefix = f"{self.orders.prefix}-{life}"
        orders = replace(self.orders, notes=str(notes), prefix=prefix, seed=f"{prefix} {life}")
        self.sender = SenderProcess(orders)
        self.lives.append(self.sender)

    def start_syphon(self) -> None:
        """In a folder of its own, with what it says in it."""
        sides = _Sides(
            _Place(self.syphon_primary.address(self.primary.connection_string)),
            _Place(self.syphon_secondary.address(self.secondary.connection_string)),
        )
        folder = self.folder / f"syphon-{len(self.syphons) + 1}"
        options = ("--master", "local[2,4]", "--max-rate", str(MAX_RATE))
        self.syphon = SyphonProcess(
            sides,  # type: ignore[arg-type]
            folder,
            *options,
            XDG_STATE_HOME=str(self.folder),
        )
        self.syphons.append(self.syphon)

    @property
    def moved(self) -> int:
        """By all syphons that there were."""
        return sum(one.moved for one in self.syphons)

    @property
    def unsettled(self) -> int:
        return sum(one.unsettled for one in self.syphons)

    def warm_up(self) -> None:
        """Have Spark's workers work: it starts them then, and ends them after a minute of rest."""
        self.put(WARM, [str(uuid.uuid4()) for _ in range(20)])
        self.wait(lambda: self.left() == 0, "Spark to be warm")

    def workers(self) -> set[int]:
        """The Python processes in which Spark's tasks run."""
        assert self.syphon is not None
        return set(self.syphon.task_workers())

    def driver(self) -> set[int]:
        """All that is Spark's but for those, and for whoever forks them."""
        assert self.syphon is not None
        return {one.pid for one in self.syphon.processes()} - set(self.syphon.task_side())

    # The network.

    def cut(self, *wires: Wire, selects: Callable[[Connection], bool] | None = None) -> Cut:
        return Cut(self._wires, wires, selects or (lambda _: True))

    def held_by(self, pids: Callable[[], set[int]]) -> Callable[[Connection], bool]:
        """Whether one of these processes is the client of a connection."""

        def selects(connection: Connection) -> bool:
            return owner_of(connection.port, connection.wire.port, pids()) is not None

        return selects

    # What is there. All of it is asked directly, not by the wires.

    @contextlib.contextmanager
    def administration(self, namespace: Namespace) -> Iterator[Any]:
        with (
            ServiceBusClient.from_connection_string(namespace.connection_string) as client,
            administration_of(client, operation_timeout_s=30) as administration,
        ):
            yield administration

    def left(self) -> int | None:
        """How many messages the backlog holds; None while nobody says so."""
        options = ClientOptions.from_connection_string(self.secondary.connection_string)
        return backlog_size(options, self.backlog_queues)

    def put(self, path: str, ids: list[str]) -> None:
        """Store messages in the backlog, as a paired sender would, in all queues of it."""
        options = ClientOptions.from_connection_string(self.secondary.connection_string)
        with Client(options) as client:
            for place, queue in enumerate(self.backlog_queues):
                mine = [to_backlog(message(id), path) for id in ids[place::QUEUES]]
                with Sender(client, queue) as sender:
                    for start in range(0, len(mine), 200):
                        sender.send_batch(mine[start : start + 200])

    def wait(self, done: Callable[[], Any], what: str) -> None:
        """Until it is so, while all live that should."""
        deadline = time.monotonic() + DEADLINE_S
        while not done():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            self.check()
            time.sleep(0.05)

    def check(self) -> None:
        assert self.syphon is None or self.syphon.runs, "the syphon has ended by itself"
        if self.sender is not None:
            assert self.sender.runs, f"the senders have ended: {self.sender.output.read_text()}"
            assert not self.sender.notes().broken, self.sender.notes().broken

    def said(self) -> str:
        """What the processes said that may explain a failure."""
        parts = [f"{one.folder.name}: {one.output}" for one in self.syphons[-2:]]
        if self.sender is not None:
            parts.append(f"senders: {self.sender.output.read_text()}")
        return "\n".join(parts)
