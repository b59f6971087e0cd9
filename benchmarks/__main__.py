"""Run the benchmarks: `python -m benchmarks [SUBJECT …] [--json FILE] [--rounds N]`.

Says on stderr which subject is under way. Each subject is written to FILE when it is done, in place
of what it brought before; the others stay. A subject that fails leaves its figures as they were,
and the next one runs; the exit status is 1 then.
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

from benchmarks import amqp_engine, cost, emulator, ledger, pairing, syphon
from benchmarks.harness import Figure, table
from benchmarks.results import Taken, keep, settings_of
from benchmarks.surroundings import load, surroundings

Measure = Callable[[int], list[Figure]]

SUBJECTS: dict[str, tuple[ModuleType, Measure]] = {
    "engine": (amqp_engine, amqp_engine.figures),
    "emulator": (emulator, emulator.figures),
    "pairing": (pairing, pairing.figures),
    "ledger": (ledger, lambda rounds: ledger.figures()),
    "syphon": (syphon, syphon.figures),
    "cost": (cost, cost.figures),
}


def say(what: str) -> None:
    print(f"benchmarks: {what}", file=sys.stderr, flush=True)


def measure(subject: str, rounds: int, after: str | None) -> Taken:
    module, figures = SUBJECTS[subject]
    before, where = load(), surroundings()
    began, when = perf_counter(), datetime.now(UTC)
    found = figures(rounds)
    return Taken(
        about=inspect.getdoc(module) or "",
        when=when.isoformat(timespec="seconds"),
        seconds=round(perf_counter() - began, 1),
        load=before,
        after=after,
        rounds=rounds,
        settings=settings_of(os.environ),
        surroundings=where,
        figures=found,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "subjects", nargs="*", metavar="subject", help=f"{', '.join(SUBJECTS)}; without one: all"
    )
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results.json"))
    parser.add_argument("--rounds", type=int, default=7, help="of which the fastest counts")
    options = parser.parse_args()
    for subject in options.subjects:
        if subject not in SUBJECTS:
            parser.error(f"there is no subject {subject!r}: {', '.join(SUBJECTS)}")
    wanted = list(dict.fromkeys(options.subjects or SUBJECTS))
    done: dict[str, Taken] = {}
    failed: list[str] = []
    previous: str | None = None
    for number, subject in enumerate(wanted, start=1):
        say(f"{subject} ({number} of {len(wanted)}) begins; load {load():.2f}")
        try:
            done[subject] = measure(subject, options.rounds, previous)
        except Exception:  # noqa: BLE001  the other subjects are still to be had
            traceback.print_exc()
            failed.append(subject)
            say(f"{subject} failed: its figures stay as they were")
        else:
            keep(options.json, subject, done[subject])
            say(f"{subject} took {done[subject].seconds:.0f} s")
        previous = subject
    if done:
        print(table({subject: taken.figures for subject, taken in done.items()}))
        print(f"\nwritten to {options.json}")
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
