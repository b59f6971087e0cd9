"""Names in PromQL expressions, the metrics of the code, and `promtool`."""

import re
import subprocess
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pairbus.telemetry.metrics import METRICS, MetricKind
from pairbus.telemetry.prometheus import prometheus_name
from tests.prometheus import program
from tests.waiting import DEADLINE_S

TARGET_LABELS = frozenset({"job", "instance", "pairing"})
"""Labels that Prometheus or its configuration adds to each metric."""
KEYWORDS = frozenset({"and", "or", "unless", "offset", "bool"})

_TEXT = r'"(?:[^"\\]|\\.)*"'
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SELECTOR = re.compile(rf"({_NAME})\s*\{{((?:[^{{}}\"]|{_TEXT})*)\}}")
_MATCHER = re.compile(rf"({_NAME})\s*(?:=~|!~|!=|=)\s*{_TEXT}")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]|\boffset\s+\w+")
_METRIC = re.compile(rf"(?<![\w:])({_NAME})(?![\w:])(?!\s*\()")


@dataclass(frozen=True, slots=True)
class ExpressionNames:
    """The metrics of an expression, each with the labels that its selectors name, and the labels by
    which the expression groups."""

    metrics: Mapping[str, frozenset[str]]
    grouping: frozenset[str]

    @classmethod
    def parse(cls, expression: str) -> "ExpressionNames":
        """Return the names in an expression."""
        grouping = {
            label.strip() for labels in _GROUPING.findall(expression) for label in labels.split(",")
        }
        metrics: defaultdict[str, set[str]] = defaultdict(set)
        for name, matchers in _SELECTOR.findall(expression):
            metrics[name].update(_MATCHER.findall(matchers))
        rest = _RANGE.sub(" ", _GROUPING.sub(" ", _SELECTOR.sub(" ", expression)))
        for name in _METRIC.findall(rest):
            if name not in KEYWORDS:
                metrics[name].update()
        return cls(
            {name: frozenset(labels) for name, labels in metrics.items()}, frozenset(grouping)
        )

    def unknown(self, known: Mapping[str, Collection[str]]) -> list[str]:
        """Return the names of metrics and labels that are not in a table of metrics with their
        labels."""
        unknown = [name for name in self.metrics if name not in known]
        labels = {label for name in self.metrics for label in known.get(name, ())}
        unknown += [f"by ({label})" for label in self.grouping - labels]
        for name, matchers in self.metrics.items():
            unknown += [f"{name}{{{label}}}" for label in matchers - {*known.get(name, matchers)}]
        return sorted(unknown)


def metrics_of_the_code() -> dict[str, set[str]]:
    """Return the metrics by their names in Prometheus, with their labels."""
    known: dict[str, set[str]] = {"up": {*TARGET_LABELS}}
    for metric in METRICS.values():
        name = prometheus_name(metric)
        labels = {attribute.replace(".", "_") for attribute in metric.attributes} | TARGET_LABELS
        if metric.kind is MetricKind.HISTOGRAM:
            known |= {f"{name}_sum": labels, f"{name}_count": labels}
            known[f"{name}_bucket"] = labels | {"le"}
        else:
            known[name] = labels
    return known


def run_promtool(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run promtool, and return its output."""
    return subprocess.run(
        [program("promtool"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
