"""Fixtures of the tests on a standalone cluster."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pairbus.emulator.namespace import LocalNamespace
from tests.cluster.standalone import Cluster
from tests.faults.lock_clock import LockClock


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without workers."""
    with ExitStack() as resources:
        yield Cluster(tmp_path_factory.mktemp("cluster"), resources)


@pytest.fixture(scope="module")
def clock() -> LockClock:
    return LockClock()


@pytest.fixture(scope="module")
def namespaces(
    cluster: Cluster, clock: LockClock
) -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    """Two namespaces that the machines of the cluster can reach."""
    settings = {"host": cluster.host, "allow_plaintext": True}
    with (
        LocalNamespace("primary", **settings) as primary,
        LocalNamespace("secondary", now_ms=clock, **settings) as secondary,
    ):
        yield primary, secondary
