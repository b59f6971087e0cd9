"""The syphon and the connector with a session of a Spark Connect server, whose Python has neither
pairbus nor the Azure SDK."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from pairbus.amqp.client import ClientOptions
from pairbus.cost.report import report
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import ConfigurationError
from pairbus.spark.owned_folders import OWNER
from pairbus.spark.sessions import disconnect
from pairbus.syphon import Syphon, register
from pairbus.syphon.query import SERVER_TMP
from pairbus.transfer import to_backlog
from tests.backlog import Backlog
from tests.cluster.servers import SparkServer, connect_server, free_port, worker_environment
from tests.commands import run
from tests.dead_letters import DeadLetters
from tests.messages import numbered
from tests.waiting import DEADLINE_S, wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("connect")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[tuple[SparkServer, str]]:
    worker_environment(folder / "python")
    with started_server(folder / "server") as server:
        yield server


@contextmanager
def started_server(folder: Path) -> Iterator[tuple[SparkServer, str]]:
    port = free_port()
    python = folder.parent / "python" / "bin" / "python"
    with connect_server(folder, port, python) as process:
        process.wait_for("Spark Connect server started")
        socket.create_connection(("127.0.0.1", port)).close()
        yield process, f"sc://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def session(server: tuple[SparkServer, str]) -> Iterator[SparkSession]:
    from pyspark.sql.connect.session import SparkSession as RemoteSession  # needs grpcio

    session = cast(SparkSession, RemoteSession.builder.remote(server[1]).create())
    yield session
    disconnect(session)


@pytest.fixture(scope="module")
def namespaces() -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        yield primary, secondary


@pytest.fixture
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    return Backlog(*namespaces)


@pytest.mark.rule("Y1")
def test_syphon_with_a_remote_session_reports_progress_and_stops(
    session: SparkSession, backlog: Backlog
) -> None:
    path = backlog.path("orders")
    backlog.put(path, numbered(300))
    with Syphon(backlog.options(), spark=session) as syphon:
        wait_until(lambda: syphon.status().moved[path] == 300, "the first messages in the status")
        backlog.put(path, numbered(10, "later"), queue=1)
        wait_until(lambda: syphon.status().moved[path] == 310, "the later messages in the status")
        assert syphon.status().running
        assert syphon.status().healthy
        (folder,) = SERVER_TMP.glob(f"{syphon.format_name}*")

    assert (syphon.status().running, syphon.status().failure) == (False, None)
    assert (backlog.left(), len(backlog.ids(path))) == (0, 310)
    wait_until(lambda: not folder.exists(), "the server to remove its folder")


@pytest.mark.rule("Y1", "Y8")
def test_command_drains_the_backlog_on_a_connect_server(
    server: tuple[SparkServer, str], backlog: Backlog, tmp_path: Path
) -> None:
    path = backlog.path("orders")
    backlog.put(path, numbered(200))
    status_file = tmp_path / "status.json"

    result = run(
        *("syphon", "--once", "--master", server[1], *backlog.arguments),
        *("--status-file", str(status_file)),
        **backlog.variables,
    )

    assert result.returncode == 0, result.stderr
    assert "200 messages moved, 0 dead-lettered." in result.stdout
    status = json.loads(status_file.read_text())
    assert (status["running"], status["ended"], status["moved"]) == (False, "drained", {path: 200})


@pytest.mark.rule("R4")
def test_dead_letters_are_redriven_on_a_connect_server(
    server: tuple[SparkServer, str], backlog: Backlog, tmp_path: Path
) -> None:
    path = backlog.path("orders")
    for queue in backlog.queues:
        letters = DeadLetters(backlog.secondary, queue)
        letters.put([to_backlog(payload, path) for payload in numbered(50, queue)])
        letters.close()

    result = run(
        *("dead-letters", "redrive", "--spark", "--master", server[1], *backlog.arguments),
        **backlog.variables,
        XDG_STATE_HOME=str(tmp_path),
    )

    assert result.returncode == 0, result.stderr
    assert "100 dead letters moved." in result.stdout
    assert (backlog.message_count(), len(set(backlog.ids(path)))) == (0, 100)


def test_connector_reads_with_a_remote_session(session: SparkSession, backlog: Backlog) -> None:
    path = backlog.path("orders")
    backlog.put(path, numbered(5))
    register(session)
    options = {
        "connectionString": backlog.secondary.connection_string,
        "queue": ",".join(backlog.queues),
    }

    rows = (
        session.read.format("servicebus").options(**options).load().select("message_id").collect()
    )

    assert sorted(row.message_id for row in rows) == [f"m-{n}" for n in range(5)]


def test_credential_object_is_an_error(session: SparkSession, backlog: Backlog) -> None:
    credential = backlog.secondary.credential()
    options = replace(
        backlog.options(),
        primary=ClientOptions.from_host("a.example", credential),
        secondary=ClientOptions.from_host("b.example", credential),
    )
    with pytest.raises(ConfigurationError, match="a Spark Connect server cannot get tokens"):
        Syphon(options, spark=session).start()


def test_cost_report_is_an_error(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot make a cost report"):
        report(session, [tmp_path])


@pytest.mark.rule("Y11")
def test_condition_and_destinations_select_messages(
    session: SparkSession, backlog: Backlog
) -> None:
    first, second = backlog.path("first"), backlog.path("second")
    backlog.put(first, numbered(5))
    backlog.put(second, numbered(5))
    options = backlog.options(only=(first,), where="message_id <> 'm-3'")
    with Syphon(options, spark=session):
        wait_until(lambda: len(backlog.ids(first)) == 4, "the selected messages")
    assert (backlog.left(), backlog.ids(second)) == (6, [])


def test_server_that_is_killed_is_a_failure_and_the_next_one_removes_its_folder(
    server: tuple[SparkServer, str],
    backlog: Backlog,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pairbus.syphon.query.SERVER_TMP", tmp_path)  # which no other test cleans
    syphon = Syphon(backlog.options(), master=server[1])
    syphon.start()
    (left_behind,) = wait_until(
        lambda: list(tmp_path.glob(f"{syphon.format_name}/{OWNER}")), "the folder on the server"
    )
    server[0].kill()

    assert syphon.wait(DEADLINE_S)
    syphon.stop()

    status = syphon.status()
    assert (status.running, status.healthy) == (False, False)
    assert "Spark ended or cannot be reached any more" in str(status.failure)

    assert left_behind.exists()
    path = backlog.path("orders")
    backlog.put(path, numbered(10))
    with started_server(folder / "second") as (_, address):
        successor = Syphon(backlog.options(), master=address)
        successor.start(once=True)
        assert successor.wait(DEADLINE_S)
        successor.stop()
    assert successor.status().drained
    assert not left_behind.parent.exists()
