"""The simulated parts of the world, tested by simulations with a known outcome."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

STORIES = re.findall(r"@story\ndef (\w+)", (Path(__file__).parent / "stories.py").read_text())


@cache
def results(hash_seed: str) -> dict[str, dict[str, str]]:
    """Run all stories in a process whose standard library is replaced."""
    output = subprocess.run(
        [sys.executable, "-m", "tests.simulation.stories"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    return {line["story"]: line for line in map(json.loads, output.splitlines())}


@pytest.mark.parametrize("name", STORIES)
def test_story(name: str) -> None:
    result = results("0")[name]
    assert "error" not in result, result["error"]


def test_trace_is_the_same_in_another_process_with_other_hashes() -> None:
    name = "two_runs_have_the_same_trace"
    assert results("0")[name]["result"] == results("1")[name]["result"]
