"""The rate limit as a small file, shared by the processes of one machine.

Reading and sending are done by different processes, several of each. An operation that one of them
finds throttled slows down all of them at once, and not only in the next micro-batch.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path

from pairbus.spark.rate_control import NO_LIMIT, RateLimit, latest

NAME = "rate.json"


class RateFile:
    """A file with a rate limit. A file that does not exist or is not readable holds no limit."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._modified: int | None = None
        self._limit = NO_LIMIT

    @classmethod
    def of_worker(cls, path: Path | None) -> "RateFile | None":
        """Return the file of the driver if it is on this machine, and otherwise a file in the
        folder that Spark has for the files of this application, and removes with it."""
        if path is None:
            return None
        if not path.parent.is_dir():
            from pyspark import SparkFiles  # only here: a redrive without Spark is paced as well

            path = Path(SparkFiles.getRootDirectory()) / f"{path.parent.name}-{path.name}"
        return cls(path)

    def read(self) -> RateLimit:
        """Return the limit. The file is read only if it was replaced."""
        try:
            modified = self._path.stat().st_mtime_ns
            if modified != self._modified:
                self._limit = RateLimit(**json.loads(self._path.read_text()))
                self._modified = modified
        except (OSError, ValueError, TypeError):
            return self._limit
        return self._limit

    def latest(self, limit: RateLimit) -> RateLimit:
        """Return this limit or that of the file, whichever was learned later."""
        return latest([limit, self.read()])

    def write(self, limit: RateLimit) -> None:
        """Replace the file. The folder may be gone at the end of a query."""
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            draft.write_text(json.dumps(asdict(limit)))
            draft.replace(self._path)
        except OSError:
            return
