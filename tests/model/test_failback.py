"""The model of failback, checked by SPIN, and mistakes in it that SPIN must find."""

import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

MODEL = Path(__file__).with_name("failback.pml")
NO_FAULTS = {
    "OUTAGES": 0,
    "FAILOVERS": 0,
    "EXPIRED_HOLDS": 0,
    "KILLS": 0,
    "LOST_LOCKS": 0,
    "LOST_ANSWERS": 0,
    "FAILED_PEEKS": 0,
    "MISSED_MESSAGES": 0,
}
ONE_PATH = NO_FAULTS | {"PATHS": 1, "OUTAGES": 1, "FAILOVERS": 1}
TWO_PATHS = NO_FAULTS | {"PATHS": 2, "OUTAGES": 1}
CONFIGURATIONS = {
    "one path, outage and failover": ONE_PATH | {"EXPIRED_HOLDS": 1, "LOST_ANSWERS": 1},
    "three messages": ONE_PATH | {"MESSAGES": 3, "EXPIRED_HOLDS": 1},
    "peeks that fail or miss messages": ONE_PATH | {"FAILED_PEEKS": 1, "MISSED_MESSAGES": 2},
    "killed syphon": ONE_PATH | {"KILLS": 2, "LOST_ANSWERS": 1},
    "two syphons, killed and frozen": ONE_PATH
    | {"OUTAGES": 0, "SYPHONS": 2, "KILLS": 1, "LOST_LOCKS": 1},
    "two paths": TWO_PATHS,
    "two paths, expired hold": TWO_PATHS | {"EXPIRED_HOLDS": 1},
    "two paths, killed syphon": TWO_PATHS | {"KILLS": 1},
}
PROGRESS_CONFIGURATIONS = [
    name
    for name in CONFIGURATIONS
    if name
    not in ("two paths, expired hold", "two paths, killed syphon", "two syphons, killed and frozen")
]
"""Progress takes many times the time and memory of order: not those with millions of states."""
MISTAKES = {
    "no hold": ONE_PATH | {"FORGET_HOLD": 1},
    "no wait for sends in flight": ONE_PATH | {"FORGET_IN_FLIGHT": 1},
    "one empty peek": ONE_PATH | {"EMPTY_PEEKS": 1, "MISSED_MESSAGES": 1},
    "send that joins the failover does not reset the count of empty peeks": ONE_PATH
    | {"FORGET_JOINED_FAILOVER": 1, "LOST_ANSWERS": 1},
    "peek that began before the hold of another path counts": TWO_PATHS
    | {"FORGET_JOINED_HOLD": 1, "MESSAGES": 3, "MISSED_MESSAGES": 1},
    "failback without a drain": ONE_PATH | {"FAIL_BACK_AT_ONCE": 1},
    "syphon completes before the primary accepts": ONE_PATH | {"COMPLETE_FIRST": 1},
    "syphon passes a locked message": ONE_PATH | {"PASS_LOCKED": 1, "KILLS": 1},
}


@dataclass(frozen=True)
class SpinResult:
    errors: int
    states: int
    output: str


def run_spin(folder: Path, settings: dict[str, int], *, progress: bool = False) -> SpinResult:
    """Check the model with these settings: its assertions and its end states, or its progress."""
    defines = [f"-D{name}={value}" for name, value in settings.items()]
    if progress:
        defines.append("-DCHECK_PROGRESS")
    start = time.monotonic()
    execute(folder, "spin", "-a", *defines, str(MODEL))
    kind = ["-DNFAIR=3"] if progress else ["-DSAFETY"]
    execute(folder, "gcc", "-O2", "-w", "-DMEMLIM=6000", *kind, "-o", "pan", "pan.c")
    # The weakly fair runs (-f) are those in which every process that can continue does so.
    output = execute(folder, "./pan", "-m1000000", *(["-a", "-f"] if progress else []))
    assert "max search depth too small" not in output, output
    assert "Search not completed" not in output or "errors: 0" not in output, output
    errors = re.search(r"errors: (\d+)", output)
    states = re.search(r"(\d\S*) states, stored", output)
    assert errors is not None, output
    assert states is not None, output
    result = SpinResult(int(errors[1]), int(float(states[1])), output)
    print(f"{result.states:,} states, {time.monotonic() - start:.0f} s")
    return result


def execute(folder: Path, *command: str) -> str:
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


@pytest.mark.rule("S12", "Y10")
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_order_is_kept_in_every_state(name: str, tmp_path: Path) -> None:
    result = run_spin(tmp_path, CONFIGURATIONS[name])
    assert result.errors == 0, result.output


@pytest.mark.rule("S12", "Y10")
@pytest.mark.parametrize("name", PROGRESS_CONFIGURATIONS)
def test_every_path_becomes_healthy_again(name: str, tmp_path: Path) -> None:
    result = run_spin(tmp_path, CONFIGURATIONS[name], progress=True)
    assert result.errors == 0, result.output


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_in_the_order_is_found(name: str, tmp_path: Path) -> None:
    result = run_spin(tmp_path, MISTAKES[name])
    assert "assertion violated (m<=(delivered[p]+1))" in result.output


def test_hold_that_never_ends_is_found(tmp_path: Path) -> None:
    settings = ONE_PATH | {"EXPIRED_HOLDS": 1, "KEEP_EXPIRED_HOLD": 1}
    result = run_spin(tmp_path, settings, progress=True)
    assert "acceptance cycle" in result.output


@pytest.mark.parametrize("name", ["one path, outage and failover", "two paths"])
def test_one_empty_peek_would_suffice_if_peeks_were_exact(name: str, tmp_path: Path) -> None:
    result = run_spin(tmp_path, CONFIGURATIONS[name] | {"EMPTY_PEEKS": 1})
    assert result.errors == 0, result.output
