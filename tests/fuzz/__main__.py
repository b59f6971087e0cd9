"""`python -m tests.fuzz --seconds 60 [--seed N]`."""

import argparse
import random
import sys

from tests.fuzz.run import fuzz


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="how long to look (default: 60)")
    parser.add_argument("--iterations", type=int, help="how many inputs to check")
    parser.add_argument("--seed", type=int, help="where chance starts (default: by chance)")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="check this input of the seed")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    seconds = options.seconds
    if seconds is None and options.iterations is None:
        seconds = 60.0
    print(f"seed {seed}", flush=True)
    checked, failure = fuzz(seed, iterations=options.iterations, seconds=seconds, only=options.only)
    if failure is None:
        print(f"{checked} inputs, no failure")
        return 0
    print(f"input {failure.number} of {checked}: {failure}")
    return 1


sys.exit(main())
