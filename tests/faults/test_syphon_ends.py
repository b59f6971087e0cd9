"""A syphon whose processes are killed says so, and leaves nothing behind for long."""

import json
from pathlib import Path

import pytest

from tests.backlog import Backlog
from tests.faults.conftest import StartSyphon
from tests.faults.delayed_answer import DelayedAnswer
from tests.faults.lock_clock import LockClock
from tests.messages import message
from tests.processes import kill
from tests.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def folders(path: Path) -> set[str]:
    """Return the temporary folders in a folder. Those that end within a moment do not count."""
    return {folder.name for folder in path.iterdir() if folder.is_dir()}


def test_killed_jvm_is_an_error_and_the_status_file_says_so(
    start_syphon: StartSyphon, tmp_path: Path
) -> None:
    status_file = tmp_path / "status.json"
    with start_syphon("syphon", "--status-file", str(status_file)) as process:
        wait_until(lambda: list(process.folder.glob("pairbus-syphon-*/reader.json")), "a report")
        jvms = {each.pid for each in process.processes() if each.name == "java"}
        assert jvms
        kill(*jvms)
        wait_until(lambda: not process.runs, "the command to end")

        assert process.exit_code == 1
        assert "Traceback" not in process.output
        assert "Spark ended or cannot be reached any more" in process.output
    status = json.loads(status_file.read_text())
    assert (status["running"], status["healthy"], status["ended"]) == (False, False, "failed")


@pytest.mark.rule("Y5", "Y8")
@pytest.mark.parametrize("victim", ["jvm", "workers"])
def test_dead_letters_before_a_kill_are_in_the_status_file(
    backlog: Backlog, clock: LockClock, start_syphon: StartSyphon, tmp_path: Path, victim: str
) -> None:
    status_file = tmp_path / "status.json"
    path = backlog.path("orders")
    # The task waits for an answer when one request with 500 dead letters has been answered.
    answer = DelayedAnswer(backlog.primary.connection_string, path)
    backlog.put(path, [message("first")])
    backlog.put_raw([message(f"no destination {n}") for n in range(600)])
    with start_syphon("syphon", "--status-file", str(status_file)) as process:
        answer.wait()
        wait_until(lambda: len(backlog.dead_letters()) == 500, "dead letters")
        wait_until(lambda: status_of(status_file) == {"": {"MissingPath": 500}}, "the status")
        if victim == "jvm":
            kill(*(each.pid for each in process.processes() if each.name == "java"))
            wait_until(lambda: not process.runs, "the command to end")
            assert status_of(status_file) == {"": {"MissingPath": 500}}
        else:
            kill(*process.task_workers())
            clock.expire_locks()
            wait_until(lambda: backlog.left() == 0, "the backlog to be drained")
            process.stop()
            assert status_of(status_file) == {"": {"MissingPath": 600}}
    assert len(backlog.dead_letters()) == (500 if victim == "jvm" else 600)


def status_of(file: Path) -> object:
    """Return the dead letters in a status file, by destination and reason."""
    return json.loads(file.read_text())["dead_letter_reasons"]


def test_folders_of_a_killed_syphon_are_removed_at_the_next_start(
    start_syphon: StartSyphon, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with start_syphon("first", TMPDIR=str(shared)) as process:
        wait_until(lambda: list(shared.glob("pairbus-syphon-*/reader.json")), "a report")
        process.kill()
    left = folders(shared)
    assert {name.rpartition("-")[0] for name in left} == {"pairbus-spark", "pairbus-syphon"}

    with start_syphon("second", TMPDIR=str(shared)) as process:
        wait_until(
            lambda: (
                {file.parent.name for file in shared.glob("pairbus-syphon-*/reader.json")} - left
            ),
            "a report of the second syphon",
        )
        assert folders(shared).isdisjoint(left)
        assert process.runs
        process.stop()
    assert folders(shared) == set()
