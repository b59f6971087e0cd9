"""Fixtures of the fault tests of the syphon: two namespaces, a backlog, messages, and a clock."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.backlog import Backlog
from tests.faults.backlog_messages import BacklogMessages
from tests.faults.lock_clock import LockClock
from tests.faults.syphon_process import SyphonProcess
from tests.tiers import TEST_TIER

StartSyphon = Callable[..., SyphonProcess]


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
