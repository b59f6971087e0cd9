"""The plan of the fault matrix: the faults of each run."""

from collections import Counter
from itertools import islice

import pytest

from tests.faults.matrix.plan import BLOCK, CELLS, STAGES, TIERS, Cell, make_run, plan


@pytest.mark.parametrize("seed", range(20))
def test_every_block_of_runs_has_every_cell_once(seed: int) -> None:
    runs = list(islice(plan(seed), 3 * BLOCK))

    for start in range(0, 3 * BLOCK, BLOCK):
        cells = Counter(cell for run in runs[start : start + BLOCK] for cell in run.cells)
        assert cells == Counter(CELLS)


def test_run_has_a_fault_of_a_different_component_at_each_stage() -> None:
    for run in islice(plan(7), 2 * BLOCK):
        assert [cell.stage for cell in run.cells] == list(STAGES)
        assert len({cell.component for cell in run.cells}) == len(STAGES)
        assert all(len(run.at(stage)) == 1 for stage in STAGES)


def test_seed_determines_the_runs() -> None:
    def first(seed: int) -> list[object]:
        return list(islice(plan(seed), BLOCK))

    assert first(7) == first(7)
    assert first(7) != first(8)


def test_runs_have_all_tiers() -> None:
    assert {run.tier for run in islice(plan(7), BLOCK)} == set(TIERS)


def test_blocks_of_runs_differ() -> None:
    runs = list(islice(plan(7), 2 * BLOCK))

    assert [run.cells for run in runs[:BLOCK]] != [run.cells for run in runs[BLOCK:]]


def test_given_cells_are_sorted_by_stage() -> None:
    late, early = Cell.parse("worker/cut/draining"), Cell.parse("primary/kill/before")

    assert make_run(7, 3, [late, early]).cells == (early, late)


@pytest.mark.parametrize("text", ["", "primary", "primary/kill", "primary/kill/later", "a/b/c/d"])
def test_unknown_cell_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a cell"):
        Cell.parse(text)


def test_every_cell_can_be_parsed_from_its_name() -> None:
    assert [Cell.parse(str(cell)) for cell in CELLS] == list(CELLS)
    assert len(CELLS) == 112
