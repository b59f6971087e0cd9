"""The Grafana dashboard uses metrics that exist, in expressions that parse, on a valid grid."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.promql import ExpressionNames, metrics_of_the_code, run_promtool

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD: dict[str, Any] = json.loads(
    (ROOT / "deploy" / "grafana" / "pairbus.json").read_text(encoding="utf-8")
)
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
TARGETS = [
    pytest.param(panel, target, id=f"{panel['title']} {target['refId']}")
    for panel in PANELS
    for target in panel.get("targets", ())
]
COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

pytestmark = pytest.mark.rule("O1")


def with_values(expression: str) -> str:
    """Return an expression with values in place of Grafana's variables."""
    return expression.replace("$__rate_interval", "1m").replace("$pairing", "orders")


def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
    """Return the cells of the grid that a panel covers."""
    place = panel["gridPos"]
    return {
        (column, line)
        for column in range(place["x"], place["x"] + place["w"])
        for line in range(place["y"], place["y"] + place["h"])
    }


def test_dashboard_is_one_that_grafana_11_reads() -> None:
    assert DASHBOARD["schemaVersion"] >= 39
    assert re.fullmatch(r"[\w-]{1,40}", DASHBOARD["uid"])
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "pairing"]
    assert variables["pairing"]["datasource"] == SOURCE
    ids = [panel["id"] for panel in PANELS]
    assert len({*ids}) == len(ids)


def test_panels_do_not_overlap_and_fit_the_width() -> None:
    for one, other in combinations(PANELS, 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])
    assert {column for panel in PANELS for column, _ in cells(panel)} == {*range(COLUMNS)}


def test_each_row_is_a_question_above_its_panels() -> None:
    rows = [panel for panel in PANELS if panel["type"] == "row"]
    assert PANELS[0] is rows[0]
    assert all(row["title"].endswith("?") for row in rows)
    lines = [panel["gridPos"]["y"] for panel in PANELS]
    for row in rows:
        index = PANELS.index(row)
        assert max(lines[:index], default=-1) < row["gridPos"]["y"] < min(lines[index + 1 :])


@pytest.mark.parametrize(
    "panel", [each for each in PANELS if each["type"] != "row"], ids=lambda panel: panel["title"]
)
def test_panel_is_described_and_uses_the_chosen_source(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith((".", "list"))
    assert panel["datasource"] == SOURCE
    assert panel["targets"]


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_target_uses_metrics_and_labels_of_the_code(
    panel: dict[str, Any], target: dict[str, Any]
) -> None:
    names = ExpressionNames.parse(with_values(target["expr"]))

    assert names.metrics
    assert names.unknown(metrics_of_the_code()) == []
    assert all("pairing" in labels for labels in names.metrics.values())
    assert {*re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])} <= names.grouping


def test_expressions_parse(tmp_path: Path) -> None:
    expressions = [
        with_values(target["expr"]) for panel in PANELS for target in panel.get("targets", ())
    ]
    rules = [
        {"record": f"dashboard:target:{number}", "expr": expression}
        for number, expression in enumerate(expressions)
    ]
    path = tmp_path / "dashboard.yml"  # JSON is YAML
    path.write_text(
        json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8"
    )

    result = run_promtool("check", "rules", path)

    assert result.returncode == 0, result.stderr
    assert f"{len(rules)} rules found" in result.stdout


def test_wrong_names_are_found() -> None:
    expression = (
        'sum by (queue) (rate(pairbus_pings_total{path="a", colour="b"}[5m])) / pairbus_pongs'
    )

    assert ExpressionNames.parse(expression).unknown(metrics_of_the_code()) == [
        "by (queue)",
        "pairbus_pings_total{colour}",
        "pairbus_pongs",
    ]
