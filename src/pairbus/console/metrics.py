"""Metrics of the console for Prometheus. No I/O.

The values are those of the page, so that an alert and the page agree. Labels contain names of
entities, which is why the endpoint needs a token.
"""

from collections.abc import Iterator

from pairbus.console.inspection import NamespaceInspection
from pairbus.console.snapshot import Knowledge
from pairbus.events import PathStatus
from pairbus.telemetry.metrics import (
    BACKLOG_AGE,
    BACKLOG_ALL_MESSAGES,
    BACKLOG_DEAD_LETTERS,
    BACKLOG_MESSAGES,
    CONSOLE_OPERATIONS,
    CONSOLE_SENDERS,
    DRAIN_RATE,
    NAMESPACE_AVAILABLE,
    OUTAGE_COST,
    PATH_STATE,
    SYPHON_HEALTHY,
    SYPHON_PAUSED,
    TIME_TO_GO,
)
from pairbus.telemetry.samples import Sample


def console_samples(knowledge: Knowledge, pairing: str) -> Iterator[Sample]:
    """Yield samples of what is known. A value that is not known is left out. `pairing` is the name
    of the primary in the paths of the backlog queues, and a label of all samples."""
    for name, value, labels in _values(knowledge):
        if value is not None:
            yield Sample(name, float(value), {"pairing": pairing, **labels})


_Value = tuple[str, float | None, dict[str, str]]


def _values(knowledge: Knowledge) -> Iterator[_Value]:
    for path in knowledge.paths:
        for status in PathStatus:  # of all senders, the most severe one
            is_current = path.state is status
            yield PATH_STATE, is_current, {"path": path.path, "state": status.value}
    silent = sum(sender.is_silent(knowledge.now) for sender in knowledge.senders)
    yield CONSOLE_SENDERS, len(knowledge.senders) - silent, {"state": "reporting"}
    yield CONSOLE_SENDERS, silent, {"state": "silent"}
    yield CONSOLE_OPERATIONS, knowledge.inspections.get("operations"), {}
    if knowledge.inspection is not None:
        yield from _inspection(knowledge.inspection, knowledge.now)
    yield BACKLOG_ALL_MESSAGES, knowledge.backlog_messages, {}
    syphon = knowledge.syphon.to_json()
    if syphon["known"]:
        yield SYPHON_HEALTHY, syphon["healthy"], {}
        yield SYPHON_PAUSED, syphon["paused"], {}
        yield DRAIN_RATE, syphon["rate"], {}
        yield TIME_TO_GO, syphon["seconds_to_go"], {}
    if knowledge.cost is not None:
        yield OUTAGE_COST, knowledge.cost["so_far"], {"currency": knowledge.cost["currency"]}


def _inspection(inspection: NamespaceInspection, now: float) -> Iterator[_Value]:
    for role, probe in inspection.probes.items():
        yield NAMESPACE_AVAILABLE, probe.available, {"role": role}
    for group in inspection.destinations:
        labels = {"destination": group.destination or ""}
        yield BACKLOG_MESSAGES, round(group.messages), labels
        if group.oldest_ms is not None:
            yield BACKLOG_AGE, max(0.0, now - group.oldest_ms / 1000), labels
    for group in inspection.dead_letters:
        labels = {"destination": group.destination or "", "reason": group.reason or ""}
        yield BACKLOG_DEAD_LETTERS, round(group.messages), labels
