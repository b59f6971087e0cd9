"""Fixtures of the console's unit tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from pairbus.console.storage import ConsoleDatabase


@pytest.fixture
def open_database() -> Iterator[Callable[[Path | None], ConsoleDatabase]]:
    """Open databases, which are closed after the test."""
    with ExitStack() as stack:
        yield lambda path: stack.enter_context(closing(ConsoleDatabase(path)))
