"""Cheap garbage collections. Many tests collect the garbage of the SDK, whose sockets must not be
reported for another test, and every collection goes through all objects of the process."""

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def freeze_objects() -> None:
    """Exclude what exists before the tests of a file from their collections."""
    gc.collect()
    gc.freeze()
