"""Run the tests of the azure-servicebus SDK against the emulator.

    python -m tests.sdk_suite                      all transports
    python -m tests.sdk_suite --transport tls      one of tcp, tls, websocket
    python -m tests.sdk_suite -k sessions          further options are those of pytest

The tests are those of the sdist, which is downloaded into build/sdk-suite once.
"""

import argparse
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.sdk_suite.redirection import TRANSPORTS

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
CACHE = ROOT / "build" / "sdk-suite"
PACKAGE = "azure-servicebus"
REPLACED = {"conftest.py", "servicebus_preparer.py", "sb_env_loader.py"}
"""Files of the sdist that the stand-ins replace."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sdk_suite",
        description=f"Run the tests of {PACKAGE} against the emulator.",
        epilog="Further options are those of pytest.",
    )
    parser.add_argument(
        "--transport",
        action="append",
        choices=TRANSPORTS,
        help="Transport of the SDK. Can be repeated. Default: all.",
    )
    parser.add_argument(
        "--workers", type=int, default=8, help="Processes, which mostly wait (default: 8)."
    )
    options, others = parser.parse_known_args()
    tests = unpack(download())
    statuses = [
        run(tests, transport, options.workers, others)
        for transport in options.transport or TRANSPORTS
    ]
    return 1 if any(statuses) else 0


def download() -> Path:
    """Return the sdist of the version in constraints.txt, downloaded if it is not there."""
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{PACKAGE}==(\S+)$", constraints, re.MULTILINE)
    assert found is not None, f"constraints.txt has no version of {PACKAGE}."
    sdist = CACHE / f"{PACKAGE.replace('-', '_')}-{found[1]}.tar.gz"
    if not sdist.exists():
        print(f"Downloading the sdist of {PACKAGE} {found[1]}.", flush=True)
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps")
        source = ("--no-binary", PACKAGE, f"{PACKAGE}=={found[1]}")
        subprocess.run([*pip, *source, "--dest", str(CACHE)], check=True)
    return sdist


def unpack(sdist: Path) -> Path:
    """Return the folder with the tests of the sdist."""
    name = sdist.name.removesuffix(".tar.gz")
    with tarfile.open(sdist) as archive:
        members = [
            member
            for member in archive.getmembers()
            if member.name.startswith(f"{name}/tests/") and Path(member.name).name not in REPLACED
        ]
        archive.extractall(CACHE, members, filter="data")
    return CACHE / name / "tests"


def run(tests: Path, transport: str, workers: int, options: list[str]) -> int:
    """Run the tests over one transport, and return the exit status of pytest."""
    path = os.pathsep.join([str(HERE / "standins"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    pytest = [
        *(sys.executable, "-m", "pytest", "-p", "tests.sdk_suite.plugin"),
        *("-c", str(HERE / "pytest.ini"), "--rootdir", str(tests), "--runxfail"),
        *("-n", str(workers), "--maxschedchunk", "1", "-q", "--tb=short", "--show-capture=no"),
        *("-o", f"cache_dir={CACHE / 'cache'}", "--transport", transport),
    ]
    environment = os.environ | {"PYTHONPATH": path}
    command = [*pytest, *options, str(tests)]
    return subprocess.run(command, check=False, env=environment, cwd=tests).returncode


if __name__ == "__main__":
    sys.exit(main())
