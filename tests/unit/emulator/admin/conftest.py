from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.emulator.admin.harness import AdminHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AdminHarness]:
    """An empty namespace."""
    harness = AdminHarness(tmp_path / "namespace.db")
    yield harness
    harness.store.close()
