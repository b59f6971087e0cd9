"""Counts the instructions of a single send with callgrind, a tool of valgrind.

Other programs and the speed of the processor hardly change their number. Instructions of the
kernel, which sends and receives the bytes, are not counted.
"""

import json
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


def instructions_per_send(
    primary: NamespaceAddress,
    secondary: NamespaceAddress,
    options: Mapping[str, Any],
    *,
    providers: bool = False,
) -> float:
    """Return the number of instructions of a healthy single send. `providers`: the application has
    the providers of the SDK of OpenTelemetry."""
    with tempfile.TemporaryDirectory("-callgrind") as folder:
        counts = Path(folder) / "counts"
        tool = [
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            "--instr-atstart=no",  # the start would take minutes
            f"--toggle-collect={COUNTED}",
            f"--callgrind-out-file={counts}",
        ]
        arguments = (
            primary.connection_string,
            secondary.connection_string,
            json.dumps(dict(options)),
            "providers" if providers else "nothing",
            str(SENDS),
        )
        with ChildProcess("benchmarks.counted_sender", *arguments, tool=tool) as process:
            if process.read_line() != "ready\n":
                raise RuntimeError("The counted sender did not start. Its error is above.")
            subprocess.run(
                ["callgrind_control", "--instr=on", str(process.pid)],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            process.write_line("go")
        totals = _TOTALS.search(counts.read_text())
    if totals is None or int(totals[1]) == 0:
        raise RuntimeError("callgrind has counted nothing.")
    return int(totals[1]) / SENDS
