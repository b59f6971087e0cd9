"""A pairing with a backlog, for commands that look at it, and ways to run them."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from pairbus.amqp.client import Client, ClientOptions, Management, Receiver, Sender, lock_token
from pairbus.amqp.sections import Message, Properties
from pairbus.cli.app import app
from pairbus.emulator import EmulatorProcess, LocalNamespace
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.servicebus.backlog_paths import backlog_path, backlog_paths
from pairbus.servicebus.management import DEAD_LETTERED
from pairbus.transfer import to_backlog

ROOT = Path(__file__).parents[2]
KEY = "c2VjcmV0IG9mIHRlc3Rz"
RULES = tuple(
    SharedAccessRule(name=right.value, primary_key=KEY, rights=frozenset({right}))
    for right in (Right.LISTEN, Right.SEND)
)
ONE = f"Endpoint=sb://one.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey={KEY}"
TWO = ONE.replace("one.", "two.")
LOCAL = ONE.replace("one.servicebus.windows.net", "localhost:5")
PATIENCE_S = 100.0
CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def message(id: str, *, session: str | None = None, body: bytes = b"body") -> bytes:
    return Message.build(properties=Properties(message_id=id, group_id=session), data=body).encode()


class Pairing:
    """Two namespaces, and some backlog queues under a name of their own."""

    def __init__(
        self, primary: LocalNamespace, secondary: LocalNamespace, name: str, queues: int = 2
    ) -> None:
        self.primary = primary
        self.secondary = secondary
        self.name = name
        self.queues = backlog_paths(name, queues)
        for path in self.queues:
            secondary.create_queue(path)
        self.given = {
            "PAIRBUS_PRIMARY": primary.connection_string,
            "PAIRBUS_SECONDARY": secondary.connection_string,
        }
        self.options = (
            *("--primary-name", name, "--backlog-queues", str(queues)),
            *("--timeout", "60"),  # the machine may be busy
        )

    def add_queue(self, index: int) -> int:
        """Create a further backlog queue; return its position for `put` and `bury`."""
        path = backlog_path(self.name, index)
        self.secondary.create_queue(path)
        self.queues.append(path)
        return len(self.queues) - 1

    def put(self, destination: str, payloads: list[bytes], queue: int = 0) -> None:
        """Store messages as a paired sender would."""
        self.put_raw([to_backlog(one, destination) for one in payloads], queue)

    def put_raw(self, payloads: list[bytes], queue: int = 0) -> None:
        with self.client() as client, Sender(client, self.queues[queue]) as sender:
            for start in range(0, len(payloads), 200):
                sender.send_batch(payloads[start : start + 200])

    def bury(self, count: int, reason: str, description: str, queue: int = 0) -> None:
        """Dead-letter the first messages of a queue."""
        path = self.queues[queue]
        with self.client() as client, Receiver(client, path) as receiver:
            taken = receiver.receive(count)
            while len(taken) < count:
                taken += receiver.receive(count - len(taken))
            with Management(client, path) as management:
                tokens = [lock_token(one) for one in taken]
                management.settle(tokens, DEAD_LETTERED, reason=reason, description=description)

    def spoil(self, sequence: int, rest: bytes, queue: int = 0) -> None:
        """Make nonsense of a stored message: the emulator itself takes none."""

        def write(core: Any) -> None:
            where = core.entities.source(self.queues[queue])[1]
            (stored,) = where.peek(sequence - 1, 1)
            stored.rest = rest
            where._store.messages.put(where.id, stored)

        self.secondary.call(write)

    def client(self) -> Client:
        return Client(
            ClientOptions.from_connection_string(
                self.secondary.connection_string, operation_timeout_s=PATIENCE_S
            )
        )

    def peeks(self) -> int:
        """How many messages were peeked so far, by the meter of the secondary."""
        readings = self.secondary.meter()
        return sum(
            reading.operations
            for (entity, kind), reading in readings.items()
            if kind == "peek" and entity.lower().startswith(f"{self.name}/")
        )

    def held(self) -> int:
        """How many messages there are, dead-lettered ones included."""
        return self.secondary.call(
            lambda core: sum(
                len(queue) for path in self.queues for queue in core.entities.get(path).queues
            )
        )


def environment(given: dict[str, str]) -> dict[str, str]:
    gone = ("PAIRBUS_PRIMARY", "PAIRBUS_SECONDARY", "COLUMNS", "FORCE_COLOR", "NO_COLOR")
    return {**{k: v for k, v in os.environ.items() if k not in gone}, "PYTHONUTF8": "1", **given}


def run(*words: str, **given: str) -> subprocess.CompletedProcess[str]:
    """`pairbus`, without a terminal: never with a stack, frames or colours."""
    ended = subprocess.run(
        [sys.executable, "-m", "pairbus", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=environment(given),
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    assert KEY not in ended.stdout + ended.stderr
    assert not re.search(r"[\x1b│─━]", ended.stdout), ended.stdout
    return ended


def run_here(*words: str, **given: str) -> Result:
    """The same in this process: soon done, for what does not depend on one of its own."""
    gone = dict.fromkeys(("PAIRBUS_PRIMARY", "PAIRBUS_SECONDARY"))
    ended = CliRunner().invoke(app, words, env={**gone, "COLUMNS": "200", **given})
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    assert KEY not in ended.output
    return ended


class Terminal:
    """A command in a terminal of so many columns."""

    def __init__(self, columns: int, *words: str, **given: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._seen = bytearray()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pairbus", *words],
            env={**environment(given), "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        while True:
            try:
                self._seen.extend(os.read(self._master, 65536))
            except OSError:  # nobody holds the other end any more
                return

    @property
    def raw(self) -> str:
        return self._seen.decode("utf-8", "replace").replace("\r\n", "\n")

    @property
    def text(self) -> str:
        return CODES.sub("", self.raw)

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def ended(self) -> int:
        """The exit status. Never with a stack."""
        status = self.process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        assert "Traceback" not in self.text, self.text
        return status

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._reading.join(PATIENCE_S)
        os.close(self._master)


@contextmanager
def paused_emulator(folder: Path) -> Iterator[EmulatorProcess]:
    """A namespace in a process that was stopped with SIGSTOP."""
    with EmulatorProcess(folder=folder) as emulator, emulator.paused():
        yield emulator


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
