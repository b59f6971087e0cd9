"""The machine, commit, versions and load of a measurement."""

import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "pairbus",
    "azure-servicebus",
    "pyspark",
    "pyarrow",
    "duckdb",
    "python-qpid-proton",
)
MISSING = "not installed"
CODE = ("--", "src", "benchmarks/*.py")


def surroundings() -> dict[str, Any]:
    """Return the machine, the commit and the versions."""
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
        "commit": commit(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of all software that the benchmarks use."""
    return {
        "Python": sys.version.split()[0],
        **{name: _version(name) for name in PACKAGES},
        "Java": _java_version(),
        "RabbitMQ": _output("dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server") or MISSING,
    }


def commit() -> str:
    """Return the current commit, marked as changed if the measured code is modified."""
    commit_id = _output("git", "rev-parse", "--short", "HEAD")
    if not commit_id:
        return "unknown"
    changed = _output("git", "status", "--porcelain", "--untracked-files=no", *CODE)
    return f"{commit_id}, changed" if changed else commit_id


def load() -> float:
    """Return the load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return MISSING


def _java_version() -> str:
    home = os.environ.get("JAVA_HOME")
    output = _output(f"{home}/bin/java" if home else "java", "-version")
    match = re.search(r'version "([^"]+)"', output)
    return match[1] if match else MISSING


def _output(*command: str) -> str:
    """Return the output of a command, or an empty string if it is missing or fails."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    # Java prints its version to stderr.
    return "" if result.returncode else (result.stdout or result.stderr).strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"
