"""Fixtures of the fault tests of the syphon: two namespaces, a backlog, messages, and a clock."""

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.backlog import Backlog
from tests.faults.backlog_messages import BacklogMessages
from tests.faults.lock_clock import LockClock
from tests.faults.syphon_process import SyphonProcess
from tests.tiers import TEST_TIER

StartSyphon = Callable[..., SyphonProcess]
LONGEST = "test_every_call_ends"
"""The tests that wait longest, for the whole timeouts of their calls."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the longest tests evenly over the list, which `--dist worksteal` cuts into one part
    for each worker: two of them in one worker would decide how long the run takes."""
    longest = [item for item in items if item.name.startswith(LONGEST)]
    if "PYTEST_XDIST_WORKER" not in os.environ or not longest:
        return
    others = iter([item for item in items if item not in longest])
    gap = len(items) // len(longest)
    spread = [item for first in longest for item in (first, *islice(others, gap - 1))]
    items[:] = [*spread, *others]


@pytest.fixture(scope="module")
def clock() -> LockClock:
    return LockClock()


@pytest.fixture(scope="module")
def namespaces(clock: LockClock) -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with (
        LocalNamespace("primary", tier=TEST_TIER) as primary,
        LocalNamespace("secondary", now_ms=clock, tier=TEST_TIER) as secondary,
    ):
        yield primary, secondary


@pytest.fixture
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    return Backlog(*namespaces)


@pytest.fixture
def messages(backlog: Backlog) -> BacklogMessages:
    return BacklogMessages(backlog)


@pytest.fixture
def start_syphon(backlog: Backlog, tmp_path: Path) -> StartSyphon:
    """Start `pairbus syphon` for the backlog. The first argument is its folder."""

    def start(name: str, *options: str, **variables: str) -> SyphonProcess:
        arguments = (*backlog.arguments, *options)
        return SyphonProcess(tmp_path / name, *arguments, **backlog.variables, **variables)

    return start
