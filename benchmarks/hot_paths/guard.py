"""Check the instructions of hot paths: `python -m benchmarks.hot_paths.guard [--keep]`.

A path that needs over 10 % more instructions for a message than the last kept figure fails.
`--keep` writes the figures of this run to `benchmarks/hot_paths/figures.json` instead.

Counts hardly depend on the load or the speed of a machine. They depend on the interpreter, and a
little on the processor, for which the C library selects its functions. So a figure is the ratio to
a fixed loop of Python code, which is counted in the same run, and figures are kept for each version
of the interpreter. Where none are kept for an interpreter, the figures are printed and nothing
fails.

To add a path, return it from a function like `benchmarks.hot_paths.drain.restore_and_forward`, and
call that in `benchmarks.hot_paths.process`.
"""

import argparse
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.instructions import can_count, count_instructions

FIGURES = Path(__file__).with_name("figures.json")
BOUND = 1.10
"""The largest allowed ratio to the kept figure, for a positive one."""
REFERENCE = "reference"


class CountedPath(NamedTuple):
    """The result of one path."""

    name: str
    messages: int
    baseline: str | None
    instructions: int

    @property
    def per_message(self) -> float:
        return self.instructions / self.messages


class Comparison(NamedTuple):
    """The figure of a path, and the one that was kept, if any."""

    name: str
    figure: float
    kept: float | None

    @property
    def failed(self) -> bool:
        # A path that needs fewer instructions than its baseline has a negative figure.
        return self.kept is not None and self.figure > self.kept + abs(self.kept) * (BOUND - 1)

    def __str__(self) -> str:
        text = f"{self.name:32}{self.figure:8.2f}"
        if self.kept is None:
            return f"{text}  nothing kept"
        change = (self.figure - self.kept) / abs(self.kept)
        return f"{text}  kept {self.kept:8.2f}  {change:+6.1%}{'  FAILED' if self.failed else ''}"


def interpreter() -> str:
    """Return the name under which figures are kept."""
    version = ".".join(platform.python_version_tuple()[:2])
    return f"{platform.python_implementation()} {version}, {platform.machine()}"


def count() -> list[CountedPath]:
    """Count the instructions of all paths."""
    line, totals = count_instructions("benchmarks.hot_paths.process")
    return [
        CountedPath(name, messages, baseline, total)
        for (name, messages, baseline), total in zip(json.loads(line), totals, strict=True)
    ]


def figures_of(paths: Sequence[CountedPath]) -> dict[str, float]:
    """Return the instructions of each path for a message, in loops of the reference. Those of its
    baseline are deducted. A baseline is not our code, and has no figure."""
    counts = {path.name: path.per_message for path in paths}
    left_out = {REFERENCE, *(path.baseline for path in paths)}
    return {
        path.name: round(
            (path.per_message - (counts[path.baseline] if path.baseline is not None else 0))
            / counts[REFERENCE],
            2,
        )
        for path in paths
        if path.name not in left_out
    }


def compare(figures: Mapping[str, float], kept: Mapping[str, float]) -> list[Comparison]:
    """Compare figures with those that were kept."""
    return [Comparison(name, figure, kept.get(name)) for name, figure in figures.items()]


def read_kept(file: Path | None = None) -> dict[str, dict[str, float]]:
    """Return the kept figures of each interpreter."""
    file = file or FIGURES
    kept: dict[str, dict[str, float]] = json.loads(file.read_text()) if file.exists() else {}
    return kept


def keep(figures: Mapping[str, float], file: Path | None = None) -> None:
    """Keep figures for this interpreter. Those of others stay."""
    kept = {**read_kept(file), interpreter(): dict(figures)}
    (file or FIGURES).write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the instructions of hot paths.")
    parser.add_argument("--keep", action="store_true", help="Keep the figures of this run.")
    options = parser.parse_args(arguments)
    if not can_count():
        print("valgrind is not installed. Run 'make setup-test', then try again.", file=sys.stderr)
        return 2
    figures = figures_of(count())
    kept = read_kept().get(interpreter())
    print(f"Instructions for a message, in loops of the reference ({interpreter()}):")
    comparisons = compare(figures, kept or {})
    for comparison in comparisons:
        print(comparison)
    if options.keep:
        keep(figures)
        print(f"Kept in {FIGURES.name}.")
        return 0
    if kept is None:
        print("No figures are kept for this interpreter, so nothing was compared.")
    failed = [comparison.name for comparison in comparisons if comparison.failed]
    if failed:
        print(
            f"More than {BOUND - 1:.0%} above the kept figure: {', '.join(failed)}. Make the code "
            'faster, or keep the new figures with: make instructions ARGS="--keep"',
            file=sys.stderr,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
