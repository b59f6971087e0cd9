"""How figures are taken: everything that is compared runs in turns, in one process, in one run.

A case is a function that does some work and returns how many messages it was for. Of its rounds the
fastest counts: noise only ever adds. The ratio to ours is what can be compared between machines; it
says how many times as good as the other ours is.
"""

import gc
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from time import perf_counter

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

    @property
    def ratios(self) -> dict[str, float]:
        """How many times as good as each of the others ours is."""
        ours = self.values[OURS]
        return {
            name: self.unit.ratio(ours, value)
            for name, value in self.values.items()
            if name != OURS
        }


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
    notes: Mapping[str, str] | None = None,
    remark: str = "",
) -> Figure:
    """Run the cases in turns."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for contender, case in cases.items():
            value = unit.of(case())
            best[contender] = unit.better(value, best.get(contender, value))
    return Figure(name, best, unit, aim, dict(notes or {}), remark)


def tables(figures: list[Figure]) -> str:
    """All figures as text, a table for each unit."""
    units = dict.fromkeys(figure.unit for figure in figures)
    return "\n\n".join(
        _table([figure for figure in figures if figure.unit == unit], unit) for unit in units
    )


def _table(figures: list[Figure], unit: Unit) -> str:
    contenders = list(dict.fromkeys(name for figure in figures for name in figure.values))
    noted = {name for figure in figures for name in figure.notes}
    contenders += [name for name in sorted(noted) if name not in contenders]
    head = [unit.name, *contenders]
    others = [name for name in contenders if name != OURS]
    if others:
        head += ["aim", *(_ratio_of(unit, name) for name in others)]
    rows = [head]
    for figure in figures:
        row = [figure.name]
        for contender in contenders:
            value = figure.values.get(contender)
            row.append(
                figure.notes.get(contender, "-") if value is None else f"{value:,.{unit.digits}f}"
            )
        if others:
            row.append("-" if figure.aim is None else f"{figure.aim:g}")
        for contender in others:
            ratio = figure.ratios.get(contender)
            row.append("-" if ratio is None else f"{ratio:.{1 if ratio >= 10 else 2}f}")
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = []
    for index, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
        if index == 0:
            lines.append("  ".join("─" * width for width in widths))
    lines += [f"{figure.name}: {figure.remark}" for figure in figures if figure.remark]
    return "\n".join(lines)


def _ratio_of(unit: Unit, other: str) -> str:
    return f"ours / {other}" if unit.more_is_better else f"{other} / ours"


def surroundings() -> dict[str, object]:
    """Machine, commit and versions: what a figure means nothing without."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    packages = ("azure-servicebus", "python-qpid-proton", "pairbus")
    return {
        "python": sys.version.split()[0],
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
        "commit": commit or "unknown",
        "versions": {name: metadata.version(name) for name in packages}
        | {"RabbitMQ": _debian_version("rabbitmq-server")},
    }


def _debian_version(package: str) -> str:
    try:
        asked = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", package],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return "unknown"
    return asked.stdout.strip() or "not installed"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"


def save(figures: list[Figure], path: Path) -> None:
    """All figures as JSON, with where they were taken."""
    document = {
        **surroundings(),
        "figures": [
            {**asdict(figure), "unit": figure.unit.name, "ratios": figure.ratios}
            for figure in figures
        ],
    }
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
