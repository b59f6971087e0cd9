"""Which process holds a connection, as /proc shows it."""

import contextlib
from collections.abc import Iterable
from pathlib import Path


def inode_of(table: str, port: int, peer: int) -> str | None:
    """The socket with this port at its own end and that one at the other, in a /proc/net/tcp."""
    for line in table.splitlines()[1:]:
        words = line.split()
        ends = tuple(int(word.rpartition(":")[2], 16) for word in words[1:3])
        if ends == (port, peer):
            return words[9]
    return None


def owner_of(port: int, peer: int, candidates: Iterable[int]) -> int | None:
    """Which of these processes holds that end of a connection."""
    inode = inode_of(Path("/proc/net/tcp").read_text(), port, peer)
    if inode in (None, "0"):  # it was closed
        return None
    return next((pid for pid in candidates if f"socket:[{inode}]" in _open_files(pid)), None)


def _open_files(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(link.readlink()))
    return found
