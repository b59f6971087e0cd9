"""The lock of a data folder: one process holds it, and its end frees the lock despite a child.

The tests use real processes, because `flock` belongs to the operating system.
"""

import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pairbus.emulator.storage.lock import StoreLock
from pairbus.errors import StateError

DEADLINE_S = 30.0
UTC_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
HOLD = """
import os, subprocess, sys
from pairbus.emulator.storage.lock import StoreLock

lock = StoreLock(sys.argv[1])
"""
ANNOUNCE = "print(child, flush=True); sys.stdin.read()\n"
# The child outlives its parent: it ends when the test closes the pipe that is its input.
# It has the lock until its code runs, so its parent waits for it.
FORKED = (
    "reader, writer = os.pipe()\n"
    "child = os.fork()\n"
    "if child == 0:\n    os.write(writer, b'.'); sys.stdin.read(); os._exit(0)\n"
    "os.read(reader, 1)\n"
)
FORKED_AND_RELEASED = (
    "child = os.fork()\n"
    "if child == 0:\n    lock.release(); os._exit(0)\n"
    "assert os.waitpid(child, 0)[1] == 0\n"
)
EXECUTED = (
    "child = subprocess.Popen("
    "[sys.executable, '-c', 'import sys; sys.stdin.read()'], close_fds=False).pid\n"
)
NO_CHILD = "child = 0\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@contextmanager
def holder(path: Path, child: str = NO_CHILD) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a process that holds the lock until it is killed or its input ends.

    Yield the process and the id of its child.
    """
    with subprocess.Popen(
        [sys.executable, "-c", HOLD + child + ANNOUNCE, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    assert process.wait(DEADLINE_S) == -signal.SIGKILL


def test_lock_of_another_process_is_refused_with_its_process_id_and_start(path: Path) -> None:
    with holder(path) as (process, _), pytest.raises(StateError) as caught:
        StoreLock(path, wait_s=0)
    assert re.fullmatch(
        rf"Data folder {re.escape(str(path.parent))} is already in use by process {process.pid}"
        rf" since {UTC_TIME}: stop that process, or choose another folder\.",
        str(caught.value),
    )


@pytest.mark.parametrize(
    ("content", "description"),
    [
        (b"", "another process:"),
        (b"\xff\n", "another process:"),
        (b"12", "process 12:"),
        (b"12 some-container\n", "process 12 on some-container:"),
        (b"12 some-container yesterday\n", "process 12 on some-container:"),
        (
            b"12 some-container 2026-05-01T10:00:00+02:00\n",
            "process 12 on some-container since 2026-05-01 08:00:00 UTC:",
        ),
    ],
)
def test_holder_is_named_as_far_as_it_is_known(
    path: Path, content: bytes, description: str
) -> None:
    with holder(path):
        path.with_name("store.db.lock").write_bytes(content)
        with pytest.raises(StateError, match=f"in use by {description}"):
            StoreLock(path, wait_s=0)


def test_lock_is_refused_within_one_process_until_it_is_released(path: Path) -> None:
    with StoreLock(path) as first:
        with pytest.raises(
            StateError, match=f"another namespace of this process since {UTC_TIME}:"
        ):
            StoreLock(path)
        first.release()
        first.release()
        with StoreLock(path):
            first.release()  # no effect: the second lock is held
            with pytest.raises(
                StateError, match=f"another namespace of this process since {UTC_TIME}:"
            ):
                StoreLock(path)


def test_waiting_thread_of_this_process_is_not_named_as_the_holder(path: Path) -> None:
    with holder(path) as (process, _):
        errors: list[StateError] = []

        def wait() -> None:
            try:
                StoreLock(path, wait_s=0.2)
            except StateError as exc:
                errors.append(exc)

        threads = [threading.Thread(target=wait) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert len(errors) == 2
    assert all(f"process {process.pid} since" in str(error) for error in errors)


@pytest.mark.parametrize(
    "child", [NO_CHILD, FORKED, EXECUTED], ids=["no child", "forked", "executed"]
)
def test_killed_holder_frees_the_lock_while_its_child_runs(path: Path, child: str) -> None:
    with holder(path, child) as (process, child_id):
        kill(process)
        if child_id:
            os.kill(child_id, 0)  # the child is running
        with StoreLock(path, wait_s=0):
            pass


def test_lock_is_waited_for_while_the_holder_ends(path: Path) -> None:
    with holder(path) as (process, _):
        with pytest.raises(StateError):
            StoreLock(path, wait_s=0)
        killer = threading.Timer(0.2, process.kill)
        killer.start()
        with StoreLock(path, wait_s=DEADLINE_S):
            killer.join()
        assert process.wait(DEADLINE_S) == -signal.SIGKILL


def test_forked_child_cannot_release_the_lock_of_its_parent(path: Path) -> None:
    with (
        holder(path, FORKED_AND_RELEASED) as (process, _),
        pytest.raises(StateError, match=f"process {process.pid} since"),
    ):
        StoreLock(path, wait_s=0)


def test_folder_that_cannot_be_written_is_refused(path: Path) -> None:
    path.with_name("store.db.lock").mkdir()
    with pytest.raises(StateError) as caught:
        StoreLock(path)
    assert str(caught.value) == (
        f"Could not lock data folder {path.parent} (Is a directory): make it writable,"
        " or choose a folder on a local disk."
    )


def test_file_system_without_locks_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(StateError, match=r"\(No locks available\): .* a folder on a local disk"):
        StoreLock(path)
