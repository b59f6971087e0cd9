"""A campaign: many seeds, shared out over processes, and a summary of what happened."""

import json
import os
import selectors
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STATES = ("healthy", "suspect", "failover", "draining")


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
    faults: Counter[str] = field(default_factory=Counter)
    coverage: Counter[tuple[str, str]] = field(default_factory=Counter)
    violations: dict[int, list[str]] = field(default_factory=dict)
    """The broken promises by seed."""

    def add(self, run: dict[str, Any]) -> None:
        self.runs += 1
        for name in ("steps", "virtual_s", "cpu_s", "messages", "acknowledged", "outages"):
            setattr(self, name, getattr(self, name) + run[name])
        self.faults.update(run["faults"])
        for kind, state, count in run["coverage"]:
            self.coverage[kind, state] += count
        if run["violations"]:
            self.violations[run["seed"]] = run["violations"]

    def text(self) -> str:
        lines = [
            f"{self.runs:,} runs, {self.outages:,} processes failed over, {self.steps:,} steps",
            f"{self.virtual_s / 3600:,.1f} virtual hours",
            f"{1000 * self.cpu_s / max(1, self.runs):.0f} ms of CPU for each run",
            f"{self.messages:,} messages, {self.acknowledged:,} acknowledged",
            "",
            f"{'faults':<28} {'count':>8}  " + " ".join(f"{state:>9}" for state in STATES),
        ]
        for kind, count in sorted(self.faults.items()):
            cells = " ".join(f"{self.coverage[kind, state]:>9,}" for state in STATES)
            lines.append(f"{kind:<28} {count:>8,}  {cells}")
        lines.append("")
        for seed, violations in sorted(self.violations.items()):
            lines += [f"seed {seed}: {violation}" for violation in violations]
        lines.append(f"{len(self.violations)} runs broke a promise")
        return "\n".join(lines)


def worker(*arguments: object) -> "subprocess.Popen[str]":
    """Start a process that runs simulations."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.simulation.worker", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")},
        stdout=subprocess.PIPE,
        text=True,
    )


def run_seeds(first: int, count: int, processes: int) -> Iterator[dict[str, Any]]:
    """Run seeds from `first` on in some processes, and yield the result of each run."""
    last = first + count
    workers = [worker("range", first + index, last, processes) for index in range(processes)]
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
            each.kill()
            each.communicate()
