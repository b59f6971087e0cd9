"""Plans that once broke a promise: they pass, and each fails if its defect is planted again."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.campaign import ROOT, worker
from tests.simulation.mutants import planted
from tests.simulation.planted_defects import MUTANTS
from tests.simulation.stored_plans import FOLDER, load

FILES = sorted(FOLDER.glob("*.json"))


def results_of(files: list[Path], root: Path = ROOT) -> list[dict[str, Any]]:
    process = worker("stored", *files, root=root)
    output, _ = process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.rule("X3")
def test_plans_that_once_failed_pass() -> None:
    results = results_of(FILES)
    assert len(results) == len(FILES) > 0
    assert [result for result in results if result["violations"]] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_plan_fails_with_its_defect(file: Path) -> None:
    regression = load(file)
    with planted(MUTANTS[regression.defect]) as root:
        (result,) = results_of([file], root)
    rules = {violation.partition(":")[0] for violation in result["violations"]}
    assert regression.rule in rules, "the plan does not repeat its case: store another"
