"""The ledger's writer: sums, files, and what happens when processes and disks fail."""

import errno
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pairbus.errors import ConfigurationError
from pairbus.servicebus.limits import BILLING_UNIT
from pairbus.usage import ledger as module
from pairbus.usage.ledger import Ledger
from pairbus.usage.operations import OperationKind, Part
from pairbus.usage.records import FORMAT, VERSION, Unreadable, is_torn, read_header

ROOT = Path(__file__).parents[3]
DEADLINE_S = 20.0


class Clock:
    def __init__(self, at: float = 1000.25) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir(), key=lambda path: (path.stat().st_ctime_ns, path.name))


def records(folder: Path) -> list[dict[str, Any]]:
    """All that stands in the files of a folder, headers left out."""
    found = []
    for path in files(folder):
        head, *lines = path.read_bytes().splitlines()
        read_header(head + b"\n")
        found += [json.loads(line) for line in lines]
    return found


def send(ledger: Ledger, entity: str = "orders", **more: Any) -> None:
    ledger.add(
        namespace="contoso", entity=entity, kind=OperationKind.SEND, part=Part.TRAFFIC, **more
    )


def send_each(ledger: Ledger, sizes: list[int], entity: str = "orders") -> None:
    ledger.add_each(sizes, "contoso", entity, OperationKind.SEND, Part.TRAFFIC)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def no_room(limit: int = 0) -> Iterator[None]:
    """Files of this process cannot grow beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.rule("C4")
def test_what_was_done_in_a_second_is_one_record(tmp_path: Path) -> None:
    clock = Clock()
    ledger = Ledger(tmp_path, writer="pairing", now=clock)
    for _ in range(3):
        send(ledger, bytes=100)
    clock.at += 1
    send(ledger, messages=10, bytes=5000, answered=False)
    ledger.close()

    same = {"namespace": "contoso", "entity": "orders", "kind": "send", "part": "normal traffic"}
    assert records(tmp_path) == [
        {**same, "time": 1000, "operations": 3, "messages": 3, "bytes": 300, "units": 3}
        | {"answered": True},
        {**same, "time": 1001, "operations": 10, "messages": 10, "bytes": 5000, "units": 10}
        | {"answered": False},
    ]


@pytest.mark.rule("C1")
@pytest.mark.parametrize(
    ("given", "operations", "units"),
    [
        ({}, 1, 1),
        ({"bytes": BILLING_UNIT}, 1, 1),
        ({"bytes": BILLING_UNIT + 1}, 1, 2),
        ({"messages": 100, "bytes": 100 * BILLING_UNIT}, 100, 100),
        ({"messages": 100, "bytes": 100 * (BILLING_UNIT + 1)}, 100, 200),
        ({"messages": 0}, 1, 1),
        ({"messages": 0, "operations": 5}, 5, 5),
        ({"messages": 2, "bytes": 3 * BILLING_UNIT, "units": 3}, 2, 3),
        ({"messages": 0, "bytes": BILLING_UNIT + 1}, 1, 2),
    ],
)
def test_operations_and_units_that_are_not_given(
    tmp_path: Path, given: dict[str, int], operations: int, units: int
) -> None:
    with Ledger(tmp_path, writer="pairing") as ledger:
        send(ledger, **given)

    [record] = records(tmp_path)
    assert (record["operations"], record["units"]) == (operations, units)


def test_header_says_who_wrote(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "made", writer="syphon", now=Clock())
    send(ledger)
    ledger.close()

    [path] = files(tmp_path / "made")
    first = path.read_bytes().splitlines()[0]
    header = read_header(first)
    assert json.loads(first)["format"] == FORMAT
    assert json.loads(first)["version"] == VERSION
    assert (header.writer, header.pid, header.started) == ("syphon", os.getpid(), 1000.25)
    assert path.name == f"syphon-{header.host}-{os.getpid()}-{header.file}.jsonl"


def test_change_of_state_is_a_record(tmp_path: Path) -> None:
    with Ledger(tmp_path, writer="pairing", now=Clock()) as ledger:
        ledger.change(
            namespace="contoso",
            entity="orders",
            from_state="suspect",
            to_state="failover",
            cause="line\none\n" + "x" * 1000,
        )

    [record] = records(tmp_path)
    assert record["time"] == 1000.25
    assert (record["from_state"], record["to_state"]) == ("suspect", "failover")
    assert record["cause"].startswith("line\none\nx")
    assert len(record["cause"]) == 200


def test_nothing_to_write_makes_no_file(tmp_path: Path) -> None:
    with Ledger(tmp_path, writer="pairing") as ledger:
        ledger.flush()

    assert files(tmp_path) == []


def test_thread_flushes_by_itself(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, writer="pairing")
    ledger.start()
    ledger.start()
    send(ledger)

    wait_for(lambda: any(path.read_bytes().count(b"\n") == 2 for path in files(tmp_path)))
    assert len(records(tmp_path)) == 1
    ledger.close()


def test_close_can_be_called_again_and_writes_what_came_between(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, writer="pairing")
    send(ledger)
    ledger.close()
    ledger.close()
    send(ledger)
    ledger.close()

    assert len(records(tmp_path)) == 2
    assert len(files(tmp_path)) == 2


def test_files_are_rolled_by_size_and_each_has_its_own_id(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, writer="pairing", roll_bytes=500)
    for number in range(20):
        send(ledger, entity=f"q{number}")
        ledger.flush()
    ledger.close()

    headers = [read_header(path.read_bytes()) for path in files(tmp_path)]
    assert len(headers) > 3
    assert len({header.file for header in headers}) == len(headers)
    assert len({header.ledger for header in headers}) == 1
    assert [record["entity"] for record in records(tmp_path)] == [f"q{n}" for n in range(20)]


@pytest.mark.rule("C4")
def test_threads_lose_nothing(tmp_path: Path) -> None:
    with Ledger(tmp_path, writer="pairing") as ledger:
        stop = threading.Event()

        def flush() -> None:
            while not stop.is_set():
                ledger.flush()

        def work(name: str) -> None:
            for _ in range(1500):
                send(ledger, entity=name, bytes=7)
                send_each(ledger, [3, 4], entity=name)

        flusher = threading.Thread(target=flush)
        workers = [threading.Thread(target=work, args=(f"q{n % 2}",)) for n in range(4)]
        for thread in (flusher, *workers):
            thread.start()
        for thread in workers:
            thread.join()
        stop.set()
        flusher.join()

    found = records(tmp_path)
    assert sum(record["messages"] for record in found) == 18_000
    assert sum(record["bytes"] for record in found) == 84_000


@pytest.mark.rule("C4")
def test_notes_that_wait_for_the_thread_are_bounded_and_all_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FLUSH_S", DEADLINE_S)  # the thread does nothing
    with Ledger(tmp_path, writer="pairing", now=Clock()) as ledger:
        most = 0
        for _ in range(3 * module.MOST_NOTED + 7):
            send_each(ledger, [5])
            most = max(most, len(ledger._noted))
        send_each(ledger, [])
        send_each(ledger, [BILLING_UNIT, BILLING_UNIT + 1])
        assert len(ledger._noted) == 9
    (found,) = records(tmp_path)

    assert most == module.MOST_NOTED - 1
    assert found["operations"] == 3 * module.MOST_NOTED + 10
    assert found["messages"] == 3 * module.MOST_NOTED + 9
    assert found["units"] == 3 * module.MOST_NOTED + 11
    assert found["bytes"] == 5 * (3 * module.MOST_NOTED + 7) + 2 * BILLING_UNIT + 1


@pytest.mark.rule("C4")
def test_pending_sums_are_bounded_and_what_is_dropped_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PENDING", 3)
    ledger = Ledger(tmp_path, writer="pairing", now=Clock())
    for number in range(5):
        send(ledger, entity=f"q{number}", messages=10)
    send(ledger, entity="q0", messages=10)
    for _ in range(4):
        ledger.change(namespace="n", entity="q", from_state="healthy", to_state="suspect")
    assert ledger.dropped == 3
    ledger.flush()
    send(ledger, entity="q4", messages=10)
    ledger.close()

    *found, lost, last = records(tmp_path)
    assert [record.get("messages") for record in found] == [None, None, None, 20, 10, 10]
    assert lost == {"time": 1000, "dropped": 3, "dropped_operations": 20, "failed_writes": 0}
    assert (last["entity"], last["messages"]) == ("q4", 10)


@pytest.mark.rule("C4")
@pytest.mark.parametrize("room", [0, 100, 300, 350])
def test_full_disk_raises_nothing_and_what_is_pending_is_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, room: int
) -> None:
    # 0: not even the header; 100: a part of it; 300: into the first record; 350: further.
    ledger = Ledger(tmp_path, writer="pairing", now=Clock())
    with caplog.at_level(logging.WARNING), no_room(room):
        for number in range(4):
            send(ledger, entity=f"q{number}")
            ledger.flush()
        [path] = files(tmp_path)
        assert path.stat().st_size == room
    assert len([r for r in caplog.records if "cannot be written" in r.message]) == 1
    ledger.flush()
    send(ledger, entity="q4")
    ledger.close()

    found = records(tmp_path)
    assert len(files(tmp_path)) == 1
    assert [r["entity"] for r in found if "entity" in r] == [f"q{n}" for n in range(5)]
    assert sum(r.get("failed_writes", 0) for r in found) == 4
    assert len([r for r in caplog.records if "written again" in r.message]) == 1


@pytest.mark.rule("C4")
def test_disk_that_is_full_for_long_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PENDING", 3)
    ledger = Ledger(tmp_path, writer="pairing", now=Clock())
    with no_room():
        for number in range(100):
            send(ledger, entity=f"q{number}")
            ledger.flush()
    ledger.close()

    found = records(tmp_path)
    # One was on its way to the disk, three waited.
    assert [r["entity"] for r in found if "entity" in r] == ["q0", "q1", "q2", "q3"]
    assert sum(r.get("dropped", 0) for r in found) == 96
    assert sum(r.get("failed_writes", 0) for r in found) == 100


@pytest.mark.rule("C4")
def test_failing_disk_costs_the_file_and_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path, writer="pairing", now=Clock())
    send(ledger, entity="q0")
    ledger.flush()
    real, broken = os.write, []

    def breaks(fd: int, data: bytes) -> int:
        """Takes 10 bytes, then fails: once."""
        if broken:
            raise OSError(errno.EIO, "the disk is broken")
        broken.append(real(fd, bytes(data[:10])))
        return 10

    send(ledger, entity="q1")
    monkeypatch.setattr(os, "write", breaks)
    ledger.flush()
    monkeypatch.undo()
    assert broken == [10]
    ledger.close()

    torn, whole = files(tmp_path)
    assert is_torn(torn.read_bytes())
    lines = [json.loads(line) for line in whole.read_bytes().splitlines()[1:]]
    assert [line.get("entity") for line in lines] == ["q1", None]
    assert lines[1]["failed_writes"] == 1


def test_file_that_somebody_removes_is_replaced(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "folder", writer="pairing")
    send(ledger)
    ledger.flush()
    [path] = files(tmp_path / "folder")
    path.unlink()
    path.parent.rmdir()
    send(ledger, entity="later")
    ledger.close()

    assert [record["entity"] for record in records(tmp_path / "folder")] == ["later"]


@pytest.mark.rule("C4")
@pytest.mark.parametrize(
    "add",
    [
        'add(namespace="n", entity=entity, kind=OperationKind.SEND, part=Part.TRAFFIC)',
        'add_each([1], "n", entity, OperationKind.SEND, Part.TRAFFIC)',
    ],
    ids=["add", "add_each"],
)
def test_forked_child_writes_to_a_file_of_its_own(tmp_path: Path, add: str) -> None:
    script = f"""
