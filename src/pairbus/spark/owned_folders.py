"""Temporary folders that the next start removes if their process was killed.

Each folder holds a locked file for as long as its process lives. The kernel releases the lock with
the process, however it ends, so a folder whose lock can be taken has no owner any more. A process
id could be used again, and says nothing about processes of another container.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "pairbus-"
OWNER = "owner.lock"


def own_folder(folder: Path) -> int:
    """Make this process the owner of a folder for as long as it lives, or until the file descriptor
    is closed that this function returns."""
    draft = folder / f"{OWNER}.new"
    lock = os.open(draft, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    draft.rename(folder / OWNER)  # it is locked from the moment when others can see it
    return lock


class OwnedFolder:
    """A private temporary folder, until `remove`."""

    def __init__(self, kind: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
        self._lock = own_folder(self.path)

    def remove(self) -> None:
        """Delete the folder with its content. Idempotent."""
        if self._lock < 0:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        self._lock = -1


def remove_abandoned_folders(parent: Path | None = None) -> list[Path]:
    """Delete the folders of this user whose processes were killed, and return them. Folders without
    an owner's file are left alone: they are not ours, or were created a moment ago."""
    removed: list[Path] = []
    for file in (parent or Path(tempfile.gettempdir())).glob(f"{PREFIX}*/{OWNER}"):
        with contextlib.suppress(OSError):  # another user's, held by its process, or just removed
            if file.parent.is_symlink() or file.parent.stat().st_uid != os.getuid():
                continue
            lock = os.open(file, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(file.parent, ignore_errors=True)
                removed.append(file.parent)
            finally:
                os.close(lock)
    return removed
