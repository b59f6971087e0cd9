"""Fixtures of the console: two namespaces with a backlog, and a server with real HTTP."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.backlog import Backlog
from tests.integration.console.sites import Site, Sites


@pytest.fixture(scope="module")
def namespaces() -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        yield primary, secondary


@pytest.fixture
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    return Backlog(*namespaces)


@pytest.fixture
def sites(tmp_path: Path, backlog: Backlog) -> Iterator[Sites]:
    with ExitStack() as stack:
        yield Sites(tmp_path, backlog, stack)


@pytest.fixture
def site(sites: Sites) -> Site:
    return sites.start()