import os
from pairbus.usage.ledger import Ledger
from pairbus.usage.operations import OperationKind, Part

def send(entity):
    ledger.{add}

ledger = Ledger({str(tmp_path)!r}, writer="pairing")
ledger.start()
send("before"); ledger.flush(); send("pending")
child = os.fork()
send("child" if child == 0 else "parent")
if child == 0:
    assert ledger._thread is not None and ledger._thread.is_alive()
    ledger.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
ledger.close()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=DEADLINE_S, cwd=ROOT)

    by_pid: dict[int, list[str]] = {}
    for path in files(tmp_path):
        header = read_header(path.read_bytes())
        lines = [json.loads(line) for line in path.read_bytes().splitlines()[1:]]
        by_pid.setdefault(header.pid, []).extend(line["entity"] for line in lines)
    assert sorted(sorted(set(found)) for found in by_pid.values()) == [
        ["before", "parent", "pending"],
        ["child"],
    ]


@pytest.mark.rule("C4")
def test_killed_writer_leaves_half_a_record_at_most(tmp_path: Path) -> None:
    torn = 0
    for number in range(12):
        folder = tmp_path / str(number)
        halt = ["halt"] if number == 0 else []
        with subprocess.Popen(
            [sys.executable, "-m", "tests.unit.cost.ledger_writer", str(folder), *halt],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == (b"halted\n" if halt else b"writing\n")
            time.sleep(0.003 * number)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL

        entities = []
        paths = sorted(folder.iterdir(), key=lambda path: int(path.name.split(".")[-2]))
        for path in paths:
            text = path.read_bytes()
            lines = text.split(b"\n")
            last = lines.pop()
            if path != paths[-1]:
                assert last == b""
            torn += bool(last)
            assert is_torn(text) == bool(last)
            if not lines:  # not even its header was written
                continue
            read_header(text)
            entities += [json.loads(line)["entity"] for line in lines[1:]]
        assert len(entities) >= 19
        assert entities == [f"q{n}" for n in range(1, len(entities) + 1)]
    assert torn > 0


@pytest.mark.parametrize(
    ("start", "why"),
    [
        (b"", "it is empty"),
        (b"hello\n", "it is no ledger"),
        (b'{"note":"pairbus-ledger"}\n', "its header is damaged"),
        (b'{"format":"pairbus-ledger","vers', "its header is torn"),
        (b'{"format":"pairbus-ledger","version":2}\n', "its version is 2, and 1 is known here"),
        (b'{"format":"pairbus-ledger","version":1,"file":7}\n', "its header is damaged"),
        (b'["pairbus-ledger"]\n', "its header is damaged"),
    ],
)
def test_beginning_that_is_no_header_is_told(start: bytes, why: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read_header(start)

    assert str(caught.value) == why


def test_wrong_settings_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    for folder, settings in (
        (tmp_path / "file", {"writer": "pairing"}),
        (tmp_path / "file" / "below", {"writer": "pairing"}),
        (tmp_path, {"writer": "../x"}),
        (tmp_path, {"writer": ""}),
        (tmp_path, {"writer": "pairing", "roll_bytes": 0}),
    ):
        with pytest.raises(ConfigurationError):
            Ledger(folder, **settings)  # type: ignore[arg-type]
