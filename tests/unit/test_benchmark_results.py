"""Benchmark results: ratios and targets, the results file, and the table."""

import json
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.harness import RATE, SECONDS, Figure, table
from benchmarks.intervals import pooled
from benchmarks.results import SubjectResult, bench_settings, read, save
from benchmarks.surroundings import MISSING, surroundings, versions


def rate(ours: float, aim: float | None = None, **others: float) -> Figure:
    return Figure("moved", {"pairbus": ours, **others}, RATE, aim=aim)


def result(
    *figures: Figure, when: str = "2026-11-16T05:10:00+00:00", load: float = 0.1
) -> SubjectResult:
    return SubjectResult(
        about="A description.",
        when=when,
        seconds=12.0,
        load=load,
        rounds=7,
        surroundings={"cores": 2, "commit": "0123abc"},
        figures=list(figures),
    )


def test_ratio_above_one_means_that_pairbus_is_better_in_every_unit():
    assert rate(20, shovel=10).ratios == {"shovel": 2}
    assert Figure("start", {"pairbus": 1.0, "other": 3.0}, SECONDS).ratios == {"other": 3}


def test_aim_is_compared_with_the_ratio_to_the_first_contender():
    assert rate(20, 2, shovel=10, one_broker=40).met is True
    assert rate(20, 2, shovel=11, one_broker=1).met is False


def test_aim_can_be_a_value_in_the_unit_of_the_figure():
    slow = Figure("read", {"pairbus": 4.0, "other": 40.0}, aim=3, aim_is_value=True)
    quick = Figure("read", {"pairbus": 3.0, "other": 1.0}, aim=3, aim_is_value=True)

    assert (slow.met, quick.met) == (False, True)
    assert (slow.measured, slow.aim_text) == ("4.00", "3 µs per message")


def test_aim_without_a_contender_is_neither_met_nor_missed():
    assert rate(20, 2).met is None
    assert rate(20, shovel=1).met is None


@pytest.mark.parametrize(
    ("ratio", "interval", "verdict"),
    [
        (1.0, (0.9, 1.1), "met"),
        (0.97, (0.9, 1.1), "not decided"),
        (0.97, (0.96, 0.975), "not met"),
        (0.97, None, "not met"),
    ],
)
def test_aim_within_the_interval_of_a_lower_ratio_is_not_decided(
    ratio: float, interval: tuple[float, float] | None, verdict: str
):
    values = {"pairbus": ratio, "plain SDK": 1.0}

    assert Figure("sent", values, RATE, aim=0.98, interval=interval).verdict == verdict


def test_interval_contains_the_ratio_of_all_blocks():
    pairs = [(10 + number % 5, 20 + number % 3) for number in range(60)]

    figure = pooled("sent", SECONDS, fmean, pairs, contender="plain SDK", aim=1)

    assert figure.values == {"pairbus": 12, "plain SDK": 21}
    assert figure.interval is not None
    assert figure.interval[0] <= figure.ratios["plain SDK"] <= figure.interval[1]
    assert figure.verdict == "met"


def test_blocks_that_are_all_alike_have_no_uncertainty():
    figure = pooled("sent", SECONDS, sum, [(2.0, 4.0)] * 10, contender="plain SDK")

    assert figure.interval == (2, 2)


def test_saved_results_are_read_unchanged(tmp_path: Path):
    file = tmp_path / "results.json"
    first = result(
        rate(20, 2, shovel=10),
        Figure("x", {"pairbus": 1.5}, notes={"shovel": "not supported"}),
        Figure("y", {"pairbus": 1.5, "other": 1.0}, spread=(0.5, 0.7), interval=(0.6, 0.8)),
    )

    save(file, "syphon", first)

    assert read(file) == {"syphon": first}


def test_saving_a_subject_keeps_the_results_of_other_subjects(tmp_path: Path):
    file = tmp_path / "results.json"
    save(file, "engine", result(rate(1)))
    save(file, "emulator", result(rate(2), when="2026-11-15T00:00:00+00:00"))

    save(file, "engine", result(rate(3)))

    results = read(file)
    assert [figure.values["pairbus"] for figure in results["engine"].figures] == [3]
    assert [figure.values["pairbus"] for figure in results["emulator"].figures] == [2]
    assert results["emulator"].when == "2026-11-15T00:00:00+00:00"
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.json"]


def test_missing_file_or_file_of_an_older_format_has_no_results(tmp_path: Path):
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"python": "3.11", "figures": []}))

    assert read(file) == {}
    assert read(tmp_path / "absent.json") == {}


@pytest.mark.parametrize(("load", "loaded"), [(0.1, False), (0.5, False), (0.6, True), (3.0, True)])
def test_machine_counts_as_loaded_above_a_quarter_of_its_cores(load: float, loaded: bool):
    assert result(load=load).loaded is loaded


def test_load_is_unknown_directly_after_another_subject():
    data = {**result(load=2.0).to_json(), "after": "engine"}

    assert SubjectResult.from_json(data).loaded is None


def test_settings_are_the_environment_variables_of_the_benchmarks():
    environment = {"BENCH_COST_ROWS": "1", "HOME": "/nowhere", "BENCH_SYPHON": "rates"}

    assert bench_settings(environment) == {"BENCH_COST_ROWS": "1", "BENCH_SYPHON": "rates"}


def test_missing_software_is_reported_as_not_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    software = versions()

    assert {"pairbus", "azure-servicebus", "pyspark", "pyarrow", "duckdb"} <= software.keys()
    assert (software["Java"], software["RabbitMQ"]) == (MISSING, MISSING)
    assert surroundings()["commit"] == "unknown"


def test_table_has_a_row_for_each_contender_and_marks_targets_that_are_not_met():
    figures = [rate(20, 3, shovel=10, other=40), Figure("start", {"pairbus": 1.0}, SECONDS)]

    lines = [line.split() for line in table({"syphon": figures}).splitlines()]

    assert lines[2:] == [
        ["syphon"],
        *[["moved", "messages", "per", "second", "20", "shovel", "10", "2.00", "3,", "not", "met"]],
        ["other", "40", "0.50"],
        ["start", "seconds", "1.00"],
    ]
