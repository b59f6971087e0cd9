"""Python processes that an embedded Spark has forked by a server, instead of starting Python."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pairbus.spark.python_command import start_fork_server
from tests.processes import kill, running
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pidfds")

PRELOADED = "wave"
PROBE = """
import json, os, sys
answer = {
    "arguments": sys.argv[1:],
    "folder": os.getcwd(),
    "input": sys.stdin.readline(),
    "name": open("/proc/self/comm").read().strip(),
    "parent": os.getppid(),
    "path": sys.path[:2],
    "preloaded": "%s" in sys.modules,
    "variable": os.environ.get("PROBE"),
    "main": __name__,
}
print(json.dumps(answer), flush=True)
sys.stderr.write("to stderr")
sys.exit(3)
"""
SLEEPER = """
import os, time
print(os.getpid(), flush=True)
time.sleep(600)
"""


@dataclass(frozen=True)
class ForkedPython:
    """A folder with modules, and the command that has the server fork processes."""

    folder: Path
    command: Path
    server: subprocess.Popen[bytes]

    def environment(self, **changes: str) -> dict[str, str]:
        settings = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"}
        return {**os.environ, **settings, **changes}

    def probe(self, **changes: str) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
        result = subprocess.run(
            [self.command, "-m", "probe", "one", "two words"],
            cwd=self.folder,
            env=self.environment(PROBE="set", **changes),
            input="a line\n",
            check=False,
            capture_output=True,
            text=True,
        )
        return json.loads(result.stdout), result


@pytest.fixture
def forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkedPython]:
    (tmp_path / "probe.py").write_text(dedent(PROBE % PRELOADED))
    (tmp_path / "sleeper.py").write_text(dedent(SLEEPER))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    command, server = start_fork_server(tmp_path, [PRELOADED, "no_such_module"])
    yield ForkedPython(tmp_path, command, server)
    assert server.stdin is not None
    server.stdin.close()
    server.wait()


def test_forked_process_is_like_one_that_was_started(forked: ForkedPython) -> None:
    answer, result = forked.probe(PYTHONPATH="/some/where")

    assert answer["parent"] == forked.server.pid
    assert answer == {
        "arguments": ["one", "two words"],
        "folder": str(forked.folder),
        "input": "a line\n",
        "name": "two words",
        "parent": forked.server.pid,
        "path": [str(forked.folder), "/some/where"],
        "preloaded": True,
        "variable": "set",
        "main": "__main__",
    }
    assert (result.returncode, result.stderr) == (3, "to stderr")


def test_process_that_needs_other_settings_of_python_is_not_forked(forked: ForkedPython) -> None:
    answer, result = forked.probe(PYTHONHASHSEED="7")

    assert answer["parent"] == os.getpid()
    assert not answer["preloaded"]
    assert result.returncode == 3
    assert forked.probe()[0]["parent"] == forked.server.pid


def test_python_starts_by_itself_without_the_server(forked: ForkedPython) -> None:
    kill(forked.server.pid)

    answer, result = forked.probe()

    assert answer["parent"] == os.getpid()
    assert result.returncode == 3


def test_other_commands_are_not_forked(forked: ForkedPython) -> None:
    code = "import os; print(os.getppid())"
    result = subprocess.run(
        [forked.command, "-c", code], capture_output=True, check=True, text=True
    )

    assert result.stdout.strip() == str(os.getpid())


@contextlib.contextmanager
def sleeper(forked: ForkedPython) -> Iterator[tuple[subprocess.Popen[str], int]]:
    process = subprocess.Popen(
        [forked.command, "-m", "sleeper"],
        cwd=forked.folder,
        env=forked.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert running([pid])
        try:
            yield process, pid
        finally:
            if running([pid]):
                kill(pid)
            process.kill()


def test_forked_process_ends_with_the_one_that_spark_started(forked: ForkedPython) -> None:
    with sleeper(forked) as (process, pid):
        assert pid != process.pid
        process.terminate()
        wait_until(lambda: not running([pid]), "the forked process to end")


def test_signal_of_a_forked_process_is_its_exit_code(forked: ForkedPython) -> None:
    with sleeper(forked) as (process, pid):
        kill(pid)
        assert process.wait() == 128 + 9


def test_forked_processes_survive_the_server(forked: ForkedPython) -> None:
    with sleeper(forked) as (_, pid):
        assert forked.server.stdin is not None
        forked.server.stdin.close()
        assert forked.server.wait() == 0
        assert running([pid])
