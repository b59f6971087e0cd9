"""The process that the Python processes of an embedded Spark are forked from.

Spark starts a Python process for each kind of step: creating a data source, planning a read,
running a source, writing, committing, and one for each task. Each of them would import pyspark,
pyarrow and this package, which takes half a second of CPU time or more, most of them one after the
other, and 60 MB of memory. This process imports them once, while the JVM starts. The processes that
are forked from it share its memory, and start at once.

It is single-threaded, and ends with the process that started it. `fork_launcher` sends the
requests, and `python_command` starts it.
"""

import contextlib
import gc
import importlib
import marshal
import os
import re
import runpy
import select
import signal
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pairbus.spark.fork_launcher import LENGTH_BYTES

FORK_SERVER = "fork_server"
FORKED = b"+"
REQUEST_S = 5.0
"""The longest wait for the rest of a request."""
STANDARD_FILES = 3
MAX_NAME = 15
"""The longest name of a process."""
_SETTING = re.compile(r"PYTHON[A-Z0-9]+")


@dataclass(frozen=True, slots=True)
class Request:
    """A process to be forked."""

    command: list[str]
    """A module and its arguments."""
    environment: dict[str, str]
    folder: str
    files: list[int]
    """Its standard input, output and error."""


def fits(environment: Mapping[str, str], own: Mapping[str, str]) -> bool:
    """Return True if an interpreter with this environment would have the same settings as this one.
    `sys.path` can be changed later, settings such as the hash seed cannot."""
    return _settings(environment) == _settings(own)


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if _SETTING.fullmatch(name) and name != "PYTHONPATH"
    }


def module_path(folder: str, python_path: str, own: list[str]) -> list[str]:
    """Return `sys.path` of a process with this PYTHONPATH that runs a module in a folder. `own` is
    that of this process, which also runs a module."""
    added = [folder, *filter(None, python_path.split(os.pathsep))]
    return [*added, *(entry for entry in own[1:] if entry not in added)]


@dataclass(slots=True)
class ForkServer:
    """Forks a process for each connection, and sends its exit code there when it has ended."""

    listener: socket.socket
    _children: dict[int, tuple[int, socket.socket]] = field(default_factory=dict)
    """The process id and the connection of each process that was forked, by its pidfd."""

    def serve(self, parent: int) -> Request | None:
        """Serve requests until the other end of the file `parent` is closed, and return None. In a
        forked process, return its request."""
        while True:
            ready = self._wait(parent)
            if parent in ready:
                return None
            for pidfd, (pid, connection) in list(self._children.items()):
                if pidfd in ready:
                    self._report_end(pidfd)
                elif connection.fileno() in ready:  # the launcher was killed
                    connection.close()
                    self._children[pidfd] = pid, connection
                    os.kill(pid, signal.SIGTERM)
            if self.listener.fileno() in ready and (request := self._accept()) is not None:
                return request

    def _wait(self, parent: int) -> set[int]:
        poll = select.poll()
        for descriptor in (parent, self.listener.fileno(), *self._children):
            poll.register(descriptor, select.POLLIN)
        for _, connection in self._children.values():
            if connection.fileno() >= 0:
                poll.register(connection, select.POLLIN)
        return {descriptor for descriptor, _ in poll.poll()}

    def _accept(self) -> Request | None:
        """Fork a process. In this one, return None."""
        connection, _ = self.listener.accept()
        files: list[int] = []
        try:
            connection.settimeout(REQUEST_S)
            request = _read_request(connection, files)
            if not fits(request.environment, os.environ):
                raise ValueError("this request needs an interpreter of its own")
            pid = os.fork()
            if pid == 0:
                self._close(connection)
                return request
            connection.sendall(FORKED)
            self._children[os.pidfd_open(pid)] = pid, connection
        except (OSError, EOFError, ValueError):  # the launcher was killed, or starts it by itself
            connection.close()
        for file in files:
            os.close(file)
        return None

    def _report_end(self, pidfd: int) -> None:
        pid, connection = self._children.pop(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        if connection.fileno() >= 0:
            code = os.waitstatus_to_exitcode(status)
            with contextlib.suppress(OSError):  # the launcher was killed
                connection.sendall(b"%d\n" % (code if code >= 0 else 128 - code))
            connection.close()

    def _close(self, connection: socket.socket) -> None:
        """Close the files of the server in a forked process."""
        for pidfd, (_, other) in self._children.items():
            os.close(pidfd)
            other.close()
        connection.close()
        self.listener.close()


def _read_request(connection: socket.socket, files: list[int]) -> Request:
    length, received, _, _ = socket.recv_fds(connection, LENGTH_BYTES, STANDARD_FILES)
    files += received
    with connection.makefile("rb") as stream:
        command, environment, folder = marshal.loads(stream.read(int.from_bytes(length, "big")))
    return Request(command, environment, folder, files)


def run(request: Request) -> None:
    """Run the module of a request in this process, as `python -m` would."""
    for number, file in enumerate(request.files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.path[:] = module_path(request.folder, os.environ.get("PYTHONPATH", ""), sys.path)
    set_process_name(request.command[-1])
    module = request.command[0]
    sys.argv[:] = request.command
    sys.modules.pop(module, None)  # it is executed, not imported
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def set_process_name(module: str) -> None:
    """Name this process after the last module of its command, for `ps` and `top`."""
    name = module if len(module) <= MAX_NAME else module.rpartition(".")[2].removeprefix("python_")
    with contextlib.suppress(OSError):  # it is only a name
        Path("/proc/self/comm").write_text(name[:MAX_NAME])


def preload(modules: Iterable[str]) -> None:
    """Import what the forked processes need, and keep the garbage collector away from it: it would
    write to the pages that they share."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError:  # the process that needs it reports this
            continue
    gc.collect()
    gc.freeze()


def main() -> None:
    """Serve requests on the socket whose file descriptor is the first argument. The others are the
    modules to import."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the application
    set_process_name(FORK_SERVER)
    server = ForkServer(socket.socket(fileno=int(sys.argv[1])))
    preload(sys.argv[2:])
    request = server.serve(sys.stdin.fileno())
    if request is not None:
        run(request)


if __name__ == "__main__":
    main()
