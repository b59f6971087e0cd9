"""Checks before Spark starts."""

from pathlib import Path

import pytest

from pairbus.cli.cost_report import are_small, missing_paths
from pairbus.cli.spark_requirements import java_problem, java_version
from tests.commands import run_here


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.12" 2024-07-16', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("not a version", None),
    ],
)
def test_java_version_is_found_in_its_output(output: str, version: int | None) -> None:
    assert java_version(output) == version


def test_java_home_without_java_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java_problem() == (
        f"Spark needs Java 17 or 21, which was not found in JAVA_HOME ({tmp_path}). Install it, or "
        "set JAVA_HOME."
    )


def test_old_java_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java_problem() == f"Spark needs Java 17 or 21, and {java} is Java 11. Set JAVA_HOME."


def test_drill_without_java_does_not_start(tmp_path: Path) -> None:
    result = run_here("drill", "--folder", str(tmp_path / "drill"), JAVA_HOME=str(tmp_path))

    assert result.exit_code == 1
    assert "Spark needs Java 17 or 21" in result.stderr
    assert not (tmp_path / "drill").exists()


def test_report_of_missing_paths_fails_without_spark(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    # Without Java, a report that tries to start Spark has another error.
    result = run_here("cost", "report", gone, JAVA_HOME=str(tmp_path))

    assert result.exit_code == 1
    assert (
        result.stderr.split()
        == f"{gone}: no such file or folder. Name the ledger of a pairing.".split()
    )


def test_only_plain_local_paths_are_known_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    paths = [
        str(tmp_path),
        str(tmp_path / "gone"),
        f"{tmp_path}/*.jsonl",
        "abfss://a@b/c",
        "file:/x",
    ]

    assert missing_paths(paths) == [str(tmp_path / "gone")]

    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert missing_paths(paths) == []


def test_only_small_files_of_this_machine_are_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "in-folder").write_bytes(bytes(60))
    (tmp_path / "file").write_bytes(bytes(40))
    both = [str(tmp_path / "folder"), str(tmp_path / "file")]

    assert are_small(both, max_bytes=100)
    assert not are_small(both, max_bytes=99)
    assert are_small([str(tmp_path / "gone")], max_bytes=0)
    assert not are_small([f"{tmp_path}/*"], max_bytes=10**6)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert not are_small(both, max_bytes=10**6)


def test_report_on_spark_connect_is_an_error() -> None:
    result = run_here("cost", "report", "--master", "sc://localhost:1")

    assert result.exit_code == 2
    assert "A session of Spark Connect cannot make a cost report" in result.stderr
