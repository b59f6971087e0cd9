"""Counts instructions with callgrind, a tool of valgrind.

Other programs and the speed of the processor hardly change their number. Instructions of the
kernel, which sends and receives the bytes, are not counted.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.child_process import ChildProcess
from benchmarks.counted_sender import COUNTED
from benchmarks.harness import Unit
from benchmarks.pairing import NamespaceAddress

INSTRUCTIONS = Unit("instructions per message, healthy", digits=0)
SENDS = 320
_TOTALS = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


def can_count() -> bool:
    """Return whether valgrind is installed."""
    return all(map(shutil.which, ("valgrind", "callgrind_control")))


def count_instructions(module: str, *arguments: str) -> tuple[str, list[int]]:
    """Run a module under callgrind. It writes a line, waits for a line with `wait_for_line`, and
    makes its counted calls. Return the line, and the number of instructions of each counted call.
    """
    with tempfile.TemporaryDirectory("-callgrind") as folder:
        counts = Path(folder) / "counts"
        tool = [
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            "--instr-atstart=no",  # the start would take minutes
            f"--toggle-collect={COUNTED}",
            f"--dump-after={COUNTED}",
            f"--callgrind-out-file={counts}",
        ]
        with ChildProcess(
            module, *arguments, tool=tool, environment={**os.environ, "PYTHONHASHSEED": "0"}
        ) as process:
            line = process.read_line()
            if not line:
                raise RuntimeError(f"{module} did not start. Its error is above.")
            subprocess.run(
                ["callgrind_control", "--instr=on", str(process.pid)],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            process.write_line("go")
        totals = [_total(file) for file in _in_order(counts)]
    if not totals or not all(totals):
        raise RuntimeError(f"callgrind has counted nothing in {module}.")
    return line, totals


def _in_order(counts: Path) -> list[Path]:
    """Return the files of the counted calls. Each has a number."""
    files = counts.parent.glob(f"{counts.name}.*")
    return sorted(files, key=lambda file: int(file.suffix[1:]))


def _total(file: Path) -> int:
    totals = _TOTALS.search(file.read_text())
    return 0 if totals is None else int(totals[1])


def instructions_per_send(
    primary: NamespaceAddress,
    secondary: NamespaceAddress,
    options: Mapping[str, Any],
    *,
    providers: bool = False,
) -> float:
    """Return the number of instructions of a healthy single send. `providers`: the application has
    the providers of the SDK of OpenTelemetry."""
    _, (total,) = count_instructions(
        "benchmarks.counted_sender",
        primary.connection_string,
        secondary.connection_string,
        json.dumps(dict(options)),
        "providers" if providers else "nothing",
        str(SENDS),
    )
    return total / SENDS
