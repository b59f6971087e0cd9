"""What all tests share."""

import os
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _state_of_commands() -> Iterator[None]:
    """Commands keep their ledgers here, not in somebody's home."""
    with tempfile.TemporaryDirectory(prefix="pairbus-state-", ignore_cleanup_errors=True) as folder:
        before = os.environ.get("XDG_STATE_HOME")
        os.environ["XDG_STATE_HOME"] = folder
        yield
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before
