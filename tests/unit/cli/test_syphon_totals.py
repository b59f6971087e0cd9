"""The totals that a syphon prints when it ends."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from pairbus.cli.syphon_totals import total_lines


def totals(moved: dict[str, int], reasons: dict[str, dict[str, int]]) -> list[str]:
    status: Any = SimpleNamespace(
        moved=Counter(moved),
        dead_lettered=Counter({path: sum(counts.values()) for path, counts in reasons.items()}),
        dead_letter_reasons=reasons,
    )
    return total_lines(status)


def test_dead_letters_are_named_with_destination_reason_and_next_step():
    reasons = {"orders": {"Refused": 1, "EntityNotFound": 1500}, "": {"MissingPath": 2}}

    assert totals({"bills": 3}, reasons) == [
        "  bills: 3 moved",
        "  orders: 1,500 dead-lettered (EntityNotFound)",
        "  no destination: 2 dead-lettered (MissingPath)",
        "  orders: 1 dead-lettered (Refused)",
        "3 messages moved. 1,503 DEAD-LETTERED. See: pairbus dead-letters list",
    ]


def test_drain_without_dead_letters_says_so():
    assert totals({"orders": 1}, {}) == ["  orders: 1 moved", "1 message moved, 0 dead-lettered."]


def test_path_cannot_control_the_terminal():
    assert totals({"a\x1b[2J": 1}, {})[0] == r"  a\x1b[2J: 1 moved"
