"""Spark servers as processes of their own: a master, workers, and a Connect server."""

import contextlib
import os
import signal
import socket
import subprocess
import venv
from pathlib import Path

import pyspark

from tests.cluster.networks import NetworkNamespace
from tests.processes import all_processes, send_signal
from tests.waiting import wait_until

HOME = Path(pyspark.__path__[0])
PACKAGES = ("pyarrow", "pandas", "numpy", "numpy.libs", "pytz", "dateutil", "tzdata")
"""What a worker needs beside Spark itself, which has PySpark in it."""


def worker_environment(folder: Path) -> Path:
    """Create a Python environment with what a worker needs, which has neither pairbus nor the
    Azure SDK nor PySpark. Return its interpreter."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in PACKAGES:
        (packages / name).symlink_to(HOME.parent / name)
    python = folder / "bin" / "python"
    check = "import importlib.util as u, pyarrow, pandas; print(*map(u.find_spec, %r))"
    missing = ("pairbus", "azure", "pyspark")
    found = subprocess.check_output([python, "-I", "-c", check % (missing,)], text=True)
    assert found.split() == ["None"] * len(missing)
    return python


def free_port(host: str = "127.0.0.1") -> int:
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


class SparkServer:
    """A process of Spark with all processes that it starts. It is killed at the end of a `with`
    block."""

    def __init__(self, log: Path, *arguments: str, prefix: tuple[str, ...] = (), **variables: str):
        self.log = log
        environment = {**os.environ, "SPARK_HOME": str(HOME), **variables}
        environment.pop("PYTHONPATH", None)  # which has pairbus
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [*prefix, *arguments],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> "SparkServer":
        return self

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        if exc is not None:
            exc.add_note(f"{self.log.name}: {self.log.read_text()[-4000:]}")
        self.kill()

    def wait_for(self, text: str) -> None:
        """Wait until the log has a text."""

        def is_there() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return text in self.log.read_text()

        wait_until(is_there, f"{text!r} in {self.log}")

    def pids(self) -> list[int]:
        """Return the processes of the server that run."""
        return [
            process.pid
            for process in all_processes()
            if process.session == self.process.pid and not process.has_ended
        ]

    def kill(self) -> None:
        """Kill all processes. Idempotent."""

        def are_gone() -> bool:
            pids = self.pids()
            send_signal(pids, signal.SIGKILL)
            return not pids

        with contextlib.suppress(ProcessLookupError):
            wait_until(are_gone, "the server to be killed")
        self.process.wait()


def connect_server(folder: Path, port: int, python: Path) -> SparkServer:
    """Start a Spark Connect server with embedded Spark, whose workers use another Python."""
    folder.mkdir(parents=True)
    return SparkServer(
        folder / "server.log",
        *(str(HOME / "bin" / "spark-submit"), "--master", "local[2,4]"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.ui.enabled=false", "spark-internal"),
        PYSPARK_PYTHON=str(python),
        SPARK_LOCAL_IP="127.0.0.1",
        TMPDIR=str(folder),
        SPARK_LOCAL_DIRS=str(folder),
    )


SMALL_DAEMON = {"SPARK_DAEMON_MEMORY": "256m"}


def master(log: Path, host: str, port: int) -> SparkServer:
    """Start the master of a standalone cluster."""
    return SparkServer(
        log,
        *(str(HOME / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master"),
        *("--host", host, "--port", str(port), "--webui-port", "0"),
        **SMALL_DAEMON,
    )


def worker(folder: Path, network: NetworkNamespace, master_url: str) -> SparkServer:
    """Start a worker with one core in a network namespace."""
    folder.mkdir(parents=True)
    return SparkServer(
        folder / "worker.log",
        *(str(HOME / "bin" / "spark-class"), "org.apache.spark.deploy.worker.Worker"),
        *(master_url, "--host", network.address, "--cores", "1", "--memory", "1g"),
        *("--work-dir", str(folder / "work"), "--webui-port", "0"),
        prefix=network.prefix,
        SPARK_LOCAL_IP=network.address,
        SPARK_LOCAL_DIRS=str(folder),
        **SMALL_DAEMON,
    )
