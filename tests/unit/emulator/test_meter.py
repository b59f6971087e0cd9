"""The meter counts several messages as it counts each alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.emulator.meter import Meter
from pairbus.emulator.storage.store import Store
from pairbus.servicebus.limits import BILLING_UNIT


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder: Path = tmp_path_factory.mktemp("meter")
    with Store(folder / "namespace.db") as store:
        yield store


@given(st.lists(st.integers(0, 3 * BILLING_UNIT), max_size=5))
def test_messages_that_are_counted_at_once_count_as_each_alone(
    store: Store, sizes: list[int]
) -> None:
    seen: list[tuple[str, int]] = []
    at_once = Meter(store, lambda kind, size: seen.append((kind, size)))
    alone = Meter(store)

    at_once.add_messages("q", "send", sizes)
    for size in sizes:
        alone.add("q", "send", size)

    assert at_once.readings() == alone.readings()
    assert seen == [("send", size) for size in sizes]
