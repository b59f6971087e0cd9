"""A data folder is served by one `LocalNamespace` at a time, in this process or in another."""

from pathlib import Path

import pytest

from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import StateError


def queues(namespace: LocalNamespace) -> list[str]:
    return namespace.call(lambda core: [row.path for row in core.store.entities.all()])


def test_folder_of_a_running_namespace_is_refused(tmp_path: Path) -> None:
    with LocalNamespace("first", folder=tmp_path) as first:
        with pytest.raises(StateError, match="already in use by another namespace of this process"):
            LocalNamespace("second", folder=tmp_path)
        first.create_queue("q")
        assert queues(first) == ["q"]


def test_folder_of_a_stopped_namespace_is_free_until_it_starts_again(tmp_path: Path) -> None:
    with LocalNamespace("first", folder=tmp_path) as first:
        first.create_queue("first")
        first.stop()
        with LocalNamespace("second", folder=tmp_path) as second:
            second.create_queue("second")
            with pytest.raises(StateError, match="already in use"):
                first.start()
            with pytest.raises(StateError, match="already in use"):
                first.reset()
        first.start()
        assert queues(first) == ["first", "second"]


def test_namespaces_that_were_not_started_do_not_keep_the_folder_in_use(tmp_path: Path) -> None:
    first = LocalNamespace("first", folder=tmp_path)
    second = LocalNamespace("second", folder=tmp_path)
    with first, pytest.raises(StateError, match="already in use"):
        second.start()
    with second:
        pass


def test_namespace_whose_port_is_taken_does_not_keep_the_folder_in_use(tmp_path: Path) -> None:
    with LocalNamespace("other") as other:
        second = LocalNamespace("second", folder=tmp_path, port=other.port)
        with pytest.raises(StateError, match="in use"):
            second.start()
        second.close()
    with LocalNamespace("second", folder=tmp_path):
        pass
