"""Build the wheel, install it in an empty environment, and test it there.

The environment is created in a temporary folder, with the pins of constraints.txt, without
development tools and without Spark. The tests: the modules that an import loads, the commands, the
error of commands that need Spark, and the example of README.md with an outage. The help texts are
tested first, with the extra `cli` alone.
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
MAX_SIZE_MB = 75
"""The size of the environment with these extras. It was 57 MB in November 2026."""
UNWANTED = {"pyspark", "pandas", "pyarrow", "pytest", "ruff", "mypy", "hypothesis", "duckdb"}
NEEDED = (
    "py.typed",
    "console/static/index.html",
    "console/static/vendor/uplot/LICENSE",
    "cost/page.html.j2",
    "cost/prices.toml",
    "spark/log4j2.properties",
)
TIMEOUT_S = 300.0
UNREACHABLE = "Endpoint=sb://{}.example/;SharedAccessKeyName=k;SharedAccessKey=a2V5"
LIST_COMMANDS = """
import json
from typer.main import get_command
from typer.testing import CliRunner
from pairbus.cli.app import app

def names(command, *path):
    result = CliRunner().invoke(app, [*path, "--help"])
    assert result.exit_code == 0 and "Usage: " in result.stdout, result.output
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from names(inner, *path, name)

print(json.dumps(list(names(get_command(app)))))
"""
INSPECT = """
import json, sys
from importlib import metadata
import pairbus
pairbus.pair_namespace, pairbus.SendAvailabilityOptions
print(json.dumps({
    "version": pairbus.__version__,
    "file": pairbus.__file__,
    "modules": sorted(sys.modules),
    "installed": sorted(package.name.lower() for package in metadata.distributions()),
}))
"""


class WheelError(Exception):
    """Raised when a test of the wheel fails."""


def report(message: str) -> None:
    print(f"wheel: {message}", flush=True)


def run(
    *command: str | Path, folder: Path, fails: bool = False
) -> "subprocess.CompletedProcess[str]":
    """Run a command outside the checkout. Raises WheelError if it fails, or if it succeeds although
    `fails` is set."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PAIRBUS_PRIMARY", "PAIRBUS_SECONDARY")
    }
    result = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**environment, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    if bool(result.returncode) != fails:
        output = "\n".join((result.stdout + result.stderr).splitlines()[-25:])
        text = " ".join(str(part) for part in command)
        raise WheelError(f"{text}\nexited with status {result.returncode}:\n{output}")
    return result


def build(folder: Path) -> Path:
    """Build the wheel, and check that it contains all data files and nothing else."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(
        *(*pip, "wheel", "--no-deps", "--build-constraint", PINS, "--wheel-dir", folder, ROOT),
        folder=folder,
    )
    (wheel,) = folder.glob("pairbus-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in NEEDED if f"pairbus/{name}" not in names]
    unexpected = [name for name in names if name.split("/")[0].split("-")[0] != "pairbus"]
    if missing or unexpected:
        raise WheelError(f"The wheel lacks {missing}, and has unexpected files: {unexpected}.")
    entry_points = zipfile.ZipFile(wheel).read(
        f"{wheel.stem.split('-py')[0]}.dist-info/entry_points.txt"
    )
    if b"[pytest11]" not in entry_points:
        raise WheelError("The wheel does not register the pytest plugin.")
    return wheel


def create_environment(folder: Path) -> Path:
    """Create an environment without pip. Return its Python interpreter."""
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env", folder=folder)
    return folder / "env" / "bin" / "python"


def install(wheel: Path, extras: str, python: Path, folder: Path) -> None:
    """Install the wheel with extras."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--constraint", PINS, f"{wheel}[{extras}]", folder=folder)


def check_help(python: Path, folder: Path) -> str:
    """Print the help texts of all commands, and the hint of one that needs another extra."""
    commands = json.loads(run(python, "-I", "-c", LIST_COMMANDS, folder=folder).stdout)
    pairbus = python.with_name("pairbus")
    error = run(pairbus, "emulator", folder=folder, fails=True).stderr.strip()
    if "pip install 'pairbus[emulator]'" not in error or "Traceback" in error:
        raise WheelError(f"Without the emulator, its command does not say what to do:\n{error}")
    return f"with [cli] alone: {len(commands)} help texts; {error}"


