"""Virtual environments and commands for the checks of a release."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "constraints.txt"
TIMEOUT_S = 600.0
IGNORED = ("PYTHONPATH", "VIRTUAL_ENV", "PAIRBUS_PRIMARY", "PAIRBUS_SECONDARY")
"""Variables of the caller that would change the result."""


class ReleaseError(Exception):
    """Raised when a command or a check of a release fails."""


def run(
    *command: str | Path, folder: Path, fails: bool = False, **variables: str | Path
) -> "subprocess.CompletedProcess[str]":
    """Run a command outside the checkout. Raises ReleaseError if it fails, or if it succeeds
    although `fails` is set."""
    environment = {name: value for name, value in os.environ.items() if name not in IGNORED}
    environment |= {"NO_COLOR": "1"} | {name: str(value) for name, value in variables.items()}
    text = " ".join(str(part) for part in command)
    try:
        result = subprocess.run(
            [str(part) for part in command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise ReleaseError(f"{text}\ndid not end within {TIMEOUT_S:.0f} s.") from None
    if bool(result.returncode) != fails:
        output = "\n".join((result.stdout + result.stderr).splitlines()[-25:])
        raise ReleaseError(f"{text}\nexited with status {result.returncode}:\n{output}")
    return result


def create_environment(folder: Path, name: str = "env") -> Path:
    """Create an environment without pip. Return its Python interpreter."""
    run(sys.executable, "-m", "venv", "--without-pip", folder / name, folder=folder)
    return folder / name / "bin" / "python"


def install(python: Path, *requirements: str | Path, folder: Path) -> None:
    """Install packages with the pinned versions."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--constraint", PINS, *requirements, folder=folder)


def group(name: str) -> tuple[str, str]:
    """Return the arguments of pip for a dependency group of this project."""
    return "--group", f"{ROOT / 'pyproject.toml'}:{name}"
