"""Stores plans that find planted defects: `python -m tests.simulation.regressions NAME…`."""

import argparse
import json

from tests.simulation.campaign import stop, worker
from tests.simulation.mutants import planted
from tests.simulation.planted_defects import MUTANTS
from tests.simulation.stored_plans import FOLDER


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.regressions")
    parser.add_argument("names", nargs="+", help="Store plans for mutants with these words.")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=100_000)
    options = parser.parse_args()
    for name, mutant in MUTANTS.items():
        if not any(word in name for word in options.names):
            continue
        with planted(mutant) as root:
            process = worker("find", options.first, options.first + options.seeds, root=root)
            assert process.stdout is not None
            try:
                line = process.stdout.readline()
            finally:
                stop(process)
        if not line:
            print(f"{name}: not found")
            continue
        found = {"defect": name, **json.loads(line)}
        file = FOLDER / f"{name.replace(' ', '-')}.json"
        file.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{name}: {found['rule']}, seed {found['plan']['seed']}", flush=True)


if __name__ == "__main__":
    main()
