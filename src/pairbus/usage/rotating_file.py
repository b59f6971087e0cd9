"""The files of a ledger. A new file is started when the current one reaches its maximum size."""

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

# The disk or the file is full. Space may become available, so the same file is tried again.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

_logger = logging.getLogger(__name__)


class RotatingFile:
    """The current file, and the bytes that could not be written to it yet."""

    def __init__(
        self, folder: Path, writer: str, max_file_bytes: int, now: Callable[[], float]
    ) -> None:
        self._folder = folder
        self._writer = writer
        self._max_file_bytes = max_file_bytes
        self._now = now
        self._ledger_id = uuid4().hex
        self._next_number = 0
        self._fd: int | None = None
        self._size = 0
        self._unwritten_header = b""
        self._block = b""
        self._written = 0
        """Bytes of the block that are in the file."""

    def reopen_in_child(self) -> "RotatingFile":
        """Close the parent's file after a fork, and return a file for the child."""
        if self._fd is not None:
            os.close(self._fd)
        return RotatingFile(self._folder, self._writer, self._max_file_bytes, self._now)

    def write(self, block: bytes) -> None:
        """Append lines, after the rest of earlier lines.

        Raises OSError. The unwritten rest is kept then, and the next call continues with it.
        """
        self._block = self._block[self._written :] + block
        self._written = 0
        if not self._block:
            return
        try:
            if self._fd is not None and os.fstat(self._fd).st_nlink == 0:
                self._abandon()  # The file was deleted.
            fd = self._open() if self._fd is None else self._fd
            while self._unwritten_header:
                written = os.write(fd, self._unwritten_header)
                self._unwritten_header = self._unwritten_header[written:]
            while self._written < len(self._block):
                written = os.write(fd, memoryview(self._block)[self._written :])
                self._written += written
                self._size += written
        except OSError as exc:
            if exc.errno not in _FULL:
                self._abandon()
            raise
        self._block, self._written = b"", 0
        if self._size >= self._max_file_bytes:
            self.close()

    def _open(self) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        host = re.sub(r"[^A-Za-z0-9._]+", "_", socket.gethostname())
        header = LedgerHeader(
            file=f"{self._ledger_id}.{self._next_number}",
            ledger=self._ledger_id,
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
        self._next_number += 1
        self._unwritten_header = header.encode()
        self._size = 0
        return self._fd

    def _abandon(self) -> None:
        """Close the file, so that the next write starts another one.

        A record that may be truncated in this file is written again, in full, to the next one.
        """
        fd, self._fd = self._fd, None
        if fd is None:
            return
        self._written = self._block.rfind(b"\n", 0, self._written) + 1
        try:
            empty = os.fstat(fd).st_size == 0
            os.close(fd)
            if empty:
                self._path.unlink(missing_ok=True)
        except OSError:
            _logger.debug("Could not close the ledger file %s", self._path, exc_info=True)

    def close(self) -> None:
        """Sync the file to disk and close it. A later write starts another file. Raises nothing."""
        if self._fd is None:
            return
        try:
            os.fsync(self._fd)
        except OSError as exc:
            _logger.warning(
                "Could not sync the ledger file %s (%s). Its last records may not be on disk.",
                self._path,
                exc,
            )
        self._abandon()
