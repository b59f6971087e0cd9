"""Runs the tutorial in one shell, block by block, and compares the output with that of the page."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.documentation import ROOT, Block

PAGE = ROOT / "docs" / "tutorial" / "outage.md"
END = "end of block"
VARYING = [
    (r"(localhost:|port )\d+", r"\1PORT"),
    (r"SharedAccessKey=[^;]+", "SharedAccessKey=KEY"),
    (r"\d+ s\b", "TIME"),
    (r"[\d.,]+/s", "RATE"),
    (r"\d+ B\b", "SIZE"),
    (r" +", " "),
]
"""Parts of the output that differ from run to run."""


class Shell:
    """A shell that runs one block after another and keeps its variables and jobs.

    It starts in `folder`, where a file gets its standard error.
    """

    def __init__(self, command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._errors = (folder / "errors.txt").open("w", encoding="utf-8")
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )

    def run(self, code: str) -> tuple[int, str]:
        """Run a block, and return its exit status and its output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{code}\nstatus=$?; echo; echo '{END}' $status\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.startswith(END):
                return int(line.removeprefix(END)), "".join(lines).strip()
            lines.append(line)
        raise AssertionError(f"the shell ended: {self.errors()}")

    def errors(self) -> str:
        """Return everything that was written to standard error."""
        return (self._folder / "errors.txt").read_text(encoding="utf-8")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("kill $(jobs -p)\n")
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


def comparable(text: str) -> list[str]:
    """Return the lines of an output without the parts that vary."""
    for pattern, replacement in VARYING:
        text = re.sub(pattern, replacement, text)
    return [line.strip() for line in text.strip().splitlines()]


def expected_status(block: Block) -> int:
    status = re.fullmatch(r"exit status (\d+)", block.comment or "")
    return int(status[1]) if status else 0


def expected_output(following: Block | None) -> str | None:
    return following.code if following is not None and following.language == "text" else None


def run_steps(shell: Shell, blocks: Sequence[Block], programs: Path) -> Iterator[tuple[Block, str]]:
    """Run the blocks in order, and yield each command with its output. Programs in Python are saved
    in a folder under the names in their first lines. Raises AssertionError if an output or an exit
    status is not that of the page."""
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language == "python":
            name = block.code.partition("\n")[0].removeprefix("# ")
            (programs / name).write_text(block.code, encoding="utf-8")
        elif block.is_code:
            status, output = shell.run(block.code)
            yield block, output
            assert status == expected_status(block), f"{block.place}: {output}\n{shell.errors()}"
            if (expected := expected_output(following)) is not None:
                assert comparable(output) == comparable(expected), f"{block.place}: {output}"
