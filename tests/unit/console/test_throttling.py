"""The number of throttled operations."""

import pytest

from pairbus.console.throttling import IncreaseCounter

pytestmark = pytest.mark.rule("O2")


def test_increases_are_added_up_across_restarts_of_the_process():
    counter = IncreaseCounter()
    for value in (None, 100, 130, None, 130, 4, 5):
        counter.update(value)

    assert counter.total == 30 + 4 + 1
