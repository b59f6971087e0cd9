"""The lock that lets one process at a time serve a data folder.

Two processes on one store would each hand out the same sequence numbers and overwrite each other's
messages. The lock is `flock` on a file next to the store. The operating system frees it when its
holder ends, however that ends, so there is no stale lock to remove after `kill -9`. The file itself
stays, because a process that removed it could remove the lock of the next holder. It names the
holder (process id, host, and since when), for the error message only.
"""

import contextlib
import fcntl
import os
import socket
import threading
import time
import weakref
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from pairbus.errors import StateError

SUFFIX = ".lock"
WAIT_S = 2.0
"""A process that was killed may need a moment until it has ended, for instance to finish a sync."""
_RETRY_S = 0.05
_MAX_HOLDER_BYTES = 512


class StoreLock:
    """Exclusive use of a store, from the constructor to `release`, within this process too.

    A forked child does not share the lock: its copy of the descriptor is closed, so that the lock
    ends with the process that took it. A program that is executed does not inherit the descriptor.
    """

    def __init__(self, store: Path | str, *, wait_s: float = WAIT_S) -> None:
        """Raises StateError if another process still has the lock after `wait_s`, if another store
        of this process has it, or if the folder cannot be locked."""
        self._folder = Path(store).parent
        self._held = False
        try:
            with _fork_lock:
                descriptor = os.open(f"{store}{SUFFIX}", os.O_RDWR | os.O_CREAT, 0o644)
                self._file = FileIO(descriptor, "r+")
                _open_locks.add(self)
            try:
                self._acquire(time.monotonic() + wait_s)
            except BaseException:
                self._close()
                raise
        except OSError as exc:
            raise StateError(
                f"Could not lock data folder {self._folder} ({exc.strerror}): make it writable,"
                " or choose a folder on a local disk."
            ) from exc
        self._held = True
        since = datetime.now(UTC).isoformat(timespec="seconds")
        self._write_holder(f"{os.getpid()} {socket.gethostname()} {since}\n")

    def __enter__(self) -> "StoreLock":
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def release(self) -> None:
        """Free the store for others. Can be called again."""
        if self._file.closed:
            return
        self._write_holder("")
        try:
            # Closing is not enough while a child between fork and exec has the descriptor too.
            fcntl.flock(self._file, fcntl.LOCK_UN)
        finally:
            self._close()

    def _close(self) -> None:
        with _fork_lock:
            self._held = False
            self._file.close()

    def _acquire(self, deadline: float) -> None:
        pause = threading.Event()
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                if self._is_in_use_here():
                    raise self._in_use("another namespace of this process", "namespace") from exc
                if time.monotonic() >= deadline:
                    raise self._in_use(self._holder(), "process") from exc
            else:
                return
            pause.wait(_RETRY_S)

    def _is_in_use_here(self) -> bool:
        """Return True if this process itself has the lock."""
        with _fork_lock:
            own = os.fstat(self._file.fileno())
            held = [os.fstat(lock._file.fileno()) for lock in _open_locks if lock._held]
        return any(os.path.samestat(own, other) for other in held)

    def _in_use(self, holder: str, kind: str) -> StateError:
        _, _, since = self._read_holder()
        return StateError(
            f"Data folder {self._folder} is already in use by {holder}{_format_since(since)}:"
            f" stop that {kind}, or choose another folder."
        )

    def _holder(self) -> str:
        """Describe the process that has the lock, for an error message."""
        pid, host, _ = self._read_holder()
        if not pid.isdecimal():
            return "another process"
        # The process may be in another container, or use the folder over a network.
        elsewhere = host not in ("", socket.gethostname())
        return f"process {pid} on {host}" if elsewhere else f"process {pid}"

    def _read_holder(self) -> tuple[str, str, str]:
        """Return process id, host and time as the holder has written them; parts may be empty."""
        content = os.pread(self._file.fileno(), _MAX_HOLDER_BYTES, 0).decode(errors="replace")
        pid, host, since, *_ = (*content.split(), "", "", "")
        return pid, host, since

    def _write_holder(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a full disk: the lock is held without it
            os.ftruncate(self._file.fileno(), 0)
            os.pwrite(self._file.fileno(), text.encode(), 0)


def _format_since(text: str) -> str:
    try:
        since = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return f" since {since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


_open_locks: "weakref.WeakSet[StoreLock]" = weakref.WeakSet()
_fork_lock = threading.RLock()
"""Held while a lock file is opened or closed, so that a child knows every descriptor it inherits.
Reentrant, because a signal handler may fork at any moment."""


def _close_in_child() -> None:
    # Only close: to unlock here would take the lock from the parent.
    for lock in tuple(_open_locks):
        lock._close()
    _fork_lock.release()


os.register_at_fork(
    before=_fork_lock.acquire,
    after_in_parent=_fork_lock.release,
    after_in_child=_close_in_child,
)
