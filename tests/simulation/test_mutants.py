"""The planted defects still fit the code. `python -m tests.simulation.mutants` runs them."""

import pytest

from tests.simulation.mutants import source_of
from tests.simulation.planted_defects import MUTANTS


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_changes_one_place_of_the_code(name: str) -> None:
    mutant = MUTANTS[name]
    assert source_of(mutant).read_text().count(mutant.text) == 1
