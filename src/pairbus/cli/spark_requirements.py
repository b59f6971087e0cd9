"""Checks of what Spark needs on this machine, before a command does anything else."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from pairbus.cli.console import print_error

PACKAGES = ("pyspark", "pyarrow", "pandas")
MIN_JAVA = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_TIMEOUT_S = 30.0


def check_spark(err: Console, master: str | None = None) -> bool:
    """Return True if Spark can run here. Print an error if Java is missing or too old. Raises
    ModuleNotFoundError for a missing package, which `main` reports with the extra to install.

    The Java of a Spark Connect server (`sc://`) is not on this machine, and not checked.
    """
    for package in PACKAGES:
        require_package(package)
    if master is not None and master.startswith("sc://"):
        require_package("grpc")
        return True
    problem = java_problem()
    if problem is not None:
        print_error(err, problem)
    return problem is None


def require_package(name: str) -> None:
    """Raise ModuleNotFoundError if a package is not installed. It is not imported, which is
    slow."""
    if find_spec(name) is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def java_problem() -> str | None:
    """Return the reason why Spark cannot use the Java of this machine, or None if it can."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or shutil.which(java) is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        return (
            f"Spark needs Java {MIN_JAVA} or 21, which was not found {where}. Install it, or set "
            "JAVA_HOME."
        )
    try:
        result = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"Spark needs Java {MIN_JAVA} or 21, and {java} cannot be run: {exc}. Set JAVA_HOME."
    version = java_version(result.stderr + result.stdout)
    if version is not None and version < MIN_JAVA:
        return f"Spark needs Java {MIN_JAVA} or 21, and {java} is Java {version}. Set JAVA_HOME."
    return None


def java_version(output: str) -> int | None:
    """Return the major version in the output of `java -version`, or None if it is not known."""
    match = _VERSION.search(output)
    return None if match is None else int(match[1])
