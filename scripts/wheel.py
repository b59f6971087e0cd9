"""Build the wheel, install it in an empty environment, and use it there as somebody new would.

The environment is made in a temporary folder, with the pins of constraints.txt, without development
tools and without Spark, and is removed in the end. What is tried there: the commands, what an
import brings in, what is said where Spark is missing, and the example of README.md, in an outage.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "constraints.txt"
EXTRAS = "cli,emulator"
UNWANTED = {"pyspark", "pandas", "pyarrow", "pytest", "ruff", "mypy", "hypothesis", "duckdb"}
NEEDED = ("py.typed", "cost/prices.toml", "cost/page.html.j2", "spark/log4j2.properties")
PATIENCE_S = 300.0
NOWHERE = "Endpoint=sb://{}.example/;SharedAccessKeyName=k;SharedAccessKey=a2V5"
LOOK = """
import json, sys
from importlib import metadata
import pairbus
pairbus.pair_namespace, pairbus.SendAvailabilityOptions
print(json.dumps({
    "version": pairbus.__version__,
    "file": pairbus.__file__,
    "modules": sorted(sys.modules),
    "installed": sorted(found.name.lower() for found in metadata.distributions()),
}))
"""


class WheelError(Exception):
    """The wheel is not fit for use."""


def say(what: str) -> None:
    print(f"wheel: {what}", flush=True)


def run(
    *command: str | Path, folder: Path, fails: bool = False
) -> "subprocess.CompletedProcess[str]":
    """Run a command outside the checkout. Raises WheelError where it fails, or does not though it
    should."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PAIRBUS_PRIMARY", "PAIRBUS_SECONDARY")
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**clean, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    if bool(done.returncode) != fails:
        words = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        shown = " ".join(str(part) for part in command)
        raise WheelError(f"{shown}\nended with status {done.returncode}:\n{words}")
    return done


def build(folder: Path) -> Path:
    """The wheel, with all files of the package that are not Python."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(
        *(*pip, "wheel", "--no-deps", "--build-constraint", PINS, "--wheel-dir", folder, ROOT),
        folder=folder,
    )
    (wheel,) = folder.glob("pairbus-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in NEEDED if f"pairbus/{name}" not in names]
    strange = [name for name in names if name.split("/")[0].split("-")[0] != "pairbus"]
    if missing or strange:
        raise WheelError(f"the wheel lacks {missing}, and should not have {strange}")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """An environment with the wheel; its Python. It has no pip of its own."""
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env", folder=folder)
    python = folder / "env" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--constraint", PINS, f"{wheel}[{EXTRAS}]", folder=folder)
    return python


def look(python: Path, folder: Path) -> str:
    """What is installed, and what an import brings in."""
    found = json.loads(run(python, "-I", "-c", LOOK, folder=folder).stdout)
    if not Path(found["file"]).is_relative_to(folder):
        raise WheelError(f"pairbus was imported from {found['file']}, not from the wheel")
    if strangers := UNWANTED & set(found["installed"]):
        raise WheelError(f"the environment is not empty: {strangers}")
    rooms = ("pairbus.emulator", "pairbus.syphon", "pairbus.cli", "pyspark")
    if brought := [name for name in found["modules"] if name.startswith(rooms)]:
        raise WheelError(f"import pairbus brings in {brought}")
    return (
        f"{len(found['installed'])} packages; import pairbus brings in neither Spark nor emulator"
    )


def commands(python: Path, folder: Path) -> str:
    """The commands that need no Spark."""
    pairbus = python.with_name("pairbus")
    version = run(pairbus, "--version", folder=folder).stdout.strip()
    said = run(pairbus, "--help", folder=folder).stdout
    if missing := [name for name in ("emulator", "cost", "syphon") if name not in said]:
        raise WheelError(f"pairbus --help does not name {missing}")
    json.loads(run(pairbus, "cost", "forecast", "--json", folder=folder).stdout)
    return f"pairbus --version says {version}; --help and cost forecast run"


def without_spark(python: Path, folder: Path) -> str:
    """Commands that need Spark say so, and what to install."""
    pairbus = python.with_name("pairbus")
    spaces = ("--primary", NOWHERE.format("one"), "--secondary", NOWHERE.format("two"))
    said = run(pairbus, "syphon", *spaces, folder=folder, fails=True).stderr.strip()
    # A report looks for Java first, which may be missing, too.
    report = run(pairbus, "cost", "report", folder, folder=folder, fails=True).stderr
    if "Traceback" in said + report or "pip install 'pairbus[spark]'" not in said:
        raise WheelError(f"without Spark, commands do not say what to install:\n{said}\n{report}")
    return f"without Spark: {said}"


def example(python: Path, folder: Path) -> str:
    """The example of README.md, in an outage."""
    played = run(
        python, "-I", ROOT / "scripts" / "wheel_example.py", ROOT / "README.md", folder=folder
    )
    return played.stdout.strip()


def main() -> int:
    began = monotonic()
    checks: tuple[Callable[[Path, Path], str], ...] = (look, commands, without_spark, example)
    with tempfile.TemporaryDirectory(prefix="pairbus-wheel-") as name:
        folder = Path(name).resolve()
        try:
            wheel = build(folder)
            say(f"built {wheel.name}, {wheel.stat().st_size // 1024} KB")
            python = install(wheel, folder)
            say(f"installed with [{EXTRAS}] in an empty environment")
            for check in checks:
                say(check(python, folder))
        except (WheelError, subprocess.TimeoutExpired) as error:
            print(f"wheel: {error}", file=sys.stderr)
            return 1
    say(f"all is well, after {monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
