"""The totals of a syphon that has ended. No I/O."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pairbus.cli.formatting import messages, printable

if TYPE_CHECKING:
    from pairbus.syphon.status import SyphonStatus

NEXT_STEP = "See: pairbus dead-letters list"


def total_lines(status: "SyphonStatus") -> list[str]:
    """Return what was moved and what was dead-lettered, by destination and reason."""
    lines = [
        f"  {printable(path)}: {count:,} moved" for path, count in sorted(status.moved.items())
    ]
    total = f"{messages(f'{status.moved.total():,}')} moved"
    dead_lettered = status.dead_lettered.total()
    if not dead_lettered:
        return [*lines, f"{total}, 0 dead-lettered."]
    return [
        *lines,
        *(f"  {line}" for line in dead_letter_lines(status.dead_letter_reasons)),
        f"{total}. {dead_lettered:,} DEAD-LETTERED. {NEXT_STEP}",
    ]


def dead_letter_lines(reasons: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a line for each destination and reason, the largest number first."""
    counts = [
        (-count, path, reason)
        for path, by_reason in reasons.items()
        for reason, count in by_reason.items()
    ]
    return [
        f"{printable(path) or 'no destination'}: {-negative:,} dead-lettered ({printable(reason)})"
        for negative, path, reason in sorted(counts)
    ]
