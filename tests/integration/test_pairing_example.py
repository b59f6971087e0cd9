"""The pairing example runs without errors."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "examples" / "pairing" / "demo.py"


def test_example_loses_no_message() -> None:
    demo = subprocess.run(
        [sys.executable, DEMO], capture_output=True, text=True, timeout=200, check=False
    )

    assert (demo.returncode, demo.stderr) == (0, "")
    assert "healthy → failover" in demo.stdout
    assert "failover → healthy" in demo.stdout
    assert demo.stdout.endswith("Nothing was lost.\n")
