"""The rules of docs/reference/rules.md and the markers of the tests match."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.rules import LIST, Claim, Rule, RulesError, parse_rules, proofs_by_rule, summary

ROOT = Path(__file__).resolve().parent.parent
PAGE = """# Rules

### S1 Sending (required)
Text.

### S2a Waiting (beyond, planned)
Text.
"""


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "rules.py"), "--root", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with two rules and one test, which proves the first rule."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\ntestpaths = ["tests"]\nmarkers = ["rule(*ids): proves"]\n'
    )
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    (tmp_path / "docs" / "reference" / "rules.md").write_text(PAGE)
    (tmp_path / "tests").mkdir()
    write_test(tmp_path, "S1")
    return tmp_path


def write_test(project: Path, rule: str) -> None:
    (project / "tests" / "test_sending.py").write_text(
        "import pytest\n\n"
        f'@pytest.mark.rule("{rule}")\n'
        '@pytest.mark.parametrize("size", [1, 2])\n'
        "def test_sends(size): ...\n"
    )


def test_every_marker_names_a_rule_and_every_rule_that_is_not_planned_has_a_test():
    result = run(ROOT, "--check")

    assert result.returncode == 0, result.stderr


def test_list_names_each_test_once_and_shows_rules_without_tests(project: Path):
    result = run(project)

    assert result.stdout == (
        "S1   Sending\n"
        "       tests/test_sending.py::test_sends\n"
        "S2a  Waiting\n"
        "       no test yet\n"
        "\n"
        "1 of 2 rules have tests. Without tests: S2a.\n"
    )
    page = (project / LIST).read_text()
    assert "- **S1** Sending\n  - `tests/test_sending.py::test_sends`\n" in page
    assert "- **S2a** Waiting: no test yet\n" in page


def test_check_prints_rules_without_tests_and_writes_nothing(project: Path):
    result = run(project, "--check")

    assert result.returncode == 0
    assert result.stdout == "1 of 2 rules have tests. Without tests: S2a.\n"
    assert not (project / LIST).exists()


def test_check_fails_when_a_rule_that_is_not_planned_loses_its_last_test(project: Path):
    (project / "tests" / "test_sending.py").write_text("def test_sends(): ...\n")

    result = run(project, "--check")

    assert result.returncode == 1
    assert "No test proves rule S1 (Sending)." in result.stderr


def test_unknown_rule_in_a_marker_fails_and_nothing_is_written(project: Path):
    write_test(project, "S99")

    result = run(project)

    assert result.returncode == 1
    assert "tests/test_sending.py::test_sends names rule S99" in result.stderr
    assert not (project / LIST).exists()


def test_check_fails_when_the_tests_cannot_be_imported(project: Path):
    (project / "tests" / "test_sending.py").write_text("import no_such_module\n")

    result = run(project, "--check")

    assert result.returncode == 1
    assert "no_such_module" in result.stderr


def test_a_test_may_prove_several_rules():
    rules = [Rule("S1", "Sending"), Rule("G1", "Pinging")]
    claims = [Claim("S1", "tests/a.py::test_a"), Claim("G1", "tests/a.py::test_a")]

    assert proofs_by_rule(rules, claims) == {rule: ["tests/a.py::test_a"] for rule in rules}


@pytest.mark.parametrize(
    "text",
    ["### S1 No kind\n", "### Sending (required)\n", "### S1 A (required)\n### S1 B (beyond)\n"],
)
def test_heading_that_is_not_a_rule_and_duplicate_id_are_rejected(text: str):
    with pytest.raises(RulesError):
        parse_rules(text)


def test_summary_counts_all_rules_of_the_page():
    rules = parse_rules((ROOT / "docs" / "reference" / "rules.md").read_text(encoding="utf-8"))

    assert len(rules) > 60
    assert summary(proofs_by_rule(rules, [])).startswith(f"0 of {len(rules)} rules have tests.")
