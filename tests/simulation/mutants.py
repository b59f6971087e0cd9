"""Plants defects in a copy of the code, and counts the seeds until the simulation finds each.

`python -m tests.simulation.mutants --seeds 300 [NAME…]`. A defect that is not found shows a missing
check, or a kind of load or fault that the plans lack.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.campaign import ROOT


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect: a text of a source file, and what replaces it."""

    file: str
    text: str
    replacement: str


MUTANTS = {
    "settle before the destination accepts": Mutant(
        "spark/destination_sender.py",
        "            return self._sender.post(payload, message_format",
        "            self._recorder.delivered(self._path, messages)\n"
        "            self._recorder._settler.finish()\n"
        "            return self._sender.post(payload, message_format",
    ),
    "reply before the commit": Mutant(
        "emulator/runtime.py",
        "        self.meter.save()\n        self.store.commit()\n",
        "        for reply in self._replies:\n            reply()\n"
        "        for connection in self._unflushed:\n            connection.flush()\n"
        "        self._replies, self._unflushed = [], {}\n"
        "        self.meter.save()\n        self.store.commit()\n",
    ),
    "commit without a sync": Mutant(
        "emulator/storage/schema.py", "PRAGMA synchronous = FULL", "PRAGMA synchronous = OFF"
    ),
    "pull a queue for the error of a caller": Mutant(
        "pairing/failures.py",
        "    return BacklogFailure.MESSAGE_REJECTED\n",
        "    return BacklogFailure.QUEUE_UNAVAILABLE\n",
    ),
    "take an expired lock for valid": Mutant(
        "spark/destination_sender.py",
        "        min_locked_until = self._min_locked_until()\n        if not self._late_sessions",
        "        min_locked_until = 0\n        if not self._late_sessions",
    ),
    "forget the hold in failback": Mutant(
        "pairing/health.py",
        "        if self.hold_until is not None and now < self.hold_until:\n"
        "            return Route.HOLD\n",
        "",
    ),
    "ignore sends in flight in failback": Mutant(
        "pairing/health.py", "if empty and idle else 0", "if empty else 0"
    ),
    "send to the primary while draining": Mutant(
        "pairing/health.py",
        "        if self.status in (PathStatus.HEALTHY, PathStatus.SUSPECT):\n"
        "            return Route.PRIMARY\n",
        "        if self.status is not PathStatus.FAILOVER:\n            return Route.PRIMARY\n",
    ),
    "let a message pass an older one of its session": Mutant(
        "syphon/session_order.py",
        "return not self._all_held and session not in self._held",
        "return True",
    ),
    "report a message as not sent that was transferred": Mutant(
        "pairing/outcomes.py",
        "return SendOutcome.UNKNOWN if position in self.transferred else SendOutcome.NOT_SENT",
        "return SendOutcome.NOT_SENT",
    ),
    "say drained although messages are left": Mutant(
        "syphon/drained_check.py",
        "self.not_receivable = not self._emptiness.are_empty()",
        "self.not_receivable = not self._emptiness.are_empty() and False",
    ),
    "forget message ids in duplicate detection": Mutant(
        "emulator/storage/duplicates.py",
        "            return True\n",
        "            return False\n",
    ),
    "forget a poll that ends with its query in the ledger": Mutant(
        "spark/long_polls.py",
        "        for poll in polls:\n            self._record_empty_poll(poll)\n",
        "",
    ),
    "stay draining if peeks are slow": Mutant(
        "pairing/health.py",
        "if now >= self.hold_until and not is_unused:",
        "if now >= self.hold_until:",
    ),
}


def source_of(mutant: Mutant, root: Path = ROOT) -> Path:
    return root / "src" / "pairbus" / mutant.file


def run(mutant: Mutant, first: int, seeds: int) -> tuple[int, str | None]:
    """Return the number of seeds that were run, and the first violation."""
    with tempfile.TemporaryDirectory(prefix="pairbus-mutant-") as folder:
        root = Path(folder)
        shutil.copytree(ROOT / "src", root / "src")
        shutil.copytree(ROOT / "tests" / "simulation", root / "tests" / "simulation")
        source = source_of(mutant, root)
        source.write_text(source.read_text().replace(mutant.text, mutant.replacement))
        arguments = ["range", str(first), str(first + seeds), "1"]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.simulation.worker", *arguments],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONHASHSEED": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        count = 0
        with process.stdout:
            for count, line in enumerate(process.stdout, start=1):
                result = json.loads(line)
                if result["violations"]:
                    process.kill()
                    process.wait()
                    return count, f"seed {result['seed']}: {result['violations'][0]}"
        if process.wait() != 0:
            return count, "the process failed"
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
