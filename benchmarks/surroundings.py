"""Where figures are taken: machine, commit, versions, load. A figure means nothing without."""

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
    """Machine, commit and versions."""
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
        "commit": commit(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of all that takes part in one subject or another."""
    return {
        "Python": sys.version.split()[0],
        **{name: _version(name) for name in PACKAGES},
        "Java": _java_version(),
        "RabbitMQ": _said("dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server") or MISSING,
    }


def commit() -> str:
    """What is checked out, and whether something of it was changed since."""
    found = _said("git", "rev-parse", "--short", "HEAD")
    if not found:
        return "unknown"
    changed = _said("git", "status", "--porcelain", "--untracked-files=no", *CODE)
    return f"{found}, changed" if changed else found


def load() -> float:
    """How many processes ran or waited to run, on average, in the last minute."""
    return round(os.getloadavg()[0], 2)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return MISSING


def _java_version() -> str:
    home = os.environ.get("JAVA_HOME")
    said = _said(f"{home}/bin/java" if home else "java", "-version")
    found = re.search(r'version "([^"]+)"', said)
    return found[1] if found else MISSING


def _said(*command: str) -> str:
    """What a command printed; nothing where it is not there, or fails."""
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    # Java says its version where others complain.
    return "" if asked.returncode else (asked.stdout or asked.stderr).strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"
