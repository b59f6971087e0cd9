"""The command that an embedded Spark starts its Python processes with: they are forked."""

import atexit
import contextlib
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from pairbus.spark import fork_launcher
from pairbus.spark.process_folder import process_folder

VARIABLE = "PYSPARK_PYTHON"
SERVER = "pairbus.spark.fork_server"
SPARK_MODULES = (
    "pandas",  # pyarrow imports it for its first array
    "pyarrow",
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
)
"""The modules that the Python processes of any query import."""
SYPHON_MODULE = "pairbus.syphon.backlog_source"
EXIT_S = 5.0
"""The longest wait for the server when the process exits."""

_lock = threading.Lock()
_command: Path | None = None
_process = 0


@contextlib.contextmanager
def forked_python(*, streams: bool) -> Iterator[None]:
    """Let Spark that starts within the block fork its Python processes. `streams` says that they
    run a syphon."""
    command = _start_server(streams=streams) if is_possible() else None
    if command is None:
        yield
        return
    before = os.environ[VARIABLE]
    os.environ[VARIABLE] = str(command)
    try:
        yield
    finally:
        os.environ[VARIABLE] = before


def is_possible() -> bool:
    """Return True if processes can be forked and watched here."""
    if sys.platform != "linux" or not os.access("/bin/sh", os.X_OK):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # Linux before 5.3, or a sandbox
        return False
    return True


def is_this_python(command: str) -> bool:
    """Return True if a command of Spark starts the interpreter of this process."""
    return command in (sys.executable, str(_command))


def _start_server(*, streams: bool) -> Path | None:
    """Return the command, and start the server if it does not run yet. None: it cannot start."""
    global _command, _process  # a process has one JVM
    with _lock:
        if _command is None or _process != os.getpid():
            modules = (*SPARK_MODULES, SYPHON_MODULE) if streams else SPARK_MODULES
            try:
                command, server = start_fork_server(process_folder(), modules)
            except OSError:
                return None
            _command, _process = command, os.getpid()
            atexit.register(_stop, server, _process)
        return _command


def start_fork_server(folder: Path, modules: Iterable[str]) -> tuple[Path, subprocess.Popen[bytes]]:
    """Start a server that has imported some modules. It ends when its standard input is closed.
    Return the command that has it fork processes, which is in the folder, as its socket is. Raises
    OSError if one of them cannot be created there."""
    address = folder / "python.socket"
    command = folder / "python"
    arguments = [sys.executable, "-IS", fork_launcher.__file__, address, sys.executable]
    text = " ".join(shlex.quote(str(argument)) for argument in arguments)
    command.write_text(f'#!/bin/sh\nexec {text} "$@"\n')
    command.chmod(0o700)
    if not os.access(command, os.X_OK):
        raise PermissionError(f"{command} cannot be executed: its file system does not allow it")
    environment = {
        # No threads, because the process forks others.
        "OPENBLAS_NUM_THREADS": "1",
        **os.environ,
        # The settings of Spark for its Python processes.
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
        "PYTHONUNBUFFERED": "YES",
    }
    with socket.socket(socket.AF_UNIX) as listener:
        # Spark may send requests before the server is ready.
        listener.bind(str(address))
        listener.listen()
        server = subprocess.Popen(
            [sys.executable, "-m", SERVER, str(listener.fileno()), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            pass_fds=[listener.fileno()],
        )
    return command, server


def _stop(server: subprocess.Popen[bytes], process: int) -> None:
    if os.getpid() != process:  # a fork
        return
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        assert server.stdin is not None
        server.stdin.close()
        server.wait(EXIT_S)
