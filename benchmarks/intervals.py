"""Figures from many short blocks of two contenders in turns, with an interval of their ratio.

A statistic of all blocks, such as a percentile of their calls, has no spread of its own. So the
pairs of blocks are drawn again and again, with replacement, and the interval has the middle 90 % of
the resulting ratios (the bootstrap). Both blocks of a pair ran directly after each other.
"""

from collections.abc import Callable, Sequence
from random import Random
from statistics import quantiles
from typing import TypeVar

from benchmarks.harness import OURS, Figure, Unit

T = TypeVar("T")

DRAWS = 200


def pooled(
    name: str,
    unit: Unit,
    statistic: Callable[[Sequence[T]], float],
    pairs: Sequence[tuple[T, T]],
    *,
    contender: str,
    aim: float | None = None,
) -> Figure:
    """Return a statistic of all blocks of pairbus and of another contender. A pair has a block of
    each."""
    ours, others = zip(*pairs, strict=True)
    random = Random(0)
    ratios = []
    for _ in range(DRAWS):
        drawn = zip(*random.choices(pairs, k=len(pairs)), strict=True)
        ratios.append(unit.ratio(*map(statistic, drawn)))
    twentieths = quantiles(ratios, n=20)
    return Figure(
        name,
        {OURS: statistic(ours), contender: statistic(others)},
        unit,
        aim,
        interval=(twentieths[0], twentieths[-1]),
    )
