"""The alert rules are valid, fire when they should, and are documented."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.promql import ExpressionNames, metrics_of_the_code, run_promtool

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy" / "prometheus"
RULES = FOLDER / "alerts.yml"
TESTS = sorted(FOLDER.glob("*_test.yml"))
PAGE = (ROOT / "docs" / "how-to" / "alerts.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.rule("O1")


@dataclass(frozen=True, slots=True)
class PrometheusRule:
    """One rule of the file."""

    kind: str
    name: str
    expression: str
    text: str


def parse_rules(text: str) -> list[PrometheusRule]:
    """Return the rules of a file. There is no YAML parser among the packages of the tests; promtool
    checks the whole file."""
    rules: list[PrometheusRule] = []
    for block in re.split(r"^      - (?=alert:|record:)", text, flags=re.MULTILINE)[1:]:
        kind, name = block.splitlines()[0].split(": ")
        found = re.search(
            r"^        expr: (?:\|\n((?:          .*\n)+)|(.*)\n)", block, re.MULTILINE
        )
        assert found is not None, name
        rules.append(PrometheusRule(kind, name, found[1] or found[2], block))
    return rules


ALL_RULES = parse_rules(RULES.read_text(encoding="utf-8"))
ALERTS = [rule for rule in ALL_RULES if rule.kind == "alert"]
NAMES = [alert.name for alert in ALERTS]
of_each_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)


def test_rules_are_valid() -> None:
    result = run_promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)

    assert result.returncode == 0, result.stderr
    assert f"{len(ALL_RULES)} rules found" in result.stdout


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_alerts_fire_when_they_should(path: Path) -> None:
    result = run_promtool("test", "rules", path)

    assert result.returncode == 0, result.stdout + result.stderr
    assert "SUCCESS" in result.stdout


def test_wrong_rule_fails_its_tests(tmp_path: Path) -> None:
    right, wrong = (
        "pairing_path:pairbus_failover:max == 1\n        for",
        "vector(0) > 1\n        for",
    )
    text = RULES.read_text(encoding="utf-8")
    assert text.count(right) == 1
    (tmp_path / RULES.name).write_text(text.replace(right, wrong), encoding="utf-8")
    tests = shutil.copy(FOLDER / "alerts_test.yml", tmp_path)

    result = run_promtool("test", "rules", tests)

    assert result.returncode == 1
    assert "alertname: PairbusPathInFailover" in result.stdout + result.stderr


def test_every_alert_fires_in_one_test_and_not_in_another() -> None:
    firing: set[str] = set()
    silent: set[str] = set()
    for path in TESTS:
        text = path.read_text(encoding="utf-8")
        firing |= {*re.findall(r"- alertname: (\w+)\n\s+eval_time: \w+\n\s+exp_alerts:\n", text)}
        silent |= {*re.findall(r"- \{alertname: (\w+), eval_time: \w+\}", text)}

    assert firing == silent == {*NAMES}


def test_names_are_unique() -> None:
    assert len({*NAMES}) == len(NAMES)
    assert all(name.startswith("Pairbus") for name in NAMES)


@of_each_alert
def test_alert_has_what_an_operator_needs(alert: PrometheusRule) -> None:
    assert re.search(r"^          severity: (critical|warning)$", alert.text, re.MULTILINE)
    assert re.search(r"^        for: \d+[mh]$", alert.text, re.MULTILINE)
    for name in ("summary", "description"):
        assert re.search(rf"^          {name}: ", alert.text, re.MULTILINE), name
    assert f"runbook_url: docs/how-to/alerts.md#{alert.name.lower()}\n" in alert.text


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.name)
def test_rule_uses_metrics_and_labels_of_the_code(rule: PrometheusRule) -> None:
    known = metrics_of_the_code()
    for other in ALL_RULES:
        if other.kind == "record":
            known[other.name] = {*other.name.partition(":")[0].split("_")}

    assert ExpressionNames.parse(rule.expression).unknown(known) == []


def test_page_has_a_section_for_each_alert_in_their_order() -> None:
    assert re.findall(r"^### (\w+)$", PAGE, re.MULTILINE) == NAMES


@of_each_alert
def test_section_says_what_to_do(alert: PrometheusRule) -> None:
    section = PAGE.partition(f"### {alert.name}\n")[2].partition("\n#")[0]
    severity = re.search(r"severity: (\w+)", alert.text)
    assert severity is not None

    assert section.strip().startswith(f"{severity[1]}. ")
    assert "- **Look at** " in section
    assert "- **Do:** " in section
    assert "\npairbus " in section


def test_commands_of_the_page_exist() -> None:
    lines = re.findall(r"^pairbus .*$", PAGE, re.MULTILINE)
    assert lines
    for line in lines:
        words = line.split()
        names = [word for word in words if re.fullmatch(r"[a-z-]+", word) and word[0] != "-"]
        # Values of options and arguments can look like names of commands.
        heading = next(
            f"## {' '.join(names[:count])}\n"
            for count in range(len(names), 1, -1)
            if f"\n## {' '.join(names[:count])}\n" in COMMANDS
        )
        section = COMMANDS.partition(f"\n{heading}")[2].partition("\n## ")[0]
        for option in (word for word in words if word.startswith("--")):
            assert f"| `{option}" in section, line


def test_example_configuration_is_valid() -> None:
    result = run_promtool("check", "config", "--syntax-only", FOLDER / "prometheus.yml")

    assert result.returncode == 0, result.stderr
