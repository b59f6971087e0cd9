"""The ledger: its sums and files, and its behaviour when processes and disks fail."""

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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pairbus.errors import ConfigurationError
from pairbus.servicebus.limits import BILLING_UNIT
from pairbus.usage import ledger as ledger_module
from pairbus.usage.ledger import MAX_UNSUMMED, Ledger
from pairbus.usage.operations import OperationKind, Purpose
from pairbus.usage.records import FORMAT, VERSION, is_truncated, read_header
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
DEADLINE_S = 20.0


class FakeClock:
    def __init__(self, seconds: float = 1000.25) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def ledger_files(folder: Path) -> list[Path]:
    """Return the files of a folder in the order of their creation."""
    return sorted(folder.iterdir(), key=lambda path: (path.stat().st_ctime_ns, path.name))


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Return all records in the files of a folder, without headers."""
    records = []
    for path in ledger_files(folder):
        header, *lines = path.read_bytes().splitlines()
        read_header(header + b"\n")
        records += [json.loads(line) for line in lines]
    return records


def add_send(ledger: Ledger, entity: str = "orders", **options: Any) -> None:
    ledger.add(
        namespace="contoso",
        entity=entity,
        kind=OperationKind.SEND,
        purpose=Purpose.TRAFFIC,
        **options,
    )


def add_sends(ledger: Ledger, sizes: list[int], entity: str = "orders") -> None:
    ledger.add_messages(sizes, "contoso", entity, OperationKind.SEND, Purpose.TRAFFIC)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger with a clock that stands still. A test closes it before it reads the records."""
    return Ledger(tmp_path, writer="pairing", now=FakeClock())


