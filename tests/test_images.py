"""The files of deploy/images. `scripts/images.py` builds and runs the images."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pairbus.emulator import LocalNamespace

FOLDER = Path(__file__).resolve().parent.parent / "deploy" / "images"
FILES = sorted(FOLDER.glob("*.Dockerfile"))
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent))


def lint(text: str) -> "subprocess.CompletedProcess[str]":
    assert HADOLINT is not None
    return subprocess.run([HADOLINT, "-"], input=text, capture_output=True, text=True, check=False)


def check(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, FOLDER / "health.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_dockerfile_has_no_findings(file: Path):
    result = lint(file.read_text(encoding="utf-8"))

    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_image_runs_as_a_user_with_a_health_check(file: Path):
    lines = file.read_text(encoding="utf-8").splitlines()

    assert "USER 10001" in lines
    assert any(line.startswith("HEALTHCHECK ") for line in lines)


def test_finding_of_the_linter_is_an_error():
    result = lint("FROM debian:latest\nRUN cd /tmp && sudo ls\n")

    assert result.returncode == 1
    assert "DL3004" in result.stdout


def test_port_that_accepts_connections_is_healthy():
    with LocalNamespace() as namespace:
        port = str(namespace.port)
        assert check("--port", port).returncode == 0

    result = check("--port", port)
    assert result.returncode == 1
    assert result.stderr.startswith(f"Port {port} accepts no connections:")


def test_port_without_a_console_is_not_healthy():
    with LocalNamespace() as namespace:
        result = check("--console", str(namespace.port))

    assert result.returncode == 1
    assert "The console" in result.stderr
    assert "Traceback" not in result.stderr


def test_one_part_that_works_is_enough():
    with LocalNamespace() as namespace:
        assert check("--console", "9", "--port", str(namespace.port)).returncode == 0


def test_status_file_is_healthy_while_it_is_recent(tmp_path: Path):
    file = tmp_path / "status.json"
    assert check("--status-file", file).returncode == 1

    file.write_text(json.dumps({"healthy": False, "time": time.time()}))
    assert check("--status-file", file).returncode == 0

    file.write_text(json.dumps({"healthy": True, "time": time.time() - 90}))
    result = check("--status-file", file)
    assert result.returncode == 1
    assert re.search(r"was written \d{2,} s ago", result.stderr)
    assert check("--status-file", file, "--max-age", "600").returncode == 0


def test_nothing_to_check_is_an_error():
    assert check().returncode == 1
