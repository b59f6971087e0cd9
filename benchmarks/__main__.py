"""Run the benchmarks: `python -m benchmarks [--json FILE] [--rounds N]`."""

import argparse
from pathlib import Path

from benchmarks import amqp_engine
from benchmarks.harness import save, table


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results.json"))
    parser.add_argument("--rounds", type=int, default=7, help="of which the fastest counts")
    options = parser.parse_args()
    figures = amqp_engine.figures(options.rounds)
    print(table(figures))
    save(figures, options.json)
    print(f"\nwritten to {options.json}")


if __name__ == "__main__":
    main()