@contextmanager
def limited_file_size(limit: int = 0) -> Iterator[None]:
    """Let writes of this process fail when a file would exceed a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.rule("C4")
def test_operations_of_a_second_are_one_record(tmp_path: Path) -> None:
    clock = FakeClock()
    ledger = Ledger(tmp_path, writer="pairing", now=clock)
    for _ in range(3):
        add_send(ledger, bytes=100)
    clock.seconds += 1
    add_send(ledger, messages=10, bytes=5000, answered=False)
    ledger.close()

    key = {"namespace": "contoso", "entity": "orders", "kind": "send", "purpose": "normal traffic"}
    assert read_records(tmp_path) == [
        {**key, "time": 1000, "operations": 3, "messages": 3, "bytes": 300, "units": 3}
        | {"answered": True},
        {**key, "time": 1001, "operations": 10, "messages": 10, "bytes": 5000, "units": 10}
        | {"answered": False},
    ]


@pytest.mark.rule("C1")
@pytest.mark.parametrize(
    ("options", "operations", "units"),
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
def test_default_operations_and_units_follow_from_messages_and_bytes(
    ledger: Ledger, tmp_path: Path, options: dict[str, int], operations: int, units: int
) -> None:
    with ledger:
        add_send(ledger, **options)

    [record] = read_records(tmp_path)
    assert (record["operations"], record["units"]) == (operations, units)


def test_header_names_format_writer_and_process(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "new", writer="syphon", now=FakeClock())
    add_send(ledger)
    ledger.close()

    [path] = ledger_files(tmp_path / "new")
    first_line = path.read_bytes().splitlines()[0]
    header = read_header(first_line)
    assert json.loads(first_line)["format"] == FORMAT
    assert json.loads(first_line)["version"] == VERSION
    assert (header.writer, header.pid, header.started) == ("syphon", os.getpid(), 1000.25)
    assert path.name == f"syphon-{header.host}-{os.getpid()}-{header.file}.jsonl"


def test_state_change_is_a_record_with_a_bounded_cause(ledger: Ledger, tmp_path: Path) -> None:
    with ledger:
        ledger.add_state_change(
            namespace="contoso",
            entity="orders",
            from_state="suspect",
            to_state="failover",
            cause="line\none\n" + "x" * 1000,
        )

    [record] = read_records(tmp_path)
    assert record["time"] == 1000.25
    assert (record["from_state"], record["to_state"]) == ("suspect", "failover")
    assert record["cause"].startswith("line\none\nx")
    assert len(record["cause"]) == 200


def test_ledger_without_records_makes_no_file(ledger: Ledger, tmp_path: Path) -> None:
    with ledger:
        ledger.flush()

    assert ledger_files(tmp_path) == []


def test_started_ledger_flushes_in_a_thread(ledger: Ledger, tmp_path: Path) -> None:
    ledger.start()
    ledger.start()
    add_send(ledger)

    wait_until(
        lambda: any(path.read_bytes().count(b"\n") == 2 for path in ledger_files(tmp_path)),
        "a record",
    )
    assert len(read_records(tmp_path)) == 1
    ledger.close()


def test_close_can_be_repeated_and_writes_later_records(ledger: Ledger, tmp_path: Path) -> None:
    add_send(ledger)
    ledger.close()
    ledger.close()
    add_send(ledger)
    ledger.close()

    assert len(read_records(tmp_path)) == 2
    assert len(ledger_files(tmp_path)) == 2


def test_full_files_are_rotated_and_each_has_an_id(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, writer="pairing", max_file_bytes=500)
    for number in range(20):
        add_send(ledger, entity=f"q{number}")
        ledger.flush()
    ledger.close()

    headers = [read_header(path.read_bytes()) for path in ledger_files(tmp_path)]
    assert len(headers) > 3
    assert len({header.file for header in headers}) == len(headers)
    assert len({header.ledger for header in headers}) == 1
    assert [record["entity"] for record in read_records(tmp_path)] == [f"q{n}" for n in range(20)]


@pytest.mark.rule("C4")
def test_concurrent_threads_lose_no_operation(ledger: Ledger, tmp_path: Path) -> None:
    with ledger:
        stop = threading.Event()

        def flush_until_stopped() -> None:
            while not stop.is_set():
                ledger.flush()

        def add_operations(entity: str) -> None:
            for _ in range(1500):
                add_send(ledger, entity=entity, bytes=7)
                add_sends(ledger, [3, 4], entity=entity)

        flusher = threading.Thread(target=flush_until_stopped)
        adders = [threading.Thread(target=add_operations, args=(f"q{n % 2}",)) for n in range(4)]
        for thread in (flusher, *adders):
            thread.start()
        for thread in adders:
            thread.join()
        stop.set()
        flusher.join()

    records = read_records(tmp_path)
    assert sum(record["messages"] for record in records) == 18_000
    assert sum(record["bytes"] for record in records) == 84_000


@pytest.mark.rule("C4")
def test_unsummed_calls_are_bounded_and_all_counted(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "FLUSH_INTERVAL_S", DEADLINE_S)  # The thread only waits.
    with ledger:
        most_unsummed = 0
        for _ in range(3 * MAX_UNSUMMED + 7):
            add_sends(ledger, [5])
            most_unsummed = max(most_unsummed, len(ledger._unsummed))
        add_sends(ledger, [])
        add_sends(ledger, [BILLING_UNIT, BILLING_UNIT + 1])
        assert len(ledger._unsummed) == 9
    [record] = read_records(tmp_path)

    assert most_unsummed == MAX_UNSUMMED - 1
    assert record["operations"] == 3 * MAX_UNSUMMED + 10
    assert record["messages"] == 3 * MAX_UNSUMMED + 9
    assert record["units"] == 3 * MAX_UNSUMMED + 11
    assert record["bytes"] == 5 * (3 * MAX_UNSUMMED + 7) + 2 * BILLING_UNIT + 1


@pytest.mark.rule("C4")
def test_pending_sums_are_bounded_and_dropped_records_are_counted(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MAX_PENDING", 3)
    for number in range(5):
        add_send(ledger, entity=f"q{number}", messages=10)
    add_send(ledger, entity="q0", messages=10)
    for _ in range(4):
        ledger.add_state_change(namespace="n", entity="q", from_state="healthy", to_state="suspect")
    assert ledger.dropped == 3
    ledger.flush()
    add_send(ledger, entity="q4", messages=10)
    ledger.close()

    *records, gap, last = read_records(tmp_path)
    assert [record.get("messages") for record in records] == [None, None, None, 20, 10, 10]
    assert gap == {"time": 1000, "dropped": 3, "dropped_operations": 20, "failed_writes": 0}
    assert (last["entity"], last["messages"]) == ("q4", 10)


@pytest.mark.rule("C4")
@pytest.mark.parametrize("limit", [0, 100, 300, 350])
def test_full_disk_raises_nothing_and_pending_records_are_written_later(
    ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture, limit: int
) -> None:
    # The limits are within: nothing, the header, the first record, a later record.
    with caplog.at_level(logging.WARNING), limited_file_size(limit):
        for number in range(4):
            add_send(ledger, entity=f"q{number}")
            ledger.flush()
        [path] = ledger_files(tmp_path)
        assert path.stat().st_size == limit
    assert len([r for r in caplog.records if "cannot be written" in r.message]) == 1
    ledger.flush()
    add_send(ledger, entity="q4")
    ledger.close()

    records = read_records(tmp_path)
    assert len(ledger_files(tmp_path)) == 1
    assert [r["entity"] for r in records if "entity" in r] == [f"q{n}" for n in range(5)]
    assert sum(r.get("failed_writes", 0) for r in records) == 4
    assert len([r for r in caplog.records if "can be written again" in r.message]) == 1


@pytest.mark.rule("C4")
def test_disk_that_stays_full_does_not_fill_the_memory(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MAX_PENDING", 3)
    with limited_file_size():
        for number in range(100):
            add_send(ledger, entity=f"q{number}")
            ledger.flush()
    ledger.close()

    records = read_records(tmp_path)
    # The first flush took one record, and three stayed pending.
    assert [r["entity"] for r in records if "entity" in r] == ["q0", "q1", "q2", "q3"]
    assert sum(r.get("dropped", 0) for r in records) == 96
    assert sum(r.get("failed_writes", 0) for r in records) == 100


@pytest.mark.rule("C4")
def test_failing_disk_loses_no_record(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_send(ledger, entity="q0")
    ledger.flush()
    real_write, written_bytes = os.write, []

    def write_ten_bytes_then_fail(fd: int, data: bytes) -> int:
        if written_bytes:
            raise OSError(errno.EIO, "simulated I/O error")
        written_bytes.append(real_write(fd, bytes(data[:10])))
        return 10

    add_send(ledger, entity="q1")
    monkeypatch.setattr(os, "write", write_ten_bytes_then_fail)
    ledger.flush()
    monkeypatch.undo()
    assert written_bytes == [10]
    ledger.close()

    truncated, complete = ledger_files(tmp_path)
    assert is_truncated(truncated.read_bytes())
    records = [json.loads(line) for line in complete.read_bytes().splitlines()[1:]]
    assert [record.get("entity") for record in records] == ["q1", None]
    assert records[1]["failed_writes"] == 1


def test_deleted_file_and_folder_are_replaced(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "folder", writer="pairing")
    add_send(ledger)
    ledger.flush()
    [path] = ledger_files(tmp_path / "folder")
    path.unlink()
    path.parent.rmdir()
    add_send(ledger, entity="later")
    ledger.close()

    assert [record["entity"] for record in read_records(tmp_path / "folder")] == ["later"]


@pytest.mark.rule("C4")
@pytest.mark.parametrize(
    "call",
    [
        'add(namespace="n", entity=entity, kind=OperationKind.SEND, purpose=Purpose.TRAFFIC)',
        'add_messages([1], "n", entity, OperationKind.SEND, Purpose.TRAFFIC)',
    ],
    ids=["add", "add_messages"],
)
def test_forked_child_writes_to_a_separate_file(tmp_path: Path, call: str) -> None:
    script = f"""
