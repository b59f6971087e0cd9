"""Every step of the tutorial but the installation, which `make tutorial` runs."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documentation import read_blocks
from tests.tutorial import PAGE, Shell, run_steps


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    variables = {name: text for name, text in os.environ.items() if "PAIRBUS" not in name}
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = Shell(["bash"], tmp_path, variables | {"PATH": programs, "PYTHONUTF8": "1"})
    yield shell
    shell.close()


def test_every_step_of_the_tutorial_has_the_output_that_it_shows(shell: Shell, tmp_path: Path):
    blocks = read_blocks(PAGE)
    steps = [block for block in blocks if not block.excuse]
    assert len(steps) == len(blocks) - 2  # the installation

    commands = [block for block, _ in run_steps(shell, steps, tmp_path)]

    assert len(commands) > 8
    assert "Connection refused" in shell.errors()  # the log of the sender: there was an outage
