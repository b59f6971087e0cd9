"""Run the benchmarks: `python -m benchmarks [SUBJECT …] [--json FILE] [--rounds N]`.

Progress is printed to stderr. The result of each subject replaces its previous result in FILE as
soon as the subject has finished; the results of other subjects are kept. If a subject fails, its
previous result is kept, the next subject runs, and the exit status is 1.
"""

import argparse
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from types import ModuleType

from benchmarks import (
    amqp_engine,
    console,
    cost,
    emulator,
    ledger,
    pairing,
    start,
    syphon,
    telemetry,
    throttling,
)
from benchmarks.harness import Figure, table
from benchmarks.results import SubjectResult, bench_settings, save
from benchmarks.surroundings import load, surroundings

Measure = Callable[[int], list[Figure]]

SUBJECTS: dict[str, tuple[ModuleType, Measure]] = {
    "engine": (amqp_engine, amqp_engine.figures),
    "emulator": (emulator, emulator.figures),
    "pairing": (pairing, pairing.figures),
    "ledger": (ledger, lambda rounds: ledger.figures()),
    "telemetry": (telemetry, lambda rounds: telemetry.figures()),
    "start": (start, start.figures),
    "syphon": (syphon, syphon.figures),
    "throttling": (throttling, throttling.figures),
    "cost": (cost, cost.figures),
    "console": (console, lambda rounds: console.figures()),
}


def print_progress(text: str) -> None:
    print(f"benchmarks: {text}", file=sys.stderr, flush=True)


def measure(subject: str, rounds: int, after: str | None) -> SubjectResult:
    """Run a subject. `after` is the subject that ran before it, if any."""
    module, figures = SUBJECTS[subject]
    load_before, machine = load(), surroundings()
    begin, when = perf_counter(), datetime.now(UTC)
    measured = figures(rounds)
    return SubjectResult(
        about=inspect.getdoc(module) or "",
        when=when.isoformat(timespec="seconds"),
        seconds=round(perf_counter() - begin, 1),
        load=load_before,
        after=after,
        rounds=rounds,
        settings=bench_settings(os.environ),
        surroundings=machine,
        figures=measured,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "subjects", nargs="*", metavar="subject", help=f"{', '.join(SUBJECTS)}; default: all"
    )
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results.json"))
    parser.add_argument(
        "--rounds", type=int, default=7, help="number of rounds; the fastest counts"
    )
    options = parser.parse_args()
    for subject in options.subjects:
        if subject not in SUBJECTS:
            parser.error(f"unknown subject {subject!r}; choose from {', '.join(SUBJECTS)}")
    selected = list(dict.fromkeys(options.subjects or SUBJECTS))
    done: dict[str, SubjectResult] = {}
    failed: list[str] = []
    previous: str | None = None
    for number, subject in enumerate(selected, start=1):
        print_progress(f"{subject} ({number} of {len(selected)}) started; load {load():.2f}")
        try:
            done[subject] = measure(subject, options.rounds, previous)
        except Exception:  # noqa: BLE001  the next subject must run
            traceback.print_exc()
            failed.append(subject)
            print_progress(f"{subject} failed; its previous result is kept")
        else:
            save(options.json, subject, done[subject])
            print_progress(f"{subject} took {done[subject].seconds:.0f} s")
        previous = subject
    if done:
        print(table({subject: result.figures for subject, result in done.items()}))
        print(f"\nWrote {options.json}.")
    if failed:
        print_progress(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
