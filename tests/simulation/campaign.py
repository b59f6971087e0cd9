"""A campaign: many seeds, shared out over processes, and a summary of what happened."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tests.simulation.coverage import STATES, Coverage
from tests.simulation.fault_kinds import FAULT_KINDS

SUMS = ("steps", "virtual_s", "cpu_s", "messages", "acknowledged", "outages", "failovers")
MAX_NAMED = 12
"""Combinations of a fault and a state that are named because they never happened."""
ROOT = Path(__file__).parents[2]


@dataclass
class Summary:
    """The sums of a campaign."""

    runs: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    messages: int = 0
    acknowledged: int = 0
    outages: int = 0
    """Outages of the primary and of the secondary."""
    runs_with_outage: int = 0
    failovers: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    coverage: Coverage = field(default_factory=Counter)
    violations: dict[int, list[str]] = field(default_factory=dict)
    """The broken promises by seed."""

    def add(self, run: dict[str, Any]) -> None:
        self.runs += 1
        for name in SUMS:
            setattr(self, name, getattr(self, name) + run[name])
        self.runs_with_outage += run["outages"] > 0
        self.faults.update(run["faults"])
        for kind, state, number in run["coverage"]:
            self.coverage[kind, state] += number
        if run["violations"]:
            self.violations[run["seed"]] = run["violations"]

    def to_json(self) -> dict[str, Any]:
        """Return the sums as JSON. Those of several campaigns can be added up."""
        return {
            "runs": self.runs,
            "runs_with_outage": self.runs_with_outage,
            "outages": self.outages,
            "failovers": self.failovers,
            "steps": self.steps,
            "virtual_hours": round(self.virtual_s / 3600, 2),
            "cpu_s": round(self.cpu_s, 1),
            "messages": self.messages,
            "acknowledged": self.acknowledged,
            "faults": dict(sorted(self.faults.items())),
            "violations": {
                str(seed): violations for seed, violations in sorted(self.violations.items())
            },
        }

    def text(self) -> str:
        lines = [
            f"{self.runs:,} runs, {self.runs_with_outage:,} of them with an outage",
            f"{self.outages:,} outages, {self.failovers:,} failovers of processes",
            f"{self.steps:,} steps",
            f"{self.virtual_s / 3600:,.1f} virtual hours",
            f"{1000 * self.cpu_s / max(1, self.runs):.0f} ms of CPU for each run",
            f"{self.messages:,} messages, {self.acknowledged:,} acknowledged",
            "",
            f"{'faults':<28} {'count':>8}  " + " ".join(f"{state:>9}" for state in STATES),
        ]
        for kind, number in sorted(self.faults.items()):
            cells = " ".join(f"{self.coverage[kind, state]:>9,}" for state in STATES)
            lines.append(f"{kind:<28} {number:>8,}  {cells}")
        missing = [
            f"{kind} while {state}"
            for kind in FAULT_KINDS
            for state in STATES
            if not self.coverage[kind, state]
        ]
        if missing:
            names = ", ".join(missing[:MAX_NAMED]) + (", …" if len(missing) > MAX_NAMED else "")
            lines.append(f"{len(missing)} combinations never happened: {names}")
        lines.append("")
        for seed, violations in sorted(self.violations.items()):
            lines += [f"seed {seed}: {violation}" for violation in violations]
        lines.append(f"{len(self.violations)} runs broke a promise")
        return "\n".join(lines)


def first_missing(first: int, done: set[int]) -> int:
    """Return the first seed that was not run. Processes differ in speed, so some after it may have
    been run."""
    return next(seed for seed in count(first) if seed not in done)


def append_summary(file: Path, summary: Summary, first: int, seeds: int) -> None:
    """Append a line of JSON for a campaign to a file. `seeds` is the number that was asked for."""
    line = {"commit": _commit(), "first": first, "seeds": seeds, **summary.to_json()}
    with file.open("a") as output:
        output.write(json.dumps(line) + "\n")


def _commit() -> str:
    """Return the commit that is checked out, with a `+` if files were changed since."""
    commands = ("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "-uno")
    commit, changes = (
        subprocess.run(["git", *command], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        for command in commands
    )
    return commit.stdout.strip() + ("+" if changes.stdout.strip() else "")


def worker(*arguments: object, root: Path = ROOT) -> "subprocess.Popen[str]":
    """Start a process that runs simulations, with the code below `root`. It forks others: end it
    with `stop`."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.simulation.worker", *map(str, arguments)],
        cwd=root,
        env={
            **os.environ,
            "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
            "PYTHONPATH": str(root / "src"),
        },
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def stop(process: "subprocess.Popen[str]") -> None:
    """End a process that runs simulations, and those that it has forked."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def run_seeds(
    first: int, seeds: int, processes: int, *, biased: bool = False
) -> Iterator[dict[str, Any]]:
    """Run seeds from `first` on in some processes, and yield the result of each run. With `biased`
    some of them are replaced by alternatives with faults that were rare so far."""
    last, command = first + seeds, "biased" if biased else "range"
    workers = [worker(command, first + index, last, processes) for index in range(processes)]
    try:
        with selectors.DefaultSelector() as selector:
            for each in workers:
                assert each.stdout is not None
                selector.register(each.stdout, selectors.EVENT_READ, each)
            while selector.get_map():
                for key, _ in selector.select():
                    line = key.fileobj.readline()  # type: ignore[union-attr]
                    if line:
                        yield json.loads(line)
                    else:
                        selector.unregister(key.fileobj)
        if any(each.wait() != 0 for each in workers):
            raise RuntimeError("a process that runs simulations has failed")
    finally:
        for each in workers:
            stop(each)