import os
from pairbus.usage.ledger import Ledger
from pairbus.usage.operations import OperationKind, Purpose

def send(entity):
    ledger.{call}

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

    entities_by_pid: dict[int, set[str]] = {}
    for path in ledger_files(tmp_path):
        header = read_header(path.read_bytes())
        lines = path.read_bytes().splitlines()[1:]
        entities = entities_by_pid.setdefault(header.pid, set())
        entities.update(json.loads(line)["entity"] for line in lines)
    assert sorted(map(sorted, entities_by_pid.values())) == [
        ["before", "parent", "pending"],
        ["child"],
    ]


@pytest.mark.rule("C4")
def test_killed_writer_leaves_at_most_one_truncated_record(tmp_path: Path) -> None:
    truncated_files = 0
    for number in range(12):
        folder = tmp_path / str(number)
        halt = ["halt"] if number == 0 else []
        with subprocess.Popen(
            [sys.executable, "-m", "tests.unit.usage.ledger_writer", str(folder), *halt],
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
            content = path.read_bytes()
            lines = content.split(b"\n")
            rest = lines.pop()
            if path != paths[-1]:
                assert rest == b""
            truncated_files += bool(rest)
            assert is_truncated(content) == bool(rest)
            if not lines:  # The header itself is truncated.
                continue
            read_header(content)
            entities += [json.loads(line)["entity"] for line in lines[1:]]
        assert len(entities) >= 19
        assert entities == [f"q{n}" for n in range(1, len(entities) + 1)]
    assert truncated_files > 0


@pytest.mark.parametrize(
    ("folder", "options", "reason"),
    [
        ("file", {"writer": "pairing"}, "cannot be created .* Choose another folder"),
        ("file/below", {"writer": "pairing"}, "cannot be created .* Choose another folder"),
        (".", {"writer": "../x"}, "writer must consist of lower-case letters"),
        (".", {"writer": ""}, "writer must consist of lower-case letters"),
        (".", {"writer": "pairing", "max_file_bytes": 0}, "max_file_bytes must be at least 1"),
    ],
)
def test_invalid_options_are_rejected(
    tmp_path: Path, folder: str, options: dict[str, Any], reason: str
) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigurationError, match=reason):
        Ledger(tmp_path / folder, **options)
