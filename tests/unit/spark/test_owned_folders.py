"""Temporary folders of processes that were killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pairbus.spark.owned_folders import OwnedFolder, own_folder, remove_abandoned_folders

OWNER = """
import sys
from pairbus.spark.owned_folders import OwnedFolder
folder = OwnedFolder("syphon")
(folder.path / "checkpoint").mkdir()
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_folder_of_a_killed_process_is_removed_and_that_of_a_live_one_is_not(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert (folder.parent, folder.name.startswith("pairbus-syphon-")) == (tmp_path, True)
        assert remove_abandoned_folders() == []

        process.kill()
        process.wait()

    assert remove_abandoned_folders() == [folder]
    assert not folder.exists()


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "pairbus-notes").mkdir()
    (tmp_path / "spark-1234").mkdir()
    own = OwnedFolder("spark")

    assert remove_abandoned_folders() == []
    own.remove()
    own.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairbus-notes", "spark-1234"]


def test_folder_that_another_program_has_created_can_be_owned(tmp_path: Path) -> None:
    folder = tmp_path / "pairbus-syphon-1234"
    folder.mkdir()
    lock = own_folder(folder)
    assert remove_abandoned_folders() == []

    os.close(lock)
    assert remove_abandoned_folders() == [folder]
