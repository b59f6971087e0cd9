"""How figures are taken: everything that is compared runs in turns, in one process, in one run.

A case is a function that does some work and returns how many messages it was for. Of its rounds the
fastest counts: noise only ever adds. The ratio to ours is what can be compared between machines; it
says how many times as good as the other ours is. An aim is a ratio, too, to the first of the
others, or where it says so a value in the figure's own unit.
"""

import gc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

Case = Callable[[], "Timed"]
OURS = "pairbus"


@dataclass(frozen=True, slots=True)
class Unit:
    """What a figure counts, and how it is shown."""

    name: str
    more_is_better: bool = False
    digits: int = 2

    def of(self, timed: "Timed") -> float:
        each = timed.seconds / timed.messages
        return 1 / each if self.more_is_better else each * 1e6

    def better(self, one: float, other: float) -> float:
        return max(one, other) if self.more_is_better else min(one, other)

    def ratio(self, ours: float, other: float) -> float:
        return ours / other if self.more_is_better else other / ours

    def shown(self, value: float) -> str:
        return f"{value:,.{self.digits}f}"


MICROSECONDS = Unit("µs a message")
RATE = Unit("messages a second", more_is_better=True, digits=0)
MEGABYTES = Unit("MB", digits=0)
MILLISECONDS_99 = Unit("ms, 99th percentile of a call")
SECONDS = Unit("seconds")


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds that the measured part of a case took, and for how many messages."""

    seconds: float
    messages: int


@dataclass(frozen=True, slots=True)
class Figure:
    """The best round of each contender."""

    name: str
    values: dict[str, float]
    unit: Unit = MICROSECONDS
    aim: float | None = None
    notes: dict[str, str] = field(default_factory=dict)
    """What stands in place of a figure."""
    remark: str = ""
    aim_is_value: bool = False
    """The aim is for the figure itself, not for a ratio."""

    @property
    def ratios(self) -> dict[str, float]:
        """How many times as good as each of the others ours is."""
        ours = self.values[OURS]
        return {
            name: self.unit.ratio(ours, value)
            for name, value in self.values.items()
            if name != OURS
        }

    @property
    def aimed_at(self) -> str | None:
        """Whom the aim is about: the first of those that ours is beside, or ourselves."""
        if self.aim is None:
            return None
        if self.aim_is_value:
            return OURS
        return next((name for name in self.values if name != OURS), None)

    @property
    def reached(self) -> str:
        """What stands beside the aim."""
        if self.aim_is_value:
            return self.unit.shown(self.values[OURS])
        return "" if self.aimed_at is None else shown_ratio(self.ratios[self.aimed_at])

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None: there is none, or nothing to hold it against."""
        if self.aim is None or self.aimed_at is None:
            return None
        if self.aim_is_value:
            return self.unit.better(self.values[OURS], self.aim) == self.values[OURS]
        return self.ratios[self.aimed_at] >= self.aim

    @property
    def shown_aim(self) -> str:
        return f"{self.aim:g} {self.unit.name}" if self.aim_is_value else f"{self.aim:g}"

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "ratios": self.ratios}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Figure":
        known = {name: plain[name] for name in cls.__slots__ if name != "unit"}
        return cls(unit=Unit(**plain["unit"]), **known)


def timed(work: Callable[[], int]) -> Timed:
    """Time a piece of work that says for how many messages it was."""
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
    """Run the cases in turns."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for contender, case in cases.items():
            value = unit.of(case())
            best[contender] = unit.better(value, best.get(contender, value))
    return Figure(name, best, unit, aim, dict(notes or {}), remark, aim_is_value)


def shown_ratio(ratio: float) -> str:
    return f"{ratio:.{1 if ratio >= 10 else 2}f}"


HEAD = ("", "unit", OURS, "beside", "theirs", "ratio", "aim")


def rows(figures: Iterable[Figure]) -> list[tuple[str, ...]]:
    """A row for each figure and each contender that ours is beside."""
    result: list[tuple[str, ...]] = []
    for figure in figures:
        ours = figure.values.get(OURS)
        mine = (figure.name, figure.unit.name, "-" if ours is None else figure.unit.shown(ours))
        beside = [
            (
                other,
                figure.unit.shown(figure.values[other]),
                shown_ratio(ratio),
                _shown_aim(figure) if number == 0 and figure.aimed_at else "",
            )
            for number, (other, ratio) in enumerate(figure.ratios.items())
        ]
        beside += [(other, note, "", "") for other, note in figure.notes.items() if other != OURS]
        for number, one in enumerate(beside or [("", "", "", "")]):
            result.append((*(mine if number == 0 else ("", "", "")), *one))
    return result


def _shown_aim(figure: Figure) -> str:
    return f"{figure.shown_aim}, {'met' if figure.met else 'not met'}"


def table(figures: Mapping[str, Iterable[Figure]]) -> str:
    """All figures of all subjects as one table."""
    groups = {subject: rows(some) for subject, some in figures.items()}
    widths = [len(name) for name in HEAD]
    for row in (row for some in groups.values() for row in some):
        widths = [max(width, len(cell)) for width, cell in zip(widths, row, strict=True)]
    lines = [_line(HEAD, widths), "  ".join("─" * width for width in widths)]
    for subject, some in groups.items():
        lines += [subject, *(_line(row, widths) for row in some)]
    return "\n".join([*lines, *remarks(figures)])


def remarks(figures: Mapping[str, Iterable[Figure]]) -> list[str]:
    """What is to be known of some figures, once where several share it."""
    found: dict[tuple[str, str], list[str]] = {}
    for subject, some in figures.items():
        for figure in some:
            if figure.remark:
                found.setdefault((subject, figure.remark), []).append(figure.name)
    return [f"{subject}, {'; '.join(names)}: {what}" for (subject, what), names in found.items()]


LEFT = {0, 1, 3}
"""Columns of words."""


def _line(row: Iterable[str], widths: list[int]) -> str:
    cells = [
        cell.ljust(width) if column in LEFT else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
