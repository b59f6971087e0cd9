"""Every step of the tutorial, in one shell, with the output that the page shows."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documentation import ROOT, Block, read_blocks

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
    """A shell that runs one block after another and keeps its variables and jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._errors = (folder / "errors.txt").open("w", encoding="utf-8")
        variables = {name: text for name, text in os.environ.items() if "PAIRBUS" not in name}
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=variables | {"PATH": programs, "PYTHONUTF8": "1"},
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
        return (self.folder / "errors.txt").read_text(encoding="utf-8")

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


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


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


def test_every_step_of_the_tutorial_has_the_output_that_it_shows(shell: Shell) -> None:
    blocks = read_blocks(PAGE)
    assert [block.excuse is not None for block in blocks].count(True) == 2  # the installation
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if not block.is_code or block.excuse:
            continue
        if block.language == "python":
            name = block.code.partition("\n")[0].removeprefix("# ")
            (shell.folder / name).write_text(block.code, encoding="utf-8")
            continue
        status, output = shell.run(block.code)
        assert status == expected_status(block), f"{block.place}: {output}\n{shell.errors()}"
        expected = expected_output(following)
        if expected is not None:
            assert comparable(output) == comparable(expected), block.place
    assert "Connection refused" in shell.errors()  # the log of the sender: there was an outage
