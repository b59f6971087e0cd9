from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.emulator.local import Local


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """An empty namespace."""
    opened = Local(tmp_path / "namespace.db")
    yield opened
    opened.close()
