"""Runs simulations in this process, and prints one line of JSON for each.

It is a process of its own, because it replaces the standard library's time and threads.
"""

import gc
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from time import process_time
from typing import Any, TextIO

from tests.simulation import standard_library

standard_library.install()

from tests.simulation.coverage import Coverage, choose_plan  # noqa: E402
from tests.simulation.plan import Plan  # noqa: E402
from tests.simulation.seeded_plans import make_plan  # noqa: E402
from tests.simulation.shrink import Shrinker  # noqa: E402
from tests.simulation.simulation import Result, run_plan  # noqa: E402
from tests.simulation.stored_plans import load  # noqa: E402

RUNS_OF_A_PROCESS = 200
"""Simulations of one process. Then another is forked, because garbage is not collected."""
_BYTES = re.compile(r"#\d+ [<>] \d+$")


def run_in_forks(seeds: Sequence[int], *, biased: bool = False) -> None:
    """Run seeds in processes that are forked from this one, which has imported everything."""
    coverage: Coverage = Counter()
    for start in range(0, len(seeds), RUNS_OF_A_PROCESS):
        read_end, write_end = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(read_end)
            with os.fdopen(write_end, "w") as output:
                run_seeds(
                    seeds[start : start + RUNS_OF_A_PROCESS], output, coverage if biased else None
                )
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end) as lines:
            for line in lines:
                add_coverage(coverage, json.loads(line))
                print(line, end="", flush=True)
        _, status = os.waitpid(process, 0)
        if status != 0:
            raise RuntimeError("a process that runs simulations has failed")


def add_coverage(coverage: Coverage, run: dict[str, Any]) -> None:
    for kind, state, count in run["coverage"]:
        coverage[kind, state] += count


def run_seeds(
    seeds: Iterable[int], output: TextIO = sys.stdout, coverage: Coverage | None = None
) -> None:
    """Run seeds, or alternatives that are rare according to the coverage so far."""
    gc.disable()
    for seed in seeds:
        began = process_time()
        plan = make_plan(seed) if coverage is None else choose_plan(seed, coverage)
        line = to_json(run_plan(plan), process_time() - began)
        if coverage is not None:
            add_coverage(coverage, line)
        print(json.dumps(line), file=output, flush=True)


def to_json(result: Result, cpu_s: float) -> dict[str, Any]:
    return {
        "seed": result.seed,
        "violations": [str(violation) for violation in result.violations],
        "digest": result.digest,
        "steps": result.steps,
        "virtual_s": result.virtual_s,
        "cpu_s": cpu_s,
        "messages": result.messages,
        "acknowledged": result.acknowledged,
        "outages": result.outages,
        "failovers": result.failovers,
        "faults": dict(result.faults),
        "coverage": [[kind, state, count] for (kind, state), count in result.coverage.items()],
    }


def replay(plan: Plan, *, with_bytes: bool = False) -> Result:
    """Run a plan, and print its story."""
    result = run_plan(plan, keep_trace=True)
    print(plan.describe())
    print()
    for line in result.trace:
        if with_bytes or not _BYTES.search(line):
            print(line)
    print()
    print(f"seed {plan.seed}, trace {result.digest}")
    for violation in result.violations:
        print(f"VIOLATION {violation}")
    if not result.violations:
        print("No promise was broken.")
    return result


def shrink(seed: int) -> None:
    """Shrink the plan of a failing seed, and print the story of what is left."""
    plan = make_plan(seed)
    result = run_plan(plan)
    if not result.violations:
        print(f"seed {seed}: no promise was broken")
        return
    shrinker = Shrinker(plan, {violation.rule for violation in result.violations})
    small = shrinker.shrink()
    print(
        f"seed {seed} shrunk in {shrinker.runs} runs: "
        f"{len(plan.faults)} -> {len(small.faults)} faults, "
        f"{plan.messages} -> {small.messages} messages"
    )
    replay(small)


def run_stored(files: Iterable[str]) -> None:
    """Run stored plans."""
    for file in files:
        print(json.dumps(to_json(run_plan(load(Path(file)).plan), 0.0)), flush=True)


def find(first: int, last: int) -> None:
    """Print the plan of the first seed that breaks a promise, after it was shrunk."""
    for seed in range(first, last):
        plan = make_plan(seed)
        if violations := run_plan(plan).violations:
            rule = violations[0].rule
            small = Shrinker(plan, {rule}).shrink()
            print(json.dumps({"rule": rule, "plan": asdict(small)}), flush=True)
            return


def main() -> None:
    command, *numbers = sys.argv[1:]
    if command == "stored":
        run_stored(numbers)
    elif command == "find":
        find(*map(int, numbers))
    elif command == "replay":
        replay(make_plan(int(numbers[0])), with_bytes="bytes" in numbers)
    elif command == "shrink":
        shrink(int(numbers[0]))
    elif command == "seeds":
        run_seeds(map(int, numbers))
    else:
        first, last, step = map(int, numbers)
        run_in_forks(range(first, last, step), biased=command == "biased")


if __name__ == "__main__":
    main()
