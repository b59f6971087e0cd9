"""No process outlives a matrix: not even if the one that started them is killed.

Run as a script it waits until its input ends, and then ends all that carry the mark.
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
"""A variable that a process hands down to those that it starts."""
LOOKS = 20
"""How often nobody is found until nobody is there."""
PAUSE_S = 0.05


class Guard:
    """Ends all processes that are started from here on, and theirs."""

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


def marked(mark: str) -> list[int]:
    """Processes that were started with this mark, and have not ended.

    One that is about to run its program may be missing: for a moment it shows no variables, even
    though whoever started it has been told that it runs.
    """
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def end_all(mark: str) -> None:
    """Until none is found for a while: some may be about to start, or to start others."""
    looks = 0
    while looks < LOOKS:
        looks += 1
        for pid in marked(mark):
            looks = 0
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    sys.stdin.read()
    end_all(sys.argv[1])
