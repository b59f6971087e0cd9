"""Commands of `pairbus`: as a process, in this process, and on a terminal."""

import fcntl
import logging
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from typer.testing import CliRunner, Result

from pairbus.cli.app import app
from tests.waiting import DEADLINE_S

KEY = "c2VjcmV0IG9mIHRlc3Rz"
"""A secret. No command may print it."""
ONE = f"Endpoint=sb://one.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey={KEY}"
TWO = ONE.replace("one.", "two.")
LOCAL = ONE.replace("one.servicebus.windows.net", "localhost:5")
VARIABLES = (
    "PAIRBUS_PRIMARY",
    "PAIRBUS_SECONDARY",
    "PAIRBUS_PRIMARY_NAME",
    "PAIRBUS_BACKLOG_QUEUES",
    "PAIRBUS_CONFIG",
)
"""The environment variables that change what commands do."""
TIMED_OUT = re.compile("in vain|in time|within|timed? ?out", re.IGNORECASE)
CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-u", "-m", "pairbus", *arguments]


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Return the environment of a command, without variables that would change its output. An empty
    value removes a variable."""
    removed = (*VARIABLES, "COLUMNS", "FORCE_COLOR", "NO_COLOR")
    all_variables = os.environ | dict.fromkeys(removed, "") | {"PYTHONUTF8": "1"} | variables
    return {name: value for name, value in all_variables.items() if value}


def run(*arguments: str, answer: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command without a terminal, and write `answer` to its standard input. Its output has no
    stack trace, frames or colours."""
    result = subprocess.run(
        command(*arguments),
        input=answer,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=environment(variables),
    )
    check_output(result.stdout, result.stderr)
    return result


def run_here(*arguments: str, **variables: str) -> Result:
    """Run a command in this process, which is faster."""
    unset = dict.fromkeys(VARIABLES)
    with logging_settings_kept():
        result = CliRunner().invoke(app, arguments, env={**unset, "COLUMNS": "200", **variables})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert KEY not in result.output
    return result


@contextmanager
def logging_settings_kept() -> Iterator[None]:
    """Restore the handlers of the root logger and the levels of all loggers at the end."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    levels = {None: root.level} | {name: logging.getLogger(name).level for name in known_loggers()}
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for name in known_loggers() | levels.keys():
            logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))


def known_loggers() -> set[str]:
    return set(logging.root.manager.loggerDict)


def check_output(out: str, err: str) -> None:
    """Check the output of a command without a terminal: no stack traces, frames or colours."""
    assert "Traceback" not in err, err
    assert "\tat " not in err, err  # a line of a Java stack trace
    assert "log level" not in err, err
    assert KEY not in out + err
    assert not re.search(r"[\x1b│─━]", out), out


class RunningCommand:
    """A command that runs in its own process group, as a shell does: Ctrl-C reaches the group."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            command(*arguments),
            env=environment(variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def read_until(self, text: str) -> str:
        """Read the output up to a line with a text, and return that line."""
        assert self.process.stdout is not None
        while text not in (line := self.process.stdout.readline()):
            assert line, f"the command ended without {text!r}"
        return line

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self) -> tuple[int, str, str]:
        """Wait for the end, and return exit status, the remaining output, and errors."""
        out, err = self.process.communicate(timeout=DEADLINE_S)
        check_output(out, err)
        return self.process.returncode, out, err


@contextmanager
def started(*arguments: str, **variables: str) -> Iterator[RunningCommand]:
    """Start a command. It is killed at the end of the block."""
    running = RunningCommand(*arguments, **variables)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.communicate()


class Terminal:
    """A command on a terminal with a given number of columns."""

    def __init__(self, columns: int, *arguments: str, **variables: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._output = bytearray()
        self.process = subprocess.Popen(
            command(*arguments),
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
            except OSError:  # the command has closed the terminal
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
        """Wait for the end, check that there is no stack trace, and return the exit status."""
        status = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        assert "Traceback" not in self.text, self.text
        return status

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._reader.join(DEADLINE_S)
        os.close(self._master)
