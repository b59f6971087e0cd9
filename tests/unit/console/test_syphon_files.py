"""The files of a syphon."""

import json
from pathlib import Path
from typing import Any

import pytest

from pairbus.backlog.syphon_control import ControlFile
from pairbus.console.syphon_files import SyphonFiles

pytestmark = pytest.mark.rule("O2")

NOW = 1_000_000.0
STATUS: dict[str, Any] = {
    "running": True,
    "healthy": True,
    "problem": None,
    "moved": {"orders": 5},
    "remaining": 7,
    "rate": 2.5,
    "seconds_to_go": 3,
    "paused": False,
}


@pytest.fixture
def control(tmp_path: Path) -> ControlFile:
    return ControlFile(tmp_path / "control.json")


def files(path: Path | None, control: ControlFile) -> SyphonFiles:
    return SyphonFiles(path, control, ("shop", "orders"), now=lambda: NOW)


def test_status_and_control_are_read(tmp_path: Path, control: ControlFile):
    path = tmp_path / "status.json"
    path.write_text(json.dumps(STATUS | {"time": NOW - 1}))
    control.update(lambda settings: settings.pause())

    view = files(path, control).read()

    assert view.summary is not None
    assert (view.summary.running, view.summary.remaining, view.summary.moved) == (True, 7, 5)
    assert view.time_ms == int((NOW - 1) * 1000)
    values = view.to_json()
    assert (values["known"], values["healthy"], values["paused"]) == (True, True, True)


def test_pairing_is_taken_from_a_file_of_several(tmp_path: Path, control: ControlFile):
    path = tmp_path / "status.json"
    other = STATUS | {"remaining": 1000}
    values = {"time": NOW, **other, "pairings": {"shop": STATUS, "other": other}}
    path.write_text(json.dumps(values))

    view = files(path, control).read()

    assert view.summary is not None
    assert view.summary.remaining == 7


def test_without_status_file_the_syphon_is_unknown(control: ControlFile):
    view = files(None, control).read()

    assert view.to_json()["known"] is False


def test_missing_status_file_means_that_the_syphon_has_not_started(
    tmp_path: Path, control: ControlFile
):
    values = files(tmp_path / "none.json", control).read().to_json()

    assert values["running"] is False
    assert "has not started" in values["problem"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', "\x00"])
def test_damaged_status_file_is_a_problem(tmp_path: Path, control: ControlFile, text: str):
    path = tmp_path / "status.json"
    path.write_text(text)

    values = files(path, control).read().to_json()

    assert values["known"] is False
    assert values["problem"].startswith("The status file cannot be read")
