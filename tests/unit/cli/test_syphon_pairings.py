"""The exit status of several syphons, and the label of their metrics."""

import pytest

from pairbus.cli.syphon_pairings import combined_exit_status, pairing_labels
from pairbus.cli.syphon_status_file import DEAD_LETTERED, DRAINED, FAILED, STOPPED, STUCK
from pairbus.syphon.options import SyphonOptions
from tests.commands import ONE, TWO


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


@pytest.mark.rule("O1")
def test_label_is_the_name_of_the_primary_unless_two_pairings_share_it() -> None:
    def options(primary_name: str) -> SyphonOptions:
        return SyphonOptions(primary=ONE, secondary=TWO, primary_name=primary_name)  # type: ignore[arg-type]

    assert pairing_labels({"a": options("shop"), "b": options("bills"), "c": options("bills")}) == {
        "a": "shop",
        "b": "b",
        "c": "c",
    }
