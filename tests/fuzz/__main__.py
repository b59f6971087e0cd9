"""Fuzz the AMQP engine: `python -m tests.fuzz --seconds 60 [--seed N]`."""

import argparse
import random
import sys

from tests.fuzz.run import fuzz


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="run for this long (default: 60)")
    parser.add_argument("--batches", type=int, help="run this number of batches of inputs")
    parser.add_argument("--seed", type=int, help="start from this seed (default: random)")
    parser.add_argument("--only", type=int, metavar="BATCH", help="run only this batch of the seed")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    seconds = options.seconds
    if seconds is None and options.batches is None:
        seconds = 60.0
    print(f"seed {seed}", flush=True)
    checked, failure = fuzz(seed, batches=options.batches, seconds=seconds, only=options.only)
    if failure is None:
        print(f"{checked} inputs, no failure")
        return 0
    print(failure)
    return 1


sys.exit(main())
