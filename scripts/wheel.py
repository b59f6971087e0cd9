"""Build the sdist and the wheel, test the wheel in empty environments, and put both into dist/.

The environments are created in a temporary folder, with the pins of constraints.txt, without
development tools and without Spark. The tests: the packages that the wheel needs by itself; the
help texts, with the extra `cli` alone; the modules that an import loads, the commands, the error of
commands that need Spark, and the example of README.md with an outage; `pipx run`.

    python -m scripts.wheel            in about a minute
    python -m scripts.wheel --drill    also a drill with Spark, through pipx
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from scripts.distributions import build
from scripts.environments import (
    PINS,
    ROOT,
    ReleaseError,
    create_environment,
    group,
    install,
    run,
)

EXTRAS = "cli,emulator"
MAX_SIZE_MB = 75
"""The size of the environment with these extras. It was 57 MB in November 2026."""
MAX_BASE_SIZE_MB = 25
"""The size of the environment without extras. It was 16 MB in November 2026."""
UNWANTED = {"pyspark", "pandas", "pyarrow", "pytest", "ruff", "mypy", "hypothesis", "duckdb"}
COMPILED_BY_OTHERS = {"charset_normalizer"}
"""Packages of the Azure SDK that have compiled modules, which they also work without."""
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


def report(message: str) -> None:
    print(f"wheel: {message}", flush=True)


def size_mb(folder: Path) -> float:
    """Return the size of the installed packages."""
    files = (file for file in (folder / "env" / "lib").rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in files) / 1_000_000


def check_base(python: Path, folder: Path) -> str:
    """Check what the package needs without extras: little, and nothing that is compiled."""
    packages = folder / "env" / "lib"
    (site,) = packages.glob("python*/site-packages")
    compiled = {file.relative_to(site).parts[0].split(".")[0] for file in site.rglob("*.so")}
    compiled -= {name for name in compiled if "__mypyc" in name} | COMPILED_BY_OTHERS
    if compiled:
        raise ReleaseError(f"pip install pairbus needs compiled packages: {sorted(compiled)}.")
    if size_mb(folder) > MAX_BASE_SIZE_MB:
        raise ReleaseError(
            f"pip install pairbus takes {size_mb(folder):.0f} MB, more than {MAX_BASE_SIZE_MB}."
        )
    count = len(list(site.glob("*.dist-info")))
    error = run(python.with_name("pairbus"), "drill", folder=folder, fails=True).stderr.strip()
    if error != (
        "This command needs the package typer. Run: pip install 'pairbus[drill]', and install Java "
        "17 or 21"
    ):
        raise ReleaseError(f"Without extras, the drill does not say what to do:\n{error}")
    return f"without extras: {count} packages, {size_mb(folder):.0f} MB, not compiled; {error}"


def check_help(python: Path, folder: Path) -> str:
    """Print the help texts of all commands, and the hint of one that needs another extra."""
    commands = json.loads(run(python, "-I", "-c", LIST_COMMANDS, folder=folder).stdout)
    pairbus = python.with_name("pairbus")
    error = run(pairbus, "emulator", folder=folder, fails=True).stderr.strip()
    if "pip install 'pairbus[emulator]'" not in error or "Traceback" in error:
        raise ReleaseError(f"Without the emulator, its command does not say what to do:\n{error}")
    return f"with [cli] alone: {len(commands)} help texts; {error}"


def check_size(python: Path, folder: Path) -> str:
    """Check the size of the installed packages."""
    size = size_mb(folder)
    if size > MAX_SIZE_MB:
        raise ReleaseError(f"The environment has {size:.0f} MB, more than {MAX_SIZE_MB}.")
    return f"{size:.0f} MB in the environment"


def check_imports(python: Path, folder: Path) -> str:
    """Check the installed packages, and the modules that `import pairbus` loads."""
    installation = json.loads(run(python, "-I", "-c", INSPECT, folder=folder).stdout)
    if not Path(installation["file"]).is_relative_to(folder):
        raise ReleaseError(f"pairbus was imported from {installation['file']}, not from the wheel.")
    if unwanted := UNWANTED & set(installation["installed"]):
        raise ReleaseError(f"The environment contains {unwanted}.")
    optional = ("pairbus.emulator", "pairbus.syphon", "pairbus.cli", "pyspark")
    if loaded := [name for name in installation["modules"] if name.startswith(optional)]:
        raise ReleaseError(f"import pairbus loads {loaded}.")
    count = len(installation["installed"])
    return f"{count} packages; import pairbus loads neither Spark nor the emulator"


def check_commands(python: Path, folder: Path) -> str:
    """Run commands that need no Spark."""
    pairbus = python.with_name("pairbus")
    version = run(pairbus, "--version", folder=folder).stdout.strip()
    help_text = run(pairbus, "--help", folder=folder).stdout
    if missing := [name for name in ("emulator", "cost", "syphon") if name not in help_text]:
        raise ReleaseError(f"pairbus --help does not list {missing}.")
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
        raise ReleaseError(
            f"Without Spark, commands do not print how to install it:\n{error}\n{report_error}"
        )
    return f"without Spark: {error}"


def check_example(python: Path, folder: Path) -> str:
    """Run the example of README.md with an outage."""
    result = run(
        python, "-I", ROOT / "scripts" / "wheel_example.py", ROOT / "README.md", folder=folder
    )
    return result.stdout.strip()


def check_pipx(wheel: Path, folder: Path, *, drill: bool) -> str:
    """Run the drill with pipx: without Spark, and with it if `drill` is set."""
    pipx = create_environment(folder, "pipx").with_name("pipx")
    install(pipx.with_name("python"), *group("release"), folder=folder)
    variables = {
        "PIPX_HOME": folder / "pipx-home",
        "PIPX_DEFAULT_PYTHON": sys.executable,
        "XDG_STATE_HOME": folder / "state",
        "XDG_CACHE_HOME": folder / "cache",
    }
    start = (pipx, "run", "--pip-args", f"--constraint {PINS}", "--spec")

    command = (*start, f"{wheel}[cli]", "pairbus", "drill")
    error = run(*command, folder=folder, fails=True, **variables).stderr.strip().splitlines()[-1]
    hint = "This command needs the package pyspark. Run: pip install 'pairbus[drill]', and install"
    if not error.startswith(hint):
        raise ReleaseError(f"pipx run pairbus drill does not say what is missing:\n{error}")
    if not drill:
        return f"pipx run pairbus drill, without Spark: {error}"

    command = (*start, f"{wheel}[drill]", "pairbus", "drill", "--outage", "5")
    verdict = run(*command, folder=folder, **variables).stdout.strip().splitlines()[-1]
    return f"pipx run pairbus drill: {verdict}"


def publish(files: tuple[Path, ...]) -> None:
    """Put the files into dist/, in place of those of earlier builds."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    (ROOT / "dist").mkdir()
    for file in files:
        shutil.copy(file, ROOT / "dist")
        report(f"dist/{file.name}, {file.stat().st_size // 1024} KB")


def main() -> int:
    parser = argparse.ArgumentParser(description="Build and test the sdist and the wheel.")
    parser.add_argument("--drill", action="store_true", help="Run a drill with Spark, too.")
    drill = parser.parse_args().drill
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
            sdist, wheel = build(folder)
            report(f"built {sdist.name}, and {wheel.name} from it")
            python = create_environment(folder)
            install(python, wheel, folder=folder)
            report(check_base(python, folder))
            install(python, f"{wheel}[cli]", folder=folder)
            report(check_help(python, folder))
            install(python, f"{wheel}[{EXTRAS}]", folder=folder)
            report(f"installed with [{EXTRAS}] in an empty environment")
            for check in checks:
                report(check(python, folder))
            report(check_pipx(wheel, folder, drill=drill))
            publish((sdist, wheel))
        except ReleaseError as error:
            print(f"wheel: {error}", file=sys.stderr)
            return 1
    report(f"passed in {monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
