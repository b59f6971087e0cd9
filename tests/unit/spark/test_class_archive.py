"""The archive of Java classes: when it is written, and when it is used."""

import os
from pathlib import Path

import pytest

from pairbus.spark.class_archive import MAX_DRAFT_AGE_S, VARIABLES, archive_options

HEADER = b"\xa8\xab\x0b\xf0"


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home directory of a Java."""
    home = tmp_path / "java"
    for folder in ("bin", "lib"):
        (home / folder).mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "lib" / "modules").write_bytes(b"17")
    monkeypatch.setenv("JAVA_HOME", str(home))
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    return home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def option(home: Path | None, name: str, use: str = "streams") -> Path | None:
    """Return the file of an option of Java."""
    prefix = f"-XX:{name}="
    values = [text.removeprefix(prefix) for text in archive_options(home, use) if prefix in text]
    return Path(values[0]) if values else None


def draft(home: Path, use: str = "streams") -> Path:
    path = option(home, "ArchiveClassesAtExit", use)
    assert path is not None
    return path


def archive(home: Path, use: str = "streams") -> Path | None:
    return option(home, "SharedArchiveFile", use)


def test_first_start_writes_the_archive_and_the_next_one_uses_it(java: Path, home: Path) -> None:
    first = draft(home)
    assert archive(home) is None
    first.write_bytes(HEADER + b"classes")

    used = archive(home)

    assert used is not None
    assert used.read_bytes() == HEADER + b"classes"
    assert list(home.iterdir()) == [used]
    assert option(home, "ArchiveClassesAtExit") is None


def test_file_that_java_has_not_finished_is_not_used(java: Path, home: Path) -> None:
    draft(home).write_bytes(bytes(8))

    assert archive(home) is None


def test_other_work_and_another_java_have_archives_of_their_own(java: Path, home: Path) -> None:
    draft(home).write_bytes(HEADER)
    old = archive(home)
    assert archive(home, "queries") is None

    (java / "lib" / "modules").write_bytes(b"another")
    assert archive(home) is None
    draft(home).write_bytes(HEADER)
    new = archive(home)

    assert new != old
    assert list(home.iterdir()) == [new]


def test_files_of_other_processes_are_deleted_when_they_are_not_needed(
    java: Path, home: Path
) -> None:
    mine = draft(home)
    copy = mine.with_name(mine.name.replace(str(os.getpid()), "1"))
    killed = mine.with_name(mine.name.replace(str(os.getpid()), "2"))
    unfinished = mine.with_name(mine.name.replace(str(os.getpid()), "3"))
    for path in (mine, copy):
        path.write_bytes(HEADER)
    for path in (killed, unfinished):
        path.write_bytes(bytes(4))
    age = killed.stat().st_mtime - MAX_DRAFT_AGE_S - 1
    os.utime(killed, (age, age))

    used = archive(home)

    assert set(home.iterdir()) == {used, unfinished}


def test_options_of_the_user_are_not_changed(
    java: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=mine.jsa")

    assert archive_options(home, "streams") == []


@pytest.mark.parametrize("name", ["with space", 'with"quote'])
def test_folder_that_cannot_be_an_option_has_no_archive(
    java: Path, tmp_path: Path, name: str
) -> None:
    assert archive_options(tmp_path / name, "streams") == []


def test_spark_starts_without_an_archive_if_there_is_no_java_or_no_folder(
    java: Path, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert archive_options(None, "streams") == []
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "missing"))
    assert archive_options(home, "streams") == []