def check_size(python: Path, folder: Path) -> str:
    """Check the size of the installed packages."""
    files = (file for file in (folder / "env" / "lib").rglob("*") if file.is_file())
    size_mb = sum(file.stat().st_size for file in files) / 1_000_000
    if size_mb > MAX_SIZE_MB:
        raise WheelError(f"The environment has {size_mb:.0f} MB, more than {MAX_SIZE_MB}.")
    return f"{size_mb:.0f} MB in the environment"


def check_imports(python: Path, folder: Path) -> str:
    """Check the installed packages, and the modules that `import pairbus` loads."""
    installation = json.loads(run(python, "-I", "-c", INSPECT, folder=folder).stdout)
    if not Path(installation["file"]).is_relative_to(folder):
        raise WheelError(f"pairbus was imported from {installation['file']}, not from the wheel.")
    if unwanted := UNWANTED & set(installation["installed"]):
        raise WheelError(f"The environment contains {unwanted}.")
    optional = ("pairbus.emulator", "pairbus.syphon", "pairbus.cli", "pyspark")
    if loaded := [name for name in installation["modules"] if name.startswith(optional)]:
        raise WheelError(f"import pairbus loads {loaded}.")
    count = len(installation["installed"])
    return f"{count} packages; import pairbus loads neither Spark nor the emulator"


def check_commands(python: Path, folder: Path) -> str:
    """Run commands that need no Spark."""
    pairbus = python.with_name("pairbus")
    version = run(pairbus, "--version", folder=folder).stdout.strip()
    help_text = run(pairbus, "--help", folder=folder).stdout
    if missing := [name for name in ("emulator", "cost", "syphon") if name not in help_text]:
        raise WheelError(f"pairbus --help does not list {missing}.")
    json.loads(run(pairbus, "cost", "forecast", "--json", folder=folder).stdout)
    return f"pairbus {version}: --help and cost forecast work"


def check_missing_spark(python: Path, folder: Path) -> str:
    """Check that commands which need Spark print how to install it."""
    pairbus = python.with_name("pairbus")
    namespaces = ("--primary", UNREACHABLE.format("one"), "--secondary", UNREACHABLE.format("two"))
    error = run(pairbus, "syphon", *namespaces, folder=folder, fails=True).stderr.strip()
    # This command checks for Java first, which may be missing too.
    report_error = run(pairbus, "cost", "report", folder, folder=folder, fails=True).stderr
    if "Traceback" in error + report_error or "pip install 'pairbus[spark]'" not in error:
        raise WheelError(
            f"Without Spark, commands do not print how to install it:\n{error}\n{report_error}"
        )
    return f"without Spark: {error}"


def check_example(python: Path, folder: Path) -> str:
    """Run the example of README.md with an outage."""
    result = run(
        python, "-I", ROOT / "scripts" / "wheel_example.py", ROOT / "README.md", folder=folder
    )
    return result.stdout.strip()


def main() -> int:
    start = monotonic()
    checks: tuple[Callable[[Path, Path], str], ...] = (
        check_size,
        check_imports,
        check_commands,
        check_missing_spark,
        check_example,
    )
    with tempfile.TemporaryDirectory(prefix="pairbus-wheel-") as name:
        folder = Path(name).resolve()
        try:
            wheel = build(folder)
            report(f"built {wheel.name}, {wheel.stat().st_size // 1024} KB")
            python = create_environment(folder)
            install(wheel, "cli", python, folder)
            report(check_help(python, folder))
            install(wheel, EXTRAS, python, folder)
            report(f"installed with [{EXTRAS}] in an empty environment")
            for check in checks:
                report(check(python, folder))
        except (WheelError, subprocess.TimeoutExpired) as error:
            print(f"wheel: {error}", file=sys.stderr)
            return 1
    report(f"passed in {monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
