"""Find the process that owns a connection, in /proc."""

import contextlib
from collections.abc import Iterable
from pathlib import Path


def inode_of(table: str, port: int, peer: int) -> str | None:
    """Return the inode of the socket with these ports, from the contents of /proc/net/tcp."""
    for line in table.splitlines()[1:]:
        columns = line.split()
        ends = tuple(int(column.rpartition(":")[2], 16) for column in columns[1:3])
        if ends == (port, peer):
            return columns[9]
    return None


def owner_of(port: int, peer: int, candidates: Iterable[int]) -> int | None:
    """Return the one of these processes that owns the socket with this port."""
    inode = inode_of(Path("/proc/net/tcp").read_text(), port, peer)
    if inode in (None, "0"):  # closed
        return None
    return next((pid for pid in candidates if f"socket:[{inode}]" in _open_files(pid)), None)


def _open_files(pid: int) -> set[str]:
    files = set()
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                files.add(str(link.readlink()))
    return files
