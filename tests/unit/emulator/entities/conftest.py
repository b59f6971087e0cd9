from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.emulator.entities.harness import EntityHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[EntityHarness]:
    """An empty namespace."""
    harness = EntityHarness(tmp_path / "namespace.db")
    yield harness
    harness.close()
