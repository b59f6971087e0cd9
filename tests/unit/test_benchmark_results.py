"""Figures of benchmarks: ratios and aims, the file that keeps them, and the table."""

import json
from pathlib import Path

import pytest

from benchmarks.harness import RATE, SECONDS, Figure, table
from benchmarks.results import Taken, keep, read, settings_of
from benchmarks.surroundings import MISSING, surroundings, versions


def rate(ours: float, aim: float | None = None, **others: float) -> Figure:
    return Figure("moved", {"pairbus": ours, **others}, RATE, aim=aim)


def taken(*figures: Figure, when: str = "2026-11-16T05:10:00+00:00", load: float = 0.1) -> Taken:
    return Taken(
        about="What is measured.",
        when=when,
        seconds=12.0,
        load=load,
        rounds=7,
        surroundings={"cores": 2, "commit": "0123abc"},
        figures=list(figures),
    )


def test_ratio_above_one_means_that_ours_is_better_whether_more_is_better_or_less():
    assert rate(20, shovel=10).ratios == {"shovel": 2}
    assert Figure("start", {"pairbus": 1.0, "other": 3.0}, SECONDS).ratios == {"other": 3}


def test_aim_is_held_against_the_first_of_the_others():
    assert rate(20, 2, shovel=10, one_broker=40).met is True
    assert rate(20, 2, shovel=11, one_broker=1).met is False


def test_aim_can_be_for_the_figure_itself():
    slow = Figure("read", {"pairbus": 4.0, "other": 40.0}, aim=3, aim_is_value=True)
    quick = Figure("read", {"pairbus": 3.0, "other": 1.0}, aim=3, aim_is_value=True)

    assert (slow.met, quick.met) == (False, True)
    assert (slow.reached, slow.shown_aim) == ("4.00", "3 µs a message")


def test_aim_without_anybody_to_compare_with_is_neither_met_nor_missed():
    assert rate(20, 2).met is None
    assert rate(20, shovel=1).met is None


def test_figures_come_back_from_the_file_as_they_were(tmp_path: Path):
    file = tmp_path / "results.json"
    first = taken(rate(20, 2, shovel=10), Figure("x", {"pairbus": 1.5}, notes={"shovel": "cannot"}))

    keep(file, "syphon", first)

    assert read(file) == {"syphon": first}


def test_one_subject_replaces_its_own_figures_and_keeps_those_of_the_others(tmp_path: Path):
    file = tmp_path / "results.json"
    keep(file, "engine", taken(rate(1)))
    keep(file, "emulator", taken(rate(2), when="2026-11-15T00:00:00+00:00"))

    keep(file, "engine", taken(rate(3)))

    found = read(file)
    assert [figure.values["pairbus"] for figure in found["engine"].figures] == [3]
    assert [figure.values["pairbus"] for figure in found["emulator"].figures] == [2]
    assert found["emulator"].when == "2026-11-15T00:00:00+00:00"
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.json"]


def test_file_of_an_older_format_counts_as_none(tmp_path: Path):
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"python": "3.11", "figures": []}))

    assert read(file) == {}
    assert read(tmp_path / "absent.json") == {}


@pytest.mark.parametrize(("load", "loaded"), [(0.1, False), (0.5, False), (0.6, True), (3.0, True)])
def test_machine_counts_as_loaded_above_a_quarter_of_its_cores(load: float, loaded: bool):
    assert taken(load=load).loaded is loaded


def test_load_says_nothing_where_another_subject_has_just_ended():
    plain = {**taken(load=2.0).plain(), "after": "engine"}

    assert Taken.from_plain(plain).loaded is None


def test_settings_that_make_it_another_measurement_are_kept():
    environment = {"BENCH_COST_ROWS": "1", "HOME": "/nowhere", "BENCH_SYPHON": "rates"}

    assert settings_of(environment) == {"BENCH_COST_ROWS": "1", "BENCH_SYPHON": "rates"}


def test_surroundings_name_every_version_or_say_that_it_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    found = versions()

    assert {"pairbus", "azure-servicebus", "pyspark", "pyarrow", "duckdb"} <= found.keys()
    assert (found["Java"], found["RabbitMQ"]) == (MISSING, MISSING)
    assert surroundings()["commit"] == "unknown"


def test_table_has_a_row_for_each_contender_and_says_which_aims_are_not_met():
    figures = [rate(20, 3, shovel=10, other=40), Figure("start", {"pairbus": 1.0}, SECONDS)]

    lines = [line.split() for line in table({"syphon": figures}).splitlines()]

    assert lines[2:] == [
        ["syphon"],
        *[["moved", "messages", "a", "second", "20", "shovel", "10", "2.00", "3,", "not", "met"]],
        ["other", "40", "0.50"],
        ["start", "seconds", "1.00"],
    ]
