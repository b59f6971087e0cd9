"""docs/reference/telemetry.md has the metrics and spans of the code, and its example runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pairbus.emulator import LocalNamespace
from pairbus.telemetry import drains, spans
from pairbus.telemetry.metrics import METRICS, Metric, MetricKind
from scripts.telemetry_docs import PAGE, updated
from scripts.wheel_example import first_example

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 120.0
TEXT = PAGE.read_text(encoding="utf-8")

pytestmark = pytest.mark.rule("O1")


def test_table_has_the_metrics_of_the_code() -> None:
    assert updated(TEXT) == TEXT, "Run 'make docs'."
    assert all(f"| `{name}` |" in TEXT for name in METRICS)


def test_check_fails_if_the_table_is_out_of_date() -> None:
    assert updated(TEXT.replace("pairbus.failovers", "pairbus.failures")) == TEXT


def test_every_span_is_in_the_table() -> None:
    names = (spans.FAILOVER_NAME, spans.STORE_NAME, drains.WAIT_NAME, drains.DRAIN_NAME)
    words = set(re.findall(r"^\| `(\w+) [A-Z]+` \|", TEXT, re.MULTILINE))
    assert words == {name.partition(" ")[0] for name in names}


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_metric_follows_the_naming_rules(metric: Metric) -> None:
    assert re.fullmatch(r"(messaging|pairbus)(\.[a-z_]+)+", metric.name)
    assert not metric.name.endswith(("total", "count", "seconds"))
    assert metric.description.endswith(".")
    if metric.kind is MetricKind.HISTOGRAM:
        assert metric.unit == "s"
    if metric.kind is MetricKind.COUNTER:
        assert metric.unit == "By" or re.fullmatch(r"\{\w+\}", metric.unit)


def test_example_records_metrics(tmp_path: Path) -> None:
    with LocalNamespace("primary") as primary, LocalNamespace("secondary") as secondary:
        primary.create_queue("orders")
        script = tmp_path / "example.py"
        names = f"PRIMARY = {primary.connection_string!r}\n"
        names += f"SECONDARY = {secondary.connection_string!r}\n"
        script.write_text(names + first_example(TEXT), encoding="utf-8")
        result = subprocess.run(
            [sys.executable, script],
            env={"PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    assert result.returncode == 0, result.stderr
    for name in ("messaging.client.sent.messages", "messaging.client.operation.duration"):
        assert f'"{name}"' in result.stdout
