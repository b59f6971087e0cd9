"""Namespaces for tests: in memory if there is space, and closed with their factory."""

from pathlib import Path

import pytest

from pairbus.emulator import NamespaceFactory, namespace_factory
from pairbus.emulator.config import NamespaceConfig
from pairbus.emulator.entities.descriptions import QueueDescription
from pairbus.errors import ConfigurationError, StateError

pytestmark = pytest.mark.rule("N5")


def test_open_namespaces_are_closed_and_deleted_with_the_factory() -> None:
    with NamespaceFactory() as factory:
        namespaces = [factory(name, queues=["q"]) for name in ("a", "b")]
        namespaces[0].close()  # by the test itself
        assert namespaces[1].meter() == {}
    with pytest.raises(StateError):
        namespaces[1].meter()
    assert not namespaces[1].folder.parent.exists()


def test_namespace_that_cannot_be_started_is_deleted() -> None:
    queue = QueueDescription(name="q", forward_to="missing")
    with NamespaceFactory() as factory:
        base = factory("a").folder.parent
        before = list(base.iterdir())
        with pytest.raises(ConfigurationError, match="does not exist"):
            factory.start(NamespaceConfig(name="b", queues=(queue,)), None, {})
        assert list(base.iterdir()) == before


@pytest.mark.parametrize("reason", ["missing", "full"])
def test_data_is_on_disk_if_there_is_no_memory_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str
) -> None:
    if reason == "missing":
        monkeypatch.setattr(namespace_factory, "SHARED_MEMORY", tmp_path / "missing")
    else:
        monkeypatch.setattr(namespace_factory, "MIN_FREE_BYTES", 1 << 62)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with NamespaceFactory() as factory:
        assert factory("a").folder.is_relative_to(tmp_path)


def test_name_of_a_namespace_is_checked() -> None:
    with NamespaceFactory() as factory, pytest.raises(ConfigurationError, match="bad name"):
        factory("bad name!")
