"""Garbage collection in processes that handle many messages."""

import gc
from collections.abc import Iterator

import pytest

from pairbus.garbage import NEW_OBJECTS, collect_rarely


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    threshold = gc.get_threshold()
    gc.unfreeze()  # other tests may have frozen objects
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


def test_objects_that_exist_are_not_searched_again() -> None:
    gc.set_threshold(700, 10, 10)

    collect_rarely()
    frozen = gc.get_freeze_count()
    collect_rarely()

    assert gc.get_threshold() == (NEW_OBJECTS, 10, 10)
    assert frozen > 0
    assert gc.get_freeze_count() <= frozen


@pytest.mark.parametrize("threshold", [0, NEW_OBJECTS + 1])
def test_setting_of_the_application_is_kept(threshold: int) -> None:
    """0 means that the application has switched off the collection."""
    gc.set_threshold(threshold, 10, 10)

    collect_rarely()

    assert gc.get_threshold() == (threshold, 10, 10)
    assert gc.get_freeze_count() == 0
