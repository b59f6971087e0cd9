"""A module that runs in a separate process until its standard input is closed."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self


class ChildProcess:
    """Starts the process, exchanges lines with it, and ends it."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        tool: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`tool` is a command that runs the process, such as valgrind. `environment` replaces that
        of this process."""
        self._process = subprocess.Popen(
            [*tool, sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> str:
        """Close the standard input, wait for the end of the process, and return its output that was
        not read."""
        output, _ = self._process.communicate()
        return output

    def write_line(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def read_line(self) -> str:
        """Return the next line, or an empty string if the process has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()
