"""`python -m tests.faults.matrix --minutes 30 [--seed 7] [--run 3] [--cell CELL] [--tier TIER]`.

Exit status: 0 no message was lost, and every duplicate is explained; 1 failed, and the folder of
the run is kept.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

from tests.faults.matrix.environment import MatrixEnvironment
from tests.faults.matrix.plan import BLOCK, TIERS, Cell, Run, make_run, plan
from tests.faults.matrix.report import MatrixTotals, summary_line
from tests.faults.matrix.run import OutageRun

COMMAND = "python -m tests.faults.matrix"


def main() -> int:
    options = _options()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C
    totals = MatrixTotals()
    folder = Path(tempfile.mkdtemp(prefix="pairbus-matrix-"))
    failed = True
    try:
        with contextlib.suppress(KeyboardInterrupt):
            _run_all(_runs(seed, options), options.minutes * 60, folder, totals)
        failed = False
    except FailedRun as exc:
        arguments = f"--seed {seed} --run {exc.run.number}"
        arguments += "".join(f" --cell {cell}" for cell in options.cell)
        arguments += "" if options.tier is None else f" --tier {options.tier}"
        print(f"\n{exc}\nRepeat it: {COMMAND} {arguments}\nFolder: {folder}")
    finally:
        print(f"\n{totals.text()}", flush=True)
        if not failed:
            shutil.rmtree(folder, ignore_errors=True)
    return int(failed)


class FailedRun(Exception):
    """Raised when a run fails."""

    def __init__(self, run: Run, reason: str) -> None:
        super().__init__(reason)
        self.run = run


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="time to run (default: 30)")
    parser.add_argument("--seed", type=int, help="seed of the random numbers (default: random)")
    parser.add_argument("--run", type=int, metavar="NUMBER", help="only this run of the seed")
    parser.add_argument(
        "--cell",
        type=Cell.parse,
        action="append",
        default=[],
        metavar="COMPONENT/FAULT/STAGE",
        help="only this fault; can be repeated",
    )
    parser.add_argument(
        "--tier",
        choices=TIERS,
        help="tier (default: PAIRBUS_TEST_TIER, or random)",
    )
    options = parser.parse_args()
    options.tier = options.tier or os.environ.get("PAIRBUS_TEST_TIER")
    return options


def _runs(seed: int, options: argparse.Namespace) -> Iterator[Run]:
    runs = plan(seed)
    if options.cell:
        runs = (make_run(seed, number, options.cell) for number in count(1))
    if options.tier is not None:
        runs = (replace(run, tier=options.tier) for run in runs)
    return runs if options.run is None else islice(runs, options.run - 1, options.run)


def _run_all(runs: Iterator[Run], seconds: float, folder: Path, totals: MatrixTotals) -> None:
    """Execute runs until the time is over. Each block of runs has its own environment."""
    deadline = time.monotonic() + seconds
    for block in count(1):
        block_runs = list(islice(runs, BLOCK))
        if not block_runs or time.monotonic() > deadline:
            return
        block_folder = folder / f"block-{block}"
        block_folder.mkdir()
        with MatrixEnvironment(block_folder) as environment:
            for run in block_runs:
                if time.monotonic() > deadline:
                    return
                _execute(environment, run, totals)
        shutil.rmtree(block_folder, ignore_errors=True)


def _execute(environment: MatrixEnvironment, run: Run, totals: MatrixTotals) -> None:
    try:
        result = OutageRun(environment, run).execute()
    except Exception as exc:  # the seed repeats any failure
        faults = " ".join(map(str, run.cells))
        reason = f"run {run.number} ({faults}):\n{traceback.format_exc()}\n{environment.output()}"
        raise FailedRun(run, reason) from exc
    totals.add(result)
    print(summary_line(result), flush=True)
    if result.verdict.problems:
        raise FailedRun(run, "\n".join(result.verdict.problems))


if __name__ == "__main__":
    sys.exit(main())
