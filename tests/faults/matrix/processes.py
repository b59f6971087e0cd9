"""Freeze processes."""

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator

from tests.faults.syphon_kit import all_processes, wait_until


@contextlib.contextmanager
def frozen(pids: Iterable[int]) -> Iterator[None]:
    """Stop processes within the block. Some of them may end before, but not all."""
    all_pids = set(pids)
    for pid in all_pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: _states(all_pids) == {"T"}, f"{all_pids} to be frozen")
        yield
        assert _states(all_pids) == {"T"}, f"not all of {all_pids} stayed frozen"
    finally:
        for pid in all_pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _states(pids: set[int]) -> set[str]:
    return {
        process.state
        for process in all_processes()
        if process.pid in pids and process.state not in "XZ"
    }
