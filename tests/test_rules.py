"""docs/rules.md and the tests name the same rules, and the generated list is current."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.rules import BEGIN, END, Claim, Rule, RulesError, parse_rules, proofs_of, summary

ROOT = Path(__file__).resolve().parent.parent
PAGE = f"""# Rules

### S1 Sending (required)
Words.

### S2a Waiting (beyond)
Words.

{BEGIN}{END}
"""


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "rules.py"), "--root", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with two rules, and a test that proves the first of them."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\ntestpaths = ["tests"]\nmarkers = ["rule(*ids): proves"]\n'
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "rules.md").write_text(PAGE)
    (tmp_path / "tests").mkdir()
    prove(tmp_path, "S1")
    return tmp_path


def prove(project: Path, rule: str) -> None:
    (project / "tests" / "test_sending.py").write_text(
        "import pytest\n\n"
        f'@pytest.mark.rule("{rule}")\n'
        '@pytest.mark.parametrize("size", [1, 2])\n'
        "def test_sends(size): ...\n"
    )


def test_rules_page_is_up_to_date_and_every_marker_names_a_rule():
    result = run(ROOT, "--check")

    assert result.returncode == 0, result.stderr


def test_list_names_each_test_once_and_says_which_rules_have_none(project: Path):
    result = run(project)

    assert result.stdout == (
        "S1   Sending\n"
        "       tests/test_sending.py::test_sends\n"
        "S2a  Waiting\n"
        "       no test yet\n"
        "\n"
        "1 of 2 rules have a test; 1 have no test yet.\n"
    )
    page = (project / "docs" / "rules.md").read_text()
    assert "- **S1** Sending\n  - `tests/test_sending.py::test_sends`\n" in page
    assert "- **S2a** Waiting: no test yet\n" in page


def test_check_passes_until_a_proof_is_gone(project: Path):
    run(project)
    before = run(project, "--check")
    (project / "tests" / "test_sending.py").write_text("def test_sends(): ...\n")
    after = run(project, "--check")

    assert (before.returncode, after.returncode) == (0, 1)
    assert "run 'make rules'" in after.stderr


def test_unknown_rule_in_a_marker_is_named_and_nothing_is_written(project: Path):
    prove(project, "S99")

    result = run(project)

    assert result.returncode == 1
    assert "tests/test_sending.py::test_sends names the rule S99" in result.stderr
    assert (project / "docs" / "rules.md").read_text() == PAGE


def test_tests_that_cannot_be_imported_fail_the_run(project: Path):
    (project / "tests" / "test_sending.py").write_text("import no_such_module\n")

    result = run(project, "--check")

    assert result.returncode == 1
    assert "no_such_module" in result.stderr


def test_a_test_may_prove_several_rules():
    rules = [Rule("S1", "Sending"), Rule("G1", "Pinging")]
    claims = [Claim("S1", "tests/a.py::test_a"), Claim("G1", "tests/a.py::test_a")]

    assert proofs_of(rules, claims) == {rule: ["tests/a.py::test_a"] for rule in rules}


@pytest.mark.parametrize(
    "text",
    ["### S1 No kind\n", "### Sending (required)\n", "### S1 A (required)\n### S1 B (beyond)\n"],
)
def test_heading_that_is_no_rule_and_doubled_id_are_refused(text: str):
    with pytest.raises(RulesError):
        parse_rules(text)


def test_summary_counts_all_rules_of_the_page():
    rules = parse_rules((ROOT / "docs" / "rules.md").read_text(encoding="utf-8"))

    assert len(rules) > 40
    assert summary(proofs_of(rules, [])) == (
        f"0 of {len(rules)} rules have a test; {len(rules)} have no test yet."
    )
