"""Plants defects in a copy of the code, and counts the seeds until the simulation finds each.

`python -m tests.simulation.mutants --seeds 300 [NAME…]`. A defect that is not found shows a missing
check, or a kind of load or fault that the plans lack.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.simulation.campaign import ROOT, stop, worker
from tests.simulation.planted_defects import MUTANTS, Mutant


def source_of(mutant: Mutant, root: Path = ROOT) -> Path:
    return root / "src" / "pairbus" / mutant.file


@contextmanager
def planted(mutant: Mutant) -> Iterator[Path]:
    """Return the folder of a copy of the code with a defect."""
    with tempfile.TemporaryDirectory(prefix="pairbus-mutant-") as folder:
        root = Path(folder)
        shutil.copytree(ROOT / "src", root / "src")
        shutil.copytree(ROOT / "tests" / "simulation", root / "tests" / "simulation")
        source = source_of(mutant, root)
        source.write_text(source.read_text().replace(mutant.text, mutant.replacement))
        yield root


def run(mutant: Mutant, first: int, seeds: int) -> tuple[int, str | None]:
    """Return the number of seeds that were run, and the first violation."""
    with planted(mutant) as root:
        process = worker("range", first, first + seeds, 1, root=root)
        assert process.stdout is not None
        count = 0
        try:
            for count, line in enumerate(process.stdout, start=1):
                result = json.loads(line)
                if result["violations"]:
                    return count, f"seed {result['seed']}: {result['violations'][0]}"
            if process.wait() != 0:
                return count, "the process failed"
        finally:
            stop(process)
        return count, None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="Run only mutants with these words.")
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--first", type=int, default=100_000)
    options = parser.parse_args()
    for name, mutant in MUTANTS.items():
        if options.names and not any(word in name for word in options.names):
            continue
        count, violation = run(mutant, options.first, options.seeds)
        outcome = f"not found in {count} seeds"
        if violation is not None:
            outcome = f"found after {count} seeds ({violation.splitlines()[0][:120]})"
        print(f"{name}: {outcome}", flush=True)


if __name__ == "__main__":
    main()
