"""The engine example runs."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "examples" / "engine" / "demo.py"


def test_demo_receives_every_message() -> None:
    demo = subprocess.run(
        [sys.executable, "-W", "error", DEMO],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert (demo.returncode, demo.stderr) == (0, "")
    assert "in order and unchanged: yes" in demo.stdout
    assert "message format 0x80013700, a Service Bus batch: 1 frame" in demo.stdout
