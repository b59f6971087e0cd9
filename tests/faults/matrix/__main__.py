"""`python -m tests.faults.matrix --minutes 30 [--seed 7] [--run 3] [--cell primary/kill/filling]`.

Exit status 0: nothing was lost, and all is explained. 1: not so, and the folder of the run is kept.
"""

import argparse
import contextlib
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from tests.faults.matrix.plan import BLOCK, Cell, Run, make_run, plan
from tests.faults.matrix.report import Tally, line_of
from tests.faults.matrix.run import Course
from tests.faults.matrix.world import World

COMMAND = "python -m tests.faults.matrix"


def main() -> int:
    options = _options()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    tally = Tally()
    folder = Path(tempfile.mkdtemp(prefix="pairbus-matrix-"))
    failed = True
    try:
        with contextlib.suppress(KeyboardInterrupt):
            _go(_runs(seed, options), options.minutes * 60, folder, tally)
        failed = False
    except Failed as exc:
        again = f"--seed {seed} --run {exc.run.number}"
        again += "".join(f" --cell {cell}" for cell in options.cell)
        print(f"\n{exc}\nrepeat it with: {COMMAND} {again}\nits folder: {folder}")
    finally:
        print(f"\n{tally.text()}", flush=True)
        if not failed:
            shutil.rmtree(folder, ignore_errors=True)
    return int(failed)


class Failed(Exception):
    """A run that did not end as it should."""

    def __init__(self, run: Run, why: str) -> None:
        super().__init__(why)
        self.run = run


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="how long (default: 30)")
    parser.add_argument("--seed", type=int, help="where chance starts (default: by chance)")
    parser.add_argument("--run", type=int, metavar="NUMBER", help="this run of the seed alone")
    parser.add_argument(
        "--cell",
        type=Cell.parse,
        action="append",
        default=[],
        metavar="WHO/WHAT/WHEN",
        help="runs with this fault alone, or these; may be repeated",
    )
    return parser.parse_args()


def _runs(seed: int, options: argparse.Namespace) -> Iterator[Run]:
    runs = plan(seed)
    if options.cell:
        runs = (make_run(seed, number, options.cell) for number in count(1))
    return runs if options.run is None else islice(runs, options.run - 1, options.run)


def _go(runs: Iterator[Run], seconds: float, folder: Path, tally: Tally) -> None:
    """Runs, until the time is over. Each block of them is in a world of its own."""
    deadline = time.monotonic() + seconds
    for block in count(1):
        some = list(islice(runs, BLOCK))
        if not some or time.monotonic() > deadline:
            return
        home = folder / f"block-{block}"
        home.mkdir()
        with World(home) as world:
            for run in some:
                if time.monotonic() > deadline:
                    return
                _carry_out(world, run, tally)
        shutil.rmtree(home, ignore_errors=True)


def _carry_out(world: World, run: Run, tally: Tally) -> None:
    try:
        result = Course(world, run).go()
    except Exception as exc:  # whatever it is, it is to be repeated
        faults = " ".join(map(str, run.cells))
        why = f"run {run.number} ({faults}):\n{traceback.format_exc()}\n{world.said()}"
        raise Failed(run, why) from exc
    tally.add(result)
    print(line_of(result), flush=True)
    if result.verdict.problems:
        raise Failed(run, "\n".join(result.verdict.problems))


if __name__ == "__main__":
    sys.exit(main())
