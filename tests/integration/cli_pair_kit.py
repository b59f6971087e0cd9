"""A pairing with a backlog, and functions that run commands on it."""

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

KEY = "c2VjcmV0IG9mIHRlc3Rz"
RULES = tuple(
    SharedAccessRule(name=right.value, primary_key=KEY, rights=frozenset({right}))
    for right in (Right.LISTEN, Right.SEND)
)
ONE = f"Endpoint=sb://one.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey={KEY}"
TWO = ONE.replace("one.", "two.")
LOCAL = ONE.replace("one.servicebus.windows.net", "localhost:5")
PATIENCE_S = 100.0
TIMED_OUT = re.compile("in vain|in time|within|timed? ?out")
CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def message(id: str, *, session: str | None = None, body: bytes = b"body") -> bytes:
    return Message.build(properties=Properties(message_id=id, group_id=session), data=body).encode()


class Pairing:
    """Two namespaces with backlog queues of a unique primary name."""

    def __init__(
        self, primary: LocalNamespace, secondary: LocalNamespace, name: str, queues: int = 2
    ) -> None:
        self.primary = primary
        self.secondary = secondary
        self.name = name
        self.queues = backlog_paths(name, queues)
        for path in self.queues:
            secondary.create_queue(path)
        self.variables = {
            "PAIRBUS_PRIMARY": primary.connection_string,
            "PAIRBUS_SECONDARY": secondary.connection_string,
        }
        self.options = (
            *("--primary-name", name, "--backlog-queues", str(queues)),
            *("--timeout", "60"),  # the machine may be busy
        )

    def add_queue(self, index: int) -> int:
        """Create another backlog queue. Return its position for `put` and `dead_letter`."""
        path = backlog_path(self.name, index)
        self.secondary.create_queue(path)
        self.queues.append(path)
        return len(self.queues) - 1

    def put(self, destination: str, payloads: list[bytes], queue: int = 0) -> None:
        """Store messages as a paired sender would."""
        self.put_raw([to_backlog(payload, destination) for payload in payloads], queue)

    def put_raw(self, payloads: list[bytes], queue: int = 0) -> None:
        with self.client() as client, Sender(client, self.queues[queue]) as sender:
            for start in range(0, len(payloads), 200):
                sender.send_batch(payloads[start : start + 200])

    def dead_letter(self, count: int, reason: str, description: str, queue: int = 0) -> None:
        """Dead-letter the first messages of a queue."""
        path = self.queues[queue]
        with self.client() as client, Receiver(client, path) as receiver:
            received = receiver.receive(count)
            while len(received) < count:
                received += receiver.receive(count - len(received))
            with Management(client, path) as management:
                tokens = [lock_token(delivery) for delivery in received]
                management.settle(tokens, DEAD_LETTERED, reason=reason, description=description)

    def corrupt(self, sequence: int, rest: bytes, queue: int = 0) -> None:
        """Overwrite a stored message with bytes that the emulator itself would reject."""

        def write(core: Any) -> None:
            stored_queue = core.entities.source(self.queues[queue])[1]
            (stored,) = stored_queue.peek(sequence - 1, 1)
            stored.rest = rest
            stored_queue._messages.put(stored_queue.id, stored)

        self.secondary.call(write)

    def client(self) -> Client:
        return Client(
            ClientOptions.from_connection_string(
                self.secondary.connection_string, operation_timeout_s=PATIENCE_S
            )
        )

    def peeks(self) -> int:
        """Return the number of messages peeked so far, from the meter of the secondary."""
        readings = self.secondary.meter()
        return sum(
            reading.operations
            for (entity, kind), reading in readings.items()
            if kind == "peek" and entity.lower().startswith(f"{self.name}/")
        )

    def message_count(self) -> int:
        """Return the number of messages, dead-lettered ones included."""
        return self.secondary.call(
            lambda core: sum(
                len(queue) for path in self.queues for queue in core.entities.get(path).queues
            )
        )


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Return the environment of a command, without variables that would change its output."""
    removed = ("PAIRBUS_PRIMARY", "PAIRBUS_SECONDARY", "COLUMNS", "FORCE_COLOR", "NO_COLOR")
    return {
        **{k: v for k, v in os.environ.items() if k not in removed},
        "PYTHONUTF8": "1",
        **variables,
    }


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `pairbus` without a terminal. Its output has no stack trace, frames or colours."""
    result = subprocess.run(
        [sys.executable, "-m", "pairbus", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=environment(variables),
    )
    assert "Traceback" not in result.stderr, result.stderr
    assert KEY not in result.stdout + result.stderr
    assert not re.search(r"[\x1b│─━]", result.stdout), result.stdout
    return result


def run_here(*arguments: str, **variables: str) -> Result:
    """Run `pairbus` in this process, which is faster."""
    unset = dict.fromkeys(("PAIRBUS_PRIMARY", "PAIRBUS_SECONDARY"))
    result = CliRunner().invoke(app, arguments, env={**unset, "COLUMNS": "200", **variables})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert KEY not in result.output
    return result


class Terminal:
    """A command in a terminal with a given number of columns."""

    def __init__(self, columns: int, *arguments: str, **variables: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._output = bytearray()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pairbus", *arguments],
            env={**environment(variables), "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self._output.extend(os.read(self._master, 65536))
            except OSError:  # the command has closed its end
                return

    @property
    def raw(self) -> str:
        return self._output.decode("utf-8", "replace").replace("\r\n", "\n")

    @property
    def text(self) -> str:
        return CODES.sub("", self.raw)

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def exit_status(self) -> int:
        """Wait for the end and return the exit status. There is no stack trace."""
        status = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert "Traceback" not in self.text, self.text
        return status

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._reader.join(PATIENCE_S)
        os.close(self._master)


@contextmanager
def paused_emulator(folder: Path) -> Iterator[EmulatorProcess]:
    """Run a namespace in a process that was stopped with SIGSTOP."""
    with EmulatorProcess(folder=folder) as emulator, emulator.paused():
        yield emulator


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.05)
