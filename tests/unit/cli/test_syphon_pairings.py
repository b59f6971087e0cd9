"""The exit status of several syphons."""

import pytest

from pairbus.cli.syphon_pairings import combined_exit_status
from pairbus.cli.syphon_status_file import DEAD_LETTERED, DRAINED, FAILED, STOPPED, STUCK


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([DRAINED, DRAINED], DRAINED),
        ([DRAINED, DEAD_LETTERED], DEAD_LETTERED),
        ([DEAD_LETTERED, STUCK], STUCK),
        ([STUCK, STOPPED], STOPPED),
        ([STUCK, FAILED, DRAINED], FAILED),
    ],
)
def test_exit_status_is_that_of_the_worst(results: list[int], expected: int) -> None:
    assert combined_exit_status(results) == expected
