"""The home folder of Spark whose Python processes start fast."""

import os
import sys
from pathlib import Path

import pyspark
import pytest

from pairbus.spark.spark_home import fast_home


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path / "cache"


def test_home_has_all_of_the_package_except_the_archive_of_pyspark(cache: Path) -> None:
    with fast_home():
        home = Path(os.environ["SPARK_HOME"])

    assert "SPARK_HOME" not in os.environ
    assert home.parent == cache / "pairbus"
    package = Path(pyspark.__path__[0])
    entries = {entry.name for entry in package.iterdir()}
    assert {entry.name for entry in home.iterdir()} == entries - {"python"}
    assert (home / "bin" / "spark-submit").samefile(package / "bin" / "spark-submit")


def test_home_is_created_once(cache: Path) -> None:
    homes = []
    for _ in range(2):
        with fast_home():
            homes.append(os.environ["SPARK_HOME"])

    assert homes[0] == homes[1]
    assert [str(entry) for entry in (cache / "pairbus").iterdir()] == homes[:1]


def test_home_and_interpreter_of_the_user_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/other")
    with fast_home():
        assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with fast_home():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_spark_starts_as_usual_without_a_place_for_the_folder(cache: Path) -> None:
    cache.write_text("not a folder")
    with fast_home():
        assert "SPARK_HOME" not in os.environ


def test_spark_starts_as_usual_with_a_package_that_its_processes_may_not_find(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pyspark, "__path__", [str(tmp_path / "pyspark")])
    with fast_home():
        assert "SPARK_HOME" not in os.environ
