"""The table of limitations is complete and has no unused entries."""

import importlib
from pathlib import Path

import pytest

from tests.interop.conftest import CLIENTS, SERVERS
from tests.interop.limitations import CANNOT, CANNOT_READ, CANNOT_WRITE, summary
from tests.interop.messages import BODIES, MESSAGE_IDS, VALUES

MODULES = [
    importlib.import_module(f"tests.interop.{path.stem}")
    for path in Path(__file__).parent.glob("test_*.py")
    if path.stem != "test_peers"
]


def test_every_capability_is_needed_by_a_test() -> None:
    needed = {
        capability
        for module in MODULES
        for test in vars(module).values()
        for capability in getattr(test, "needs", ())
    }
    assert needed == set(CANNOT)


@pytest.mark.parametrize("capability", CANNOT)
def test_every_capability_has_a_peer_with_and_a_peer_without_it(capability: str) -> None:
    peers = set(SERVERS if capability.startswith("server: ") else CLIENTS)
    assert set(CANNOT[capability]) < peers
    assert all(CANNOT[capability].values())


@pytest.mark.parametrize("table", [CANNOT_READ, CANNOT_WRITE], ids=["read", "write"])
def test_every_value_that_a_peer_cannot_carry_exists(table: dict[str, dict[str, str]]) -> None:
    names = {*VALUES, *BODIES, *(f"message id {kind}" for kind in MESSAGE_IDS)}
    assert set(table) == set(CLIENTS)
    for peer, reasons in table.items():
        assert set(reasons) <= names, peer


def test_summary_has_every_limitation() -> None:
    tables = (*CANNOT.values(), *CANNOT_READ.values(), *CANNOT_WRITE.values())
    peers = [peer for line in summary() for peer in line.split(": ")[0].split(", ")]
    assert len(peers) == sum(len(table) for table in tables)
