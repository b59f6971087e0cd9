"""The files of a ledger, one after the other: each is rolled by size, and whole but for its end."""

import errno
import logging
import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from pairbus.usage.records import LedgerHeader

# The disk is full, or will take no more of this file: it may be otherwise later.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

_logger = logging.getLogger(__name__)


class RolledFile:
    """The file that is written to now, and the bytes that it has not taken yet."""

    def __init__(
        self, folder: Path, writer: str, roll_bytes: int, now: Callable[[], float]
    ) -> None:
        self._folder = folder
        self._writer = writer
        self._roll_bytes = roll_bytes
        self._now = now
        self._ledger = uuid4().hex
        self._number = 0
        self._fd: int | None = None
        self._size = 0
        self._head = b""
        self._block = b""
        self._done = 0

    def another(self) -> "RolledFile":
        """One of its own for a child."""
        if self._fd is not None:
            os.close(self._fd)
        return RolledFile(self._folder, self._writer, self._roll_bytes, self._now)

    def write(self, block: bytes) -> None:
        """Write lines, after what is left of those before. Raises OSError; then all that was not
        written is kept, and the next call goes on where this one stopped."""
        self._block = self._block[self._done :] + block
        self._done = 0
        if not self._block:
            return
        try:
            if self._fd is not None and os.fstat(self._fd).st_nlink == 0:
                self._leave()  # somebody has removed it
            fd = self._open() if self._fd is None else self._fd
            while self._head:
                self._head = self._head[os.write(fd, self._head) :]
            while self._done < len(self._block):
                written = os.write(fd, memoryview(self._block)[self._done :])
                self._done += written
                self._size += written
        except OSError as exc:
            if exc.errno not in _FULL:
                self._leave()
            raise
        self._block, self._done = b"", 0
        if self._size >= self._roll_bytes:
            self.close()

    def _open(self) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        host = re.sub(r"[^A-Za-z0-9._]+", "_", socket.gethostname())
        header = LedgerHeader(
            file=f"{self._ledger}.{self._number}",
            ledger=self._ledger,
            writer=self._writer,
            host=host,
            pid=os.getpid(),
            started=round(self._now(), 3),
            package=getattr(sys.modules.get("pairbus"), "__version__", "unknown"),
        )
        name = f"{self._writer}-{host}-{header.pid}-{header.file}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._path = self._folder / name
        self._fd = os.open(self._path, flags, 0o644)
        self._number += 1
        self._head = header.line()
        self._size = 0
        return self._fd

    def _leave(self) -> None:
        """Go on in another file, with the whole of the record that may be torn in this one."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        self._done = self._block.rfind(b"\n", 0, self._done) + 1
        try:
            empty = os.fstat(fd).st_size == 0
            os.close(fd)
            if empty:
                self._path.unlink(missing_ok=True)
        except OSError:
            _logger.debug("%s: a file that failed could not be closed", self._path, exc_info=True)

    def close(self) -> None:
        """See the file to the disk. What comes later goes to another. Raises nothing."""
        if self._fd is None:
            return
        try:
            os.fsync(self._fd)
        except OSError as exc:
            _logger.warning("%s: not all of the ledger may be on disk: %s", self._path, exc)
        self._leave()
