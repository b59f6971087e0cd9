"""Runs `promtool`, which checks rules and expressions of Prometheus."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 240.0


def run_promtool(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run promtool, and return its output."""
    folders = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program = shutil.which("promtool", path=folders)
    if program is None:
        pytest.fail("promtool is missing. Run 'scripts/setup test'.")
    return subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
