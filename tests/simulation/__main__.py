"""`make simulate`: run many seeds, or replay one."""

import argparse
import os
import signal
import sys
from pathlib import Path
from secrets import randbelow
from time import monotonic

from tests.simulation.campaign import Summary, append_summary, first_missing, run_seeds, worker
from tests.simulation.coverage import ALTERNATIVE

REPORT_S = 30.0
MAX_SHRUNK = 3
"""Failing seeds that are shrunk at the end of a campaign."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="Run so many seeds.")
    parser.add_argument("--first", type=int, help="Start with this seed. Default: any.")
    parser.add_argument("--seed", type=int, help="Replay one seed, and print its story.")
    parser.add_argument("--bytes", action="store_true", help="Show every transfer of bytes.")
    parser.add_argument("--shrink", action="store_true", help="Shrink the seed first.")
    parser.add_argument(
        "--summary", type=Path, metavar="FILE", help="Append the sums to a file, as a line of JSON."
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def show(*arguments: object) -> None:
    """Print the output of a process that runs simulations."""
    process = worker(*arguments)
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
    process.wait()


def main() -> None:
    options = parse()
    if options.seed is not None:
        show("shrink" if options.shrink else "replay", options.seed, "bytes" * options.bytes)
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    first = randbelow(2**40) if options.first is None else options.first
    print(f"Seeds {first} to {first + options.seeds - 1}, in {options.processes} processes")
    summary, began, reported = Summary(), monotonic(), monotonic()
    done: set[int] = set()
    try:
        for run in run_seeds(first, options.seeds, options.processes, biased=True):
            summary.add(run)
            done.add(run["seed"] % ALTERNATIVE)
            for violation in run["violations"]:
                print(f"seed {run['seed']}: {violation}", flush=True)
            if monotonic() - reported > REPORT_S:
                reported = monotonic()
                rate = summary.runs / (reported - began) * 60
                print(f"{summary.runs:,} runs, {rate:,.0f} a minute", flush=True)
    except KeyboardInterrupt:
        following, last = first_missing(first, done), first + options.seeds
        print(f"\nInterrupted. Go on with: --first {following} --seeds {last - following}")
    minutes = (monotonic() - began) / 60
    print()
    print(summary.text())
    print(
        f"{summary.runs / minutes:,.0f} runs and {summary.outages / minutes:,.0f} outages a minute"
    )
    if options.summary is not None:
        append_summary(options.summary, summary, first, options.seeds)
    for seed in sorted(summary.violations)[:MAX_SHRUNK]:
        print()
        show("shrink", seed)
    sys.exit(bool(summary.violations))


if __name__ == "__main__":
    main()
