"""Spark sessions: created here, or shared with the application that already runs Spark.

A process has one Spark context. `lease_session` shares it: the first lease starts Spark unless the
application has started it, and the last release stops Spark if a lease started it. A session of a
Spark Connect server (`sc://`) belongs to its lease.
"""

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pairbus.spark.class_archive import archive_options
from pairbus.spark.connect_retries import limit_retries
from pairbus.spark.lost_jvm import hide_lost_jvm
from pairbus.spark.package_archive import write_archive
from pairbus.spark.process_folder import process_folder
from pairbus.spark.python_command import forked_python, is_this_python
from pairbus.spark.spark_home import fast_home


class Workload(StrEnum):
    """The work of a Spark on this machine, which determines how Java and Python start."""

    STREAMS = "streams"
    """Streaming queries, which compute in Python."""
    QUERIES = "queries"
    """Queries that compute much in the JVM."""
    SMALL_QUERIES = "small-queries"
    """Queries over so few rows, all in the JVM, that the start takes most of the time."""

    @property
    def archive(self) -> str:
        """The name of the archive of Java classes."""
        return "streams" if self is Workload.STREAMS else "queries"


FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms128m", "-Xmn64m")
"""JVM options that shorten the start of Spark by a third, and take little memory. They slow down
long computations."""
LOCAL_MASTER = "local[*,4]"
"""All cores, and four attempts for each task. With `local[*]`, the first Python worker that crashes
ends the query."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "3",
    "spark.speculation.minTaskRuntime": "60s",
    "spark.speculation.task.duration.threshold": "60s",
    "spark.speculation.efficiency.enabled": "false",
}
"""On a cluster, a task that lasts three times as long as it should runs a second time on another
executor: the first one may be frozen. A second run that is not needed costs duplicates."""
ROWS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
ROWS_PER_WRITE = 250
"""Rows of one Arrow batch for a writer. Spark collects them first: with its default of 10 000, a
writer would wait long, and a drain that is paced may have some hundred messages a second."""
REMOTE_PREFIX = "sc://"
NOT_REMOTE = (
    "A session of Spark Connect cannot make a cost report: it gives no access to the file systems "
    "that hold the ledgers. Use a session of this process, on this machine or on a cluster."
)
LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")


def create_session(
    master: str | None,
    app_name: str = "pairbus",
    *,
    workload: Workload = Workload.STREAMS,
    log: Path | None = None,
) -> SparkSession:
    """Create a Spark session, embedded in this process unless `master` is given, which may be the
    address of a Spark Connect server.

    `log` is a file for the output of the JVM and of the workers, which is that of this process
    otherwise. The first JVM writes an archive of Java classes after this process has ended, and
    keeps its output open until then.
    """
    if master is not None and master.startswith(REMOTE_PREFIX):
        return _connect(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_local = master is None or is_local_master(master)
    settings: dict[str, Any] = {
        "spark.app.name": app_name,
        "spark.master": master or LOCAL_MASTER,
        "spark.ui.showConsoleProgress": "false",
    }
    if master is None:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    if not is_local:
        settings |= SPECULATION
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(fast_home()) if is_local else None
        if home is not None:
            if workload is not Workload.SMALL_QUERIES:
                stack.enter_context(forked_python(streams=workload is Workload.STREAMS))
            stack.enter_context(_variable("MALLOC_ARENA_MAX", "2"))
        _import_while_java_starts()
        java_options = [
            f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}",
            # The folders of a JVM that is killed are removed at the next start.
            f"-Djava.io.tmpdir={process_folder()}",
            *(FAST_START if workload is not Workload.QUERIES and is_local else ()),
            *archive_options(home, workload.archive),
        ]
        settings["spark.driver.extraJavaOptions"] = " ".join(java_options)
        if log is not None:
            with log.open("ab") as file:
                conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
                gateway = launch_gateway(conf, {"stdout": file, "stderr": file})  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=gateway)
        session = SparkSession.builder.config(map=settings).getOrCreate()
    hide_lost_jvm(session)
    if not is_local:
        _add_package(session)
    configure_streaming(session)
    return session


def _import_while_java_starts() -> None:
    """Import what PySpark imports for the first call of Java, which includes pandas."""

    def run() -> None:
        with contextlib.suppress(Exception):  # PySpark reports it
            importlib.import_module("pyspark.testing.utils")

    threading.Thread(target=run, name="pairbus imports", daemon=True).start()


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable for processes that start within the block, unless it is set."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def is_local_master(master: str) -> bool:
    """Return True if the tasks run in the JVM of the driver."""
    return master == "local" or master.startswith("local[")


def is_remote(session: SparkSession) -> bool:
    """Return True for a session of Spark Connect: it has no context and no JVM in this process."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def runs_elsewhere(session: SparkSession) -> bool:
    """Return True if processes of Spark may not have this package: they are on other machines, or
    use another interpreter."""
    if is_remote(session):
        return True
    context = session.sparkContext
    return not is_local_master(context.master or "") or not is_this_python(context.pythonExec)


def _add_package(session: SparkSession) -> None:
    """Send this package to the workers, for functions of other queries than ours, such as those of
    a redrive. Data sources bring it along by themselves."""
    # Executors may come at any time, so the file stays while the process lives.
    session.addArtifacts(str(write_archive(process_folder())), pyfile=True)


def disconnect(session: SparkSession) -> None:
    """Stop a session of Spark Connect. By default, PySpark would try for ten minutes if the server
    is gone."""
    client: Any = getattr(session, "client", None)
    with contextlib.suppress(Exception):
        client.set_retry_policies([])
        session.stop()


def _connect(address: str) -> SparkSession:
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    session = cast(SparkSession, RemoteSession.builder.remote(address).create())
    limit_retries(cast(Any, session).client)
    _add_package(session)
    configure_streaming(session)
    return session


def configure_streaming(session: SparkSession) -> None:
    """Set what makes a drain fast. These settings belong to the session, not to the context."""
    session.conf.set(ROWS_SETTING, str(ROWS_PER_WRITE))
    session.conf.set("spark.sql.streaming.pollingDelay", "100ms")


class SessionLease:
    """The use of a session that this process shares, until `release`."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._released = False

    def __enter__(self) -> SparkSession:
        return self.session

    def __exit__(self, *exc: object) -> None:
        self.release()

    def release(self) -> None:
        """End the lease. The last one stops Spark if a lease started it. Idempotent."""
        global _leases, _started_session  # noqa: PLW0603  a process has one Spark context
        with _lock:
            if self._released:
                return
            self._released = True
            if is_remote(self.session):
                disconnect(self.session)
                return
            _leases -= 1
            if _leases == 0 and _started_session is not None:
                with contextlib.suppress(Exception):  # the JVM may be gone
                    _started_session.stop()
                _started_session = None


_lock = threading.Lock()
_leases = 0
_started_session: SparkSession | None = None


def lease_session(master: str | None, log: Path | None = None) -> SessionLease:
    """Lease the session of this process, and start Spark if it does not run yet.

    Where Spark runs already, the lease has a new session of the same context, so that its settings
    do not change those of the application. `master` and `log` apply only if Spark is started here.
    """
    global _leases, _started_session  # noqa: PLW0603  a process has one Spark context
    if master is not None and master.startswith(REMOTE_PREFIX):
        return SessionLease(create_session(master))
    with _lock:
        # Not SparkSession.getActiveSession(), which is a property of the thread.
        if SparkContext._active_spark_context is None:
            session = _started_session = create_session(master, log=log)
        else:
            session = SparkSession.builder.getOrCreate().newSession()
            configure_streaming(session)
        _leases += 1
        return SessionLease(session)
