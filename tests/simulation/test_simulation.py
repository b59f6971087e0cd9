"""Simulated outages: no promise is broken, and a seed determines every byte of a run.

`python -m tests.simulation --seed N` prints the story of a seed. docs/explanation/simulation.md
has the rest.
"""

import json
import os
from secrets import randbelow
from typing import Any

import pytest

from tests.simulation.campaign import Summary, run_seeds, worker

FIXED, FRESH = 240, 120
"""The numbers of seeds. Each takes 0.05 to 0.2 s, depending on the machine."""


def run(first: int, count: int, *, biased: bool = False) -> Summary:
    summary = Summary()
    for result in run_seeds(first, count, processes=1, biased=biased):
        summary.add(result)
    print(summary.text())
    assert summary.runs == count
    return summary


def results_of(seeds: list[int], hash_seed: str) -> list[dict[str, Any]]:
    """Run seeds in one process, with its own order of hashes."""
    os.environ["PYTHONHASHSEED"] = hash_seed
    try:
        process = worker("seeds", *seeds)
    finally:
        del os.environ["PYTHONHASHSEED"]
    output, _ = process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.rule("X1", "X2", "X3", "S2a", "S4", "S5", "S12", "G2", "Y2", "Y4", "Y10")
def test_no_promise_is_broken_in_simulated_outages() -> None:
    summary = run(0, FIXED)
    assert summary.failovers > FIXED / 3, "too few outages"
    assert not summary.violations, summary.violations


@pytest.mark.rule("X3")
def test_no_promise_is_broken_for_new_seeds() -> None:
    first = randbelow(2**40)
    print(f"seeds {first} to {first + FRESH - 1}")
    summary = run(first, FRESH, biased=True)
    assert not summary.violations, summary.violations


@pytest.mark.rule("X3")
def test_seed_determines_the_whole_run() -> None:
    """It does not matter which seeds the process has run before, nor in which order it hashes."""
    seeds = [3, 6, 68, 1217, 1019, 1044]
    one, other = results_of(seeds, "1"), results_of(seeds[::-1], "2")[::-1]
    assert [run["digest"] for run in one] == [run["digest"] for run in other]
    assert any(run["failovers"] for run in one)
