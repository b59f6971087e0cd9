"""Metrics of the console for Prometheus, in its text format. No I/O.

The values are those of the page, so that an alert and the page agree. Labels contain names of
entities, which is why the endpoint needs a token.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pairbus.console.snapshot import Knowledge
from pairbus.events import PathStatus

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_SERIES: Final = 2_000
"""Series of one metric. A Prometheus server would suffer from more."""


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """All values of one metric."""

    name: str
    kind: str
    description: str
    values: Sequence[tuple[Mapping[str, str], float]] = field(default_factory=tuple)


def metric_families(knowledge: Knowledge) -> Iterator[MetricFamily]:
    """Yield the metrics of what is known. A metric whose value is not known is left out."""
    yield MetricFamily(
        "pairbus_path_state",
        "gauge",
        "State of a path in all senders: 1 for the most severe one, 0 for the others.",
        [
            ({"path": path.path, "state": status.value}, float(path.state is status))
            for path in knowledge.paths
            for status in PathStatus
        ],
    )
    silent = sum(sender.is_silent(knowledge.now) for sender in knowledge.senders)
    yield MetricFamily(
        "pairbus_console_senders",
        "gauge",
        "Sender processes that report, and those that stopped reporting.",
        [
            ({"state": "reporting"}, len(knowledge.senders) - silent),
            ({"state": "silent"}, silent),
        ],
    )
    yield from _backlog(knowledge)
    yield from _syphon(knowledge)
    operations = knowledge.inspections.get("operations")
    yield _single(
        "pairbus_console_operations_total",
        "counter",
        "Billable operations of the console's own inspections.",
        operations,
    )
    yield MetricFamily(
        "pairbus_outage_cost",
        "gauge",
        "Cost of the current or last outage so far, by the ledger.",
        []
        if knowledge.cost is None
        else [({"currency": knowledge.cost["currency"]}, knowledge.cost["so_far"])],
    )


def render(families: Iterator[MetricFamily]) -> bytes:
    """Return metrics in the text format. Those without a value are left out."""
    lines: list[str] = []
    for family in families:
        if family.values:
            lines.append(f"# HELP {family.name} {_escape(family.description)}")
            lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, value in family.values[:MAX_SERIES]:
            pairs = ",".join(f'{name}="{_quote(text)}"' for name, text in labels.items())
            lines.append(f"{family.name}{f'{{{pairs}}}' if pairs else ''} {float(value)!r}")
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _backlog(knowledge: Knowledge) -> Iterator[MetricFamily]:
    inspection = knowledge.inspection
    if inspection is None:
        return
    yield MetricFamily(
        "pairbus_namespace_available",
        "gauge",
        "1 if the console reached the namespace with its last inspection, 0 if not.",
        [({"role": role}, float(probe.available)) for role, probe in inspection.probes.items()],
    )
    yield MetricFamily(
        "pairbus_backlog_messages",
        "gauge",
        "Messages in the backlog by destination; estimated from samples if there are many.",
        [
            ({"destination": group.destination or ""}, round(group.messages))
            for group in inspection.destinations
        ],
    )
    yield _single(
        "pairbus_backlog_all_messages", "gauge", "Messages in the backlog.",
        knowledge.backlog_messages,
    )  # fmt: skip
    yield MetricFamily(
        "pairbus_backlog_oldest_age_seconds",
        "gauge",
        "Age of the oldest message of the samples, by destination.",
        [
            (
                {"destination": group.destination or ""},
                max(0.0, knowledge.now - group.oldest_ms / 1000),
            )
            for group in inspection.destinations
            if group.oldest_ms is not None
        ],
    )
    yield MetricFamily(
        "pairbus_backlog_dead_letters",
        "gauge",
        "Dead letters of the backlog queues; estimated from samples if there are many.",
        [
            (
                {"destination": group.destination or "", "reason": group.reason or ""},
                round(group.messages),
            )
            for group in inspection.dead_letters
        ],
    )


def _syphon(knowledge: Knowledge) -> Iterator[MetricFamily]:
    values: Mapping[str, Any] = knowledge.syphon.to_json()
    if not values["known"]:
        return
    for name, description, key in (
        ("pairbus_syphon_healthy", "1 if a syphon runs and has no problem, 0 if not.", "healthy"),
        ("pairbus_syphon_paused", "1 if the syphon is paused, 0 if not.", "paused"),
        ("pairbus_drain_rate_per_second", "Messages a second that the syphon moves.", "rate"),
        (
            "pairbus_drain_time_to_go_seconds",
            "Time until the backlog is empty, if it is known.",
            "seconds_to_go",
        ),
    ):
        yield _single(name, "gauge", description, values[key])


def _single(name: str, kind: str, description: str, value: float | None) -> MetricFamily:
    return MetricFamily(name, kind, description, [] if value is None else [({}, value)])


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quote(text: str) -> str:
    return _escape(text).replace('"', '\\"')
