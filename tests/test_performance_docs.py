"""docs/reference/performance.md is generated from benchmarks/results.json."""

import re
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import RATE, Figure
from benchmarks.results import SubjectResult, save
from scripts.performance import TITLES, page

ROOT = Path(__file__).resolve().parent.parent


def result(**changes: object) -> SubjectResult:
    values = {
        "about": "The syphon\ncompared with a shovel.\n\nBoth use durable queues.",
        "when": "2026-11-16T05:10:00+00:00",
        "seconds": 190.0,
        "load": 0.1,
        "rounds": 7,
        "surroundings": {
            "machine": "x86_64",
            "processor": "Z80",
            "cores": 2,
            "system": "Linux",
            "commit": "0123abc",
            "versions": {"Python": "3.11.7", "duckdb": "not installed"},
        },
        "figures": [
            Figure("moved", {"pairbus": 12000.0, "Shovel": 10000.0}, RATE, aim=2),
            Figure("moved, batched", {"pairbus": 9000.0}, RATE, notes={"Shovel": "not supported"}),
        ],
    }
    return SubjectResult(**{**values, **changes})


def check(root: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "scripts.performance", "--check", "--root", str(root)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_page_matches_the_results():
    process = check(ROOT)

    assert process.returncode == 0, process.stderr


def test_page_that_is_out_of_date_fails_the_check(tmp_path: Path):
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    (tmp_path / "docs" / "reference" / "performance.md").write_text(page({}))
    assert check(tmp_path).returncode == 0
    save(tmp_path / "benchmarks" / "results.json", "syphon", result())

    process = check(tmp_path)

    assert process.returncode == 1
    assert "make performance" in process.stderr


def test_page_has_the_figures_and_the_command_that_repeats_them():
    text = page({"syphon": result()})

    assert "The syphon compared with a shovel.\n\nBoth use durable queues." in text
    assert "Reproduce: `make bench ARGS=syphon` (took 3 min)" in text
    assert "| moved | 12,000 | 10,000 | 1.20 | 2: **not met** |" in text
    assert "| moved, batched | 9,000 | not supported |  |  |" in text
    assert "0 of 1 are met." in text
    assert "| syphon | 2026-11-16 05:10 | 3 min | `0123abc` | 0.10, quiet |" in text
    assert "| duckdb | not installed |" in text


def test_command_has_the_settings_and_the_number_of_rounds():
    text = page({"cost": result(settings={"BENCH_COST_ROWS": "1,10"}, rounds=2)})

    assert """`BENCH_COST_ROWS='1,10' make bench ARGS="cost --rounds 2"`""" in text


def test_benchmark_without_results_is_listed_with_its_command():
    text = page({})

    for subject in TITLES:
        assert f"Not measured yet. Run: `make bench ARGS={subject}`." in text


def test_links_point_to_headings_of_the_page():
    text = page({"syphon": result()})
    headings = {
        "#" + line[3:].lower().replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("## ")
    }

    links = set(re.findall(r"\]\((#[^)]+)\)", text))

    assert links
    assert links <= headings


def test_different_machines_and_versions_are_listed_separately():
    other = {**result().surroundings, "versions": {"Python": "3.12.1"}}

    text = page({"syphon": result(), "engine": result(), "cost": result(surroundings=other)})

    assert "engine, syphon:\n" in text
    assert "\ncost:\n" in text
    assert "| Python | 3.12.1 |" in text
