"""Measurement and comparison: all contenders of a figure run in turns, in one run.

A case is a function that runs one round of a contender and returns its time and its number of
messages. The fastest round counts, because noise can only add time; where rounds differ by more
than the contenders do, the median counts, and the spread is shown. Ratios can be compared between
machines. A ratio above 1 means that pairbus is better. An aim is the target of a figure: a ratio to
the first other contender, or a value in the unit of the figure.
"""

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median, quantiles
from time import perf_counter
from typing import Any

Case = Callable[[], "Timed"]
OURS = "pairbus"


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a figure, and its number format."""

    name: str
    more_is_better: bool = False
    digits: int = 2

    def convert(self, timed: "Timed") -> float:
        """Return the time or the rate per message in this unit."""
        seconds = timed.seconds / timed.messages
        return 1 / seconds if self.more_is_better else seconds * 1e6

    def better(self, first: float, second: float) -> float:
        return max(first, second) if self.more_is_better else min(first, second)

    def ratio(self, ours: float, other: float) -> float:
        return ours / other if self.more_is_better else other / ours

    def format(self, value: float) -> str:
        return f"{value:,.{self.digits}f}"


MICROSECONDS = Unit("µs per message")
CPU_MICROSECONDS = Unit("CPU µs per message", digits=1)
RATE = Unit("messages per second", more_is_better=True, digits=0)
MEGABYTES = Unit("MB", digits=0)
MILLISECONDS_99 = Unit("ms, 99th percentile of a call")
SECONDS = Unit("seconds")


@dataclass(frozen=True, slots=True)
class Timed:
    """The duration of the measured part of a case, and its number of messages."""

    seconds: float
    messages: int


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured quantity: the best round of each contender."""

    name: str
    values: dict[str, float]
    unit: Unit = MICROSECONDS
    aim: float | None = None
    notes: dict[str, str] = field(default_factory=dict)
    """Texts in place of missing values, by contender."""
    remark: str = ""
    aim_is_value: bool = False
    """The aim is a value in the unit of the figure, not a ratio."""
    spread: tuple[float, float] | None = None
    """The quartiles of the ratios of all rounds, if the values are medians."""
    interval: tuple[float, float] | None = None
    """The range in which the ratio is with a probability of 90 % (`benchmarks.intervals`)."""

    @property
    def ratios(self) -> dict[str, float]:
        """The ratio of pairbus to each other contender. Above 1, pairbus is better."""
        ours = self.values[OURS]
        return {
            name: self.unit.ratio(ours, value)
            for name, value in self.values.items()
            if name != OURS
        }

    @property
    def aim_contender(self) -> str | None:
        """The contender that the aim refers to: the first other one, or pairbus for a value."""
        if self.aim is None:
            return None
        if self.aim_is_value:
            return OURS
        return next((name for name in self.values if name != OURS), None)

    @property
    def measured(self) -> str:
        """The measured ratio or value, to be compared with the aim."""
        if self.aim_is_value:
            return self.unit.format(self.values[OURS])
        return "" if self.aim_contender is None else self.format_ratio(self.aim_contender)

    def format_ratio(self, contender: str) -> str:
        """Return the ratio to a contender as text, with its interval or spread if it is known."""
        ratio = format_ratio(self.ratios[contender])
        bounds = self.interval or self.spread
        if bounds is None:
            return ratio
        return f"{ratio} ({' to '.join(map(format_ratio, bounds))})"

    @property
    def met(self) -> bool | None:
        """True if the aim is met; None if there is no aim, or no contender to compare with."""
        if self.aim is None or self.aim_contender is None:
            return None
        if self.aim_is_value:
            return self.unit.better(self.values[OURS], self.aim) == self.values[OURS]
        return self.ratios[self.aim_contender] >= self.aim

    @property
    def verdict(self) -> str:
        """Tell whether the aim is met. A ratio below the aim does not show that it is missed if its
        interval contains the aim."""
        if self.met is None:
            return "no comparison"
        if self.met:
            return "met"
        if self.interval is None or self.aim is None or self.interval[1] < self.aim:
            return "not met"
        return "not decided"

    @property
    def aim_text(self) -> str:
        return f"{self.aim:g} {self.unit.name}" if self.aim_is_value else f"{self.aim:g}"

    def to_json(self) -> dict[str, Any]:
        """Return the figure as a JSON object."""
        return {**asdict(self), "ratios": self.ratios}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Figure":
        values = {name: data[name] for name in cls.__slots__ if name in data}
        values["unit"] = Unit(**data["unit"])
        for name in ("spread", "interval"):
            if data.get(name) is not None:
                values[name] = tuple(data[name])
        return cls(**values)


