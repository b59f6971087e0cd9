"""Run the benchmarks: `python -m benchmarks [SUBJECT …] [--json FILE] [--rounds N]`."""

import argparse
from pathlib import Path

from benchmarks import amqp_engine, broker, cost, ledger, pairing, syphon
from benchmarks.harness import save, tables

SUBJECTS = {
    "engine": amqp_engine.figures,
    "broker": broker.figures,
    "pairing": pairing.figures,
    "syphon": syphon.figures,
    "cost": cost.figures,
    "ledger": lambda rounds: ledger.figures(),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument(
        "subjects", nargs="*", metavar="subject", help=f"{', '.join(SUBJECTS)}; without one: all"
    )
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results.json"))
    parser.add_argument("--rounds", type=int, default=7, help="of which the fastest counts")
    options = parser.parse_args()
    for subject in options.subjects:
        if subject not in SUBJECTS:
            parser.error(f"there is no subject {subject!r}: {', '.join(SUBJECTS)}")
    figures = [
        figure
        for subject in options.subjects or SUBJECTS
        for figure in SUBJECTS[subject](options.rounds)
    ]
    print(tables(figures))
    save(figures, options.json)
    print(f"\nwritten to {options.json}")


if __name__ == "__main__":
    main()
