"""A small part of the fault matrix, which `python -m tests.faults.matrix` has in full, and what it
stands on: wires that can be cut, and a guard that leaves no process behind."""

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

from tests.faults.matrix.guard import MARK, marked
from tests.faults.matrix.owners import owner_of
from tests.faults.matrix.plan import plan
from tests.faults.matrix.report import line_of
from tests.faults.matrix.run import Course
from tests.faults.matrix.wires import Cut, Wire, Wires
from tests.faults.matrix.world import ROOT, World
from tests.faults.pairing_kit import dead_port, wait_until

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
]
SEED, NUMBER = 195, 1
SILENCE_S = 0.3


@pytest.mark.rule("X1", "X2")
def test_an_outage_with_a_fault_at_each_stage_loses_nothing(tmp_path: Path) -> None:
    (run,) = islice(plan(SEED), NUMBER - 1, NUMBER)
    print(f"seed {run.seed}, run {run.number}: {', '.join(map(str, run.cells))}")
    assert len({cell.component for cell in run.cells}) == 4
    assert {cell.kind for cell in run.cells} == {"kill", "freeze", "cut"}

    with World(tmp_path) as world:
        try:
            result = Course(world, run).go()
        except BaseException as exc:
            exc.add_note(world.said())
            raise

    print(line_of(result))
    assert result.cells == run.cells
    assert result.verdict.problems == ()
    assert result.verdict.reckoning.delivered == result.verdict.reckoning.sent > 1000


# Wires.


@pytest.fixture
def wires() -> Iterator[Wires]:
    wires = Wires()
    yield wires
    wires.close()


@pytest.fixture
def wire(wires: Wires) -> Iterator[Wire]:
    """A wire to somebody who says everything again."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as ends:

        def answer(one: socket.socket) -> None:
            with one, contextlib.suppress(OSError):
                while data := one.recv(100):
                    one.sendall(data)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    one, _ = server.accept()
                    threading.Thread(target=answer, args=(one,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        ends.callback(server.shutdown, socket.SHUT_RDWR)
        yield wires.to(server.getsockname()[1])


def call(wire: Wire) -> socket.socket:
    return socket.create_connection(("127.0.0.1", wire.port), timeout=30)


def ask(one: socket.socket, text: bytes) -> bytes:
    one.sendall(text)
    return one.recv(100)


def is_silent(one: socket.socket) -> bool:
    one.settimeout(SILENCE_S)
    try:
        ask(one, b"anybody?")
    except TimeoutError:
        return True
    finally:
        one.settimeout(30)
    return False


def test_what_is_cut_says_nothing_and_is_reset_when_it_is_healed(wires: Wires, wire: Wire) -> None:
    with call(wire) as old:
        assert ask(old, b"before") == b"before"

        cut = Cut(wires, [wire], lambda _: True)
        assert is_silent(old)
        with call(wire) as young:  # it is accepted
            assert is_silent(young)
            wait_until(lambda: cut.swallowed == 2 * len(b"anybody?"), "all to be swallowed")
            cut.heal()

            assert (cut.silenced, cut.swallowed) == (2, 2 * len(b"anybody?"))
            for one in (old, young):
                with pytest.raises(ConnectionResetError):
                    one.recv(100)
    with call(wire) as later:
        assert ask(later, b"after") == b"after"


def test_of_two_cuts_the_one_that_is_healed_leaves_the_others_connections_silent(
    wires: Wires, wire: Wire
) -> None:
    with call(wire) as one:
        assert ask(one, b"before") == b"before"
        first, second = (Cut(wires, [wire], lambda _: True) for _ in "12")

        first.heal()
        assert is_silent(one)
        second.heal()

        with pytest.raises(ConnectionResetError):
            one.recv(100)


def test_a_cut_can_be_of_one_process_alone(wires: Wires, wire: Wire) -> None:
    script = (
        "import socket, sys\n"
        f"one = socket.create_connection(('127.0.0.1', {wire.port}))\n"
        "for line in sys.stdin:\n"
        "    one.sendall(line.encode()); print(one.recv(100).decode(), end='', flush=True)\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with (
        call(wire) as mine,
        subprocess.Popen([sys.executable, "-c", script], text=True, **pipes) as other,  # type: ignore[call-overload]
        contextlib.ExitStack() as ends,
    ):
        ends.callback(other.kill)
        other.stdin.write("hello\n")
        other.stdin.flush()
        assert other.stdout.readline() == "hello\n"

        cut = Cut(wires, [wire], lambda one: owner_of(one.port, wire.port, [other.pid]) is not None)

        assert cut.silenced == 1
        assert ask(mine, b"mine") == b"mine"
        other.stdin.write("hello?\n")
        other.stdin.flush()
        wait_until(lambda: cut.swallowed > 0, "it to speak to nobody")
        cut.heal()
        assert other.stdout.readline() == ""  # it was reset, and ended


def test_a_wire_to_nobody_is_reset(wires: Wires) -> None:
    with dead_port() as port:
        wire = wires.to(port)

        with pytest.raises(ConnectionResetError), call(wire) as one:
            ask(one, b"anybody?")


# The guard.


def test_what_a_killed_process_started_does_not_outlive_it() -> None:
    script = (
        "import os, subprocess, time\n"
        "from tests.faults.matrix.guard import MARK, Guard\n"
        "guard = Guard()\n"
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
            wait_until(lambda: len(marked(mark)) == 1, "what it has started")
        finally:
            process.kill()

        wait_until(lambda: not marked(mark), "what it had started to end")
