"""Kill all processes of a matrix when it ends, even if the matrix itself is killed.

Run as a script, this waits until its input ends and then kills all processes with the mark.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

MARK = "PAIRBUS_FAULT_MATRIX"
"""An environment variable, which child processes inherit."""
EMPTY_SCANS = 20
"""The number of consecutive scans without a process after which the guard stops."""
PAUSE_S = 0.05


class ProcessGuard:
    """Kills all processes that are started after its creation, and their children."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._mark], stdin=subprocess.PIPE, start_new_session=True
        )
        os.environ[MARK] = self._mark

    def close(self) -> None:
        os.environ.pop(MARK, None)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def marked_processes(mark: str) -> list[int]:
    """Return the ids of running processes with this mark.

    A process that has just been started may be missing: before it runs its program, it shows no
    variables.
    """
    variable = f"{MARK}={mark}".encode()
    pids = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if variable in (folder / "environ").read_bytes().split(b"\0"):
                    pids.append(int(folder.name))
    return pids


def kill_marked_processes(mark: str) -> None:
    """Kill the processes with this mark until several scans find none, as some may be starting."""
    empty_scans = 0
    while empty_scans < EMPTY_SCANS:
        empty_scans += 1
        for pid in marked_processes(mark):
            empty_scans = 0
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    sys.stdin.read()
    kill_marked_processes(sys.argv[1])
