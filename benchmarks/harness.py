"""How figures are taken: everything that is compared runs in turns, in one process, in one run.

A case is a function that does some work and returns how many messages it was for. Of its rounds the
fastest counts: noise only ever adds. The ratio to ours is what can be compared between machines.
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
class Timed:
    """Seconds that the measured part of a case took, and for how many messages."""

    seconds: float
    messages: int


@dataclass(frozen=True, slots=True)
class Figure:
    """Microseconds a message: the fastest round of each contender."""

    name: str
    microseconds: dict[str, float]
    aim: float | None = None
    notes: dict[str, str] = field(default_factory=dict)
    """What stands in place of a figure."""
    remark: str = ""

    @property
    def ratios(self) -> dict[str, float]:
        """How many times the time of ours each of the others takes."""
        ours = self.microseconds[OURS]
        return {name: value / ours for name, value in self.microseconds.items() if name != OURS}


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
    aim: float | None = None,
    notes: Mapping[str, str] | None = None,
    remark: str = "",
) -> Figure:
    """Run the cases in turns."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for contender, case in cases.items():
            result = case()
            each = result.seconds / result.messages * 1e6
            best[contender] = min(each, best.get(contender, float("inf")))
    return Figure(name, best, aim, dict(notes or {}), remark)


def table(figures: list[Figure]) -> str:
    """All figures as text."""
    contenders = list(dict.fromkeys(name for figure in figures for name in figure.microseconds))
    noted = {name for figure in figures for name in figure.notes}
    contenders += [name for name in sorted(noted) if name not in contenders]
    head = ["µs a message", *contenders, "aim", *(f"{c} / ours" for c in contenders if c != OURS)]
    rows = [head]
    for figure in figures:
        row = [figure.name]
        for contender in contenders:
            value = figure.microseconds.get(contender)
            row.append(figure.notes.get(contender, "-") if value is None else f"{value:.2f}")
        row.append("-" if figure.aim is None else f"{figure.aim:g}")
        for contender in contenders:
            if contender != OURS:
                ratio = figure.ratios.get(contender)
                row.append("-" if ratio is None else f"{ratio:.1f}")
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
        "versions": {name: metadata.version(name) for name in packages},
    }


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
        "unit": "microseconds a message",
        "figures": [{**asdict(figure), "ratios": figure.ratios} for figure in figures],
    }
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
