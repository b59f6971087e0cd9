"""What `pairbus syphon --status-file` writes is what `pairbus status --status-file` reads."""

import json
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pairbus.backlog.status import SyphonSummary, parse_syphon_status
from pairbus.cli.drain_screen import RateMeter
from pairbus.cli.syphon import _Run


@pytest.mark.parametrize("left", [3, None])
@pytest.mark.parametrize("problem", [None, "nothing was confirmed"])
def test_the_file_of_a_syphon_is_understood(
    tmp_path: Path, left: int | None, problem: str | None
) -> None:
    run: Any = _Run.__new__(_Run)
    run._status_file, run._speed = tmp_path / "status.json", RateMeter()
    status = SimpleNamespace(
        running=True,
        healthy=problem is None,
        problem=problem,
        moved=Counter({"orders": 5, "bills": 1}),
        dead_lettered=Counter(),
        errors={"down": "disabled"},
    )

    run._tell(status, left)
    found = parse_syphon_status(json.loads(run._status_file.read_text()), time.time())

    assert found == SyphonSummary(True, problem, 6, left, 0.0)