def timed(work: Callable[[], int]) -> Timed:
    """Time a function that returns its number of messages."""
    gc.collect()
    start = perf_counter()
    messages = work()
    return Timed(perf_counter() - start, messages)


def compare(
    name: str,
    cases: Mapping[str, Case],
    *,
    rounds: int,
    unit: Unit = MICROSECONDS,
    aim: float | None = None,
    aim_is_value: bool = False,
    notes: Mapping[str, str] | None = None,
    remark: str = "",
) -> Figure:
    """Run the cases in turns, and return the best round of each."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for contender, case in cases.items():
            value = unit.convert(case())
            best[contender] = unit.better(value, best.get(contender, value))
    return Figure(name, best, unit, aim, dict(notes or {}), remark, aim_is_value)


def medians(
    name: str,
    unit: Unit,
    ours: Sequence[float],
    others: Sequence[float],
    *,
    contender: str,
    aim: float | None = None,
    remark: str = "",
) -> Figure:
    """Return the medians of two contenders that ran in turns, with the spread of their ratio."""
    ratios = [unit.ratio(first, second) for first, second in zip(ours, others, strict=True)]
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    values = {OURS: median(ours), contender: median(others)}
    return Figure(name, values, unit, aim, remark=remark, spread=(low, high))


def format_ratio(ratio: float) -> str:
    return f"{ratio:.{1 if ratio >= 10 else 2}f}"


HEAD = ("", "unit", OURS, "compared with", "value", "ratio", "target")


def rows(figures: Iterable[Figure]) -> list[tuple[str, ...]]:
    """Return a row for each figure and each contender that pairbus is compared with."""
    result: list[tuple[str, ...]] = []
    for figure in figures:
        ours = figure.values.get(OURS)
        first_cells = (
            figure.name,
            figure.unit.name,
            "-" if ours is None else figure.unit.format(ours),
        )
        comparisons = [
            (
                other,
                figure.unit.format(figure.values[other]),
                figure.format_ratio(other),
                _aim_and_verdict(figure) if number == 0 and figure.aim_contender else "",
            )
            for number, other in enumerate(figure.ratios)
        ]
        comparisons += [
            (other, note, "", "") for other, note in figure.notes.items() if other != OURS
        ]
        for number, cells in enumerate(comparisons or [("", "", "", "")]):
            result.append((*(first_cells if number == 0 else ("", "", "")), *cells))
    return result


def _aim_and_verdict(figure: Figure) -> str:
    return f"{figure.aim_text}, {figure.verdict}"


def table(figures: Mapping[str, Iterable[Figure]]) -> str:
    """Return all figures of all subjects as one table."""
    groups = {subject: rows(group) for subject, group in figures.items()}
    widths = [len(name) for name in HEAD]
    for row in (row for group in groups.values() for row in group):
        widths = [max(width, len(cell)) for width, cell in zip(widths, row, strict=True)]
    lines = [_line(HEAD, widths), "  ".join("─" * width for width in widths)]
    for subject, group in groups.items():
        lines += [subject, *(_line(row, widths) for row in group)]
    return "\n".join([*lines, *remarks(figures)])


def remarks(figures: Mapping[str, Iterable[Figure]]) -> list[str]:
    """Return the remarks of all figures. Figures with the same remark share a line."""
    names_by_remark: dict[tuple[str, str], list[str]] = {}
    for subject, group in figures.items():
        for figure in group:
            if figure.remark:
                names_by_remark.setdefault((subject, figure.remark), []).append(figure.name)
    return [
        f"{subject}, {'; '.join(names)}: {remark}"
        for (subject, remark), names in names_by_remark.items()
    ]


LEFT = {0, 1, 3}
"""Columns of text, which are aligned to the left."""


def _line(row: Iterable[str], widths: list[int]) -> str:
    cells = [
        cell.ljust(width) if column in LEFT else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
