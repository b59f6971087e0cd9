"""One run of the fault matrix (`python -m tests.faults.matrix` runs all of it), and tests of its
parts: relays that simulate a network partition, and the guard that kills all processes."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.faults.dead_ports import dead_port
from tests.faults.matrix.environment import ROOT, MatrixEnvironment
from tests.faults.matrix.guard import MARK, marked_processes
from tests.faults.matrix.plan import KINDS, Cell, plan
from tests.faults.matrix.relays import Cut, Relay, Relays
from tests.faults.matrix.report import summary_line
from tests.faults.matrix.run import OutageRun
from tests.faults.matrix.socket_owners import owner_of
from tests.faults.namespace_process import wait_until

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
]
SEED, NUMBER = 29286, 1
SILENCE_S = 0.3


@pytest.mark.rule("X1", "X2", "S12")
def test_outage_with_a_fault_at_each_stage_loses_no_message(tmp_path: Path) -> None:
    (run,) = islice(plan(SEED), NUMBER - 1, NUMBER)
    print(f"seed {run.seed}, run {run.number}: {', '.join(map(str, run.cells))}")
    assert len({cell.component for cell in run.cells}) == 4
    assert {cell.kind for cell in run.cells} == set(KINDS)
    assert Cell("secondary", "lose-answers", "filling") in run.cells
    assert {"console", "redrive"} <= {cell.component for cell in run.cells}
    assert (run.failback, run.tier) == ("after-drain", "premium")

    with MatrixEnvironment(tmp_path) as environment:
        try:
            result = OutageRun(environment, run).execute()
        except BaseException as exc:
            exc.add_note(environment.output())
            raise

    print(summary_line(result))
    assert result.cells == run.cells
    assert result.verdict.problems == ()
    assert result.verdict.reconciliation.delivered == result.verdict.reconciliation.sent > 1000


# The relays.


@pytest.fixture
def relays() -> Iterator[Relays]:
    relays = Relays()
    yield relays
    relays.close()


@pytest.fixture
def relay(relays: Relays) -> Iterator[Relay]:
    """A relay to an echo server."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as resources:

        def echo(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                while data := connection.recv(100):
                    connection.sendall(data)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=echo, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        resources.callback(server.shutdown, socket.SHUT_RDWR)
        yield relays.to(server.getsockname()[1])


def connect(relay: Relay) -> socket.socket:
    return socket.create_connection(("127.0.0.1", relay.port), timeout=30)


def request(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return connection.recv(100)


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE_S)
    try:
        request(connection, b"ping")
    except TimeoutError:
        return True
    finally:
        connection.settimeout(30)
    return False


def test_cut_connection_is_silent_and_is_reset_when_the_cut_is_healed(
    relays: Relays, relay: Relay
) -> None:
    with connect(relay) as old:
        assert request(old, b"before") == b"before"

        cut = Cut(relays, [relay], lambda _: True)
        assert is_silent(old)
        with connect(relay) as new:  # it is accepted
            assert is_silent(new)
            wait_until(lambda: cut.dropped == 2 * len(b"ping"), "all data to be dropped")
            cut.heal()

            assert (cut.silenced, cut.dropped) == (2, 2 * len(b"ping"))
            for connection in (old, new):
                with pytest.raises(ConnectionResetError):
                    connection.recv(100)
    with connect(relay) as later:
        assert request(later, b"after") == b"after"


def test_connection_of_two_cuts_is_silent_until_both_are_healed(
    relays: Relays, relay: Relay
) -> None:
    with connect(relay) as connection:
        assert request(connection, b"before") == b"before"
        first, second = (Cut(relays, [relay], lambda _: True) for _ in "12")

        first.heal()
        assert is_silent(connection)
        second.heal()

        with pytest.raises(ConnectionResetError):
            connection.recv(100)


def test_requests_arrive_while_answers_are_lost(relays: Relays) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        relay = relays.to(server.getsockname()[1])
        cut = Cut(relays, [relay], lambda _: True, answers_only=True)
        with connect(relay) as client, server.accept()[0] as host:
            client.sendall(b"request")
            assert host.recv(100) == b"request"
            host.sendall(b"answer")
            wait_until(lambda: cut.dropped == len(b"answer"), "the answer to be dropped")
            cut.heal()

            with pytest.raises(ConnectionResetError):
                client.recv(100)


def test_cut_can_apply_to_one_process_only(relays: Relays, relay: Relay) -> None:
    script = (
        "import socket, sys\n"
        f"connection = socket.create_connection(('127.0.0.1', {relay.port}))\n"
        "for line in sys.stdin:\n"
        "    connection.sendall(line.encode())\n"
        "    print(connection.recv(100).decode(), end='', flush=True)\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with (
        connect(relay) as own,
        subprocess.Popen([sys.executable, "-c", script], text=True, **pipes) as other,  # type: ignore[call-overload]
        contextlib.ExitStack() as resources,
    ):
        resources.callback(other.kill)
        other.stdin.write("hello\n")
        other.stdin.flush()
        assert other.stdout.readline() == "hello\n"

        cut = Cut(
            relays,
            [relay],
            lambda connection: owner_of(connection.port, relay.port, [other.pid]) is not None,
        )

        assert cut.silenced == 1
        assert request(own, b"own") == b"own"
        other.stdin.write("hello?\n")
        other.stdin.flush()
        wait_until(lambda: cut.dropped > 0, "dropped data")
        cut.heal()
        assert other.stdout.readline() == ""  # the connection was reset, so the process ended


def test_connection_to_a_closed_port_is_reset(relays: Relays) -> None:
    with dead_port() as port:
        relay = relays.to(port)

        with pytest.raises(ConnectionResetError), connect(relay) as connection:
            request(connection, b"ping")


# The guard.


def test_children_of_a_killed_process_are_killed() -> None:
    script = (
        "import os, subprocess, time\n"
        "from tests.faults.matrix.guard import MARK, ProcessGuard\n"
        "guard = ProcessGuard()\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(os.environ[MARK], flush=True)\n"
        "time.sleep(600)\n"
    )
    assert MARK not in os.environ
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            mark = process.stdout.readline().strip()
            wait_until(lambda: len(marked_processes(mark)) == 1, "the child process")
        finally:
            process.kill()

        wait_until(lambda: not marked_processes(mark), "the end of the child process")
