"""One syphon for several pairings of a configuration file, with the Spark of the tests."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pairbus.backlog.syphon_file import parse_syphon_status
from pairbus.emulator.namespace import LocalNamespace
from tests.backlog import Backlog
from tests.commands import run_here
from tests.messages import numbered

pytestmark = [pytest.mark.timeout(600), pytest.mark.rule("Y12")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: SparkSession) -> Path:
    """The working directory of the command, and its folder of state."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def section(name: str, backlog: Backlog, secondary: str) -> str:
    return (
        f'[pairings.{name}]\nprimary = "{backlog.primary.connection_string}"\n'
        f'secondary = "{secondary}"\nprimary_name = "{backlog.name}"\nbacklog_queues = 2\n'
    )


def test_pairing_that_fails_does_not_end_the_others_and_the_exit_status_tells(
    namespaces: tuple[LocalNamespace, LocalNamespace], folder: Path
) -> None:
    one, two = Backlog(*namespaces), Backlog(*namespaces)
    with LocalNamespace("stopped") as stopped:
        unreachable = stopped.connection_string
    for backlog in (one, two):
        backlog.put(backlog.path("q"), numbered(30))
    secondary = one.secondary.connection_string
    text = section("first", one, secondary) + section("broken", one, unreachable)
    (folder / "pairbus.toml").write_text(text + section("second", two, secondary))
    status_file = folder / "status.json"

    result = run_here(
        "syphon", "--once", "--no-ledger", "--status-file", str(status_file), "--archive", "moved"
    )

    assert result.exit_code == 1, result.output
    assert (one.left(), two.left()) == (0, 0), result.output
    assert "first: 30 messages moved, 0 dead-lettered." in result.stdout
    assert "second: 30 messages moved, 0 dead-lettered." in result.stdout
    assert "broken: 0 messages moved" in result.stdout
    status = json.loads(status_file.read_text())
    second, broken = status["pairings"]["second"], status["pairings"]["broken"]
    assert (sum(second["moved"].values()), second["remaining"], second["ended"]) == (
        30,
        0,
        "drained",
    )
    assert (broken["remaining"], broken["ended"]) == (None, "failed")
    assert (status["running"], status["ended"], status["remaining"]) == (False, "failed", None)
    assert parse_syphon_status(status, status["time"]).moved == 60
    archived = [path.parent.name for path in (folder / "moved").glob("*/*.parquet")]
    assert set(archived) == {"pairing=first", "pairing=second"}
