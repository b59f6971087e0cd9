"""The snapshot that the page shows: all that is known, with a level and a sentence. No I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pairbus.backlog.json_values import iso_time
from pairbus.console.inspection import NamespaceInspection, SyphonView
from pairbus.console.senders import PathSummary, ReportingSender, SenderEvent
from pairbus.console.sentence import Situation, describe
from pairbus.console.text import clean
from pairbus.events import PathStatus

MAX_EVENTS_SHOWN: Final = 100
MAX_SENDERS_SHOWN: Final = 200
"""More would make a snapshot large, and each open page gets one in a second."""
THROTTLED_S: Final = 3600
"""The time of which throttled operations are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Everything that the console knows at one moment."""

    now: float
    primary: str | None = None
    """The host of the primary, if it is known."""
    secondary: str | None = None
    paths: tuple[PathSummary, ...] = ()
    senders: tuple[ReportingSender, ...] = ()
    foreign_senders: tuple[tuple[str, str], ...] = ()
    """Host and primary of senders that belong to another pairing."""
    inspection: NamespaceInspection | None = None
    syphon: SyphonView = field(default_factory=SyphonView)
    cost: Mapping[str, Any] | None = None
    inspections: Mapping[str, Any] = field(default_factory=dict)
    """The cost of the console itself: operations, per_hour, interval_s."""
    throttled: int = 0
    """Throttled operations of senders and the syphon in the last `THROTTLED_S`."""
    redrives: tuple[Mapping[str, Any], ...] = ()
    events: tuple[SenderEvent, ...] = ()
    problems: tuple[str, ...] = ()
    """Problems of the console itself."""

    @property
    def backlog_messages(self) -> int | None:
        """The number of messages in the backlog, from the newer of the inspection and the syphon's
        status file, or None if it is unknown. A syphon that has ended knows nothing of messages
        that arrived since: only if it left none is its number used, until they are counted."""
        counted, summary = self._counted, self.syphon.summary
        if summary is None or summary.remaining is None:
            return counted
        if not summary.running and not self.is_count_outdated:
            return counted
        return summary.remaining if counted is None or self._is_file_newer else counted

    @property
    def is_count_outdated(self) -> bool:
        """True if the last inspection counted messages, and the syphon has drained them since."""
        summary = self.syphon.summary
        is_drained = summary is not None and summary.remaining == 0
        return is_drained and bool(self._counted) and self._is_file_newer

    @property
    def _counted(self) -> int | None:
        """The number of messages that the last inspection counted."""
        inspection = self.inspection
        if inspection is None or inspection.backlog is None:
            return None
        return inspection.backlog.messages

    @property
    def _is_file_newer(self) -> bool:
        """True if the status file of the syphon is newer than the inspection."""
        return self.inspection is None or (self.syphon.time_ms or 0) > self.inspection.time_ms

    @property
    def is_active(self) -> bool:
        """True in an outage: a path is not healthy, or messages wait."""
        unhealthy = any(path.state is not PathStatus.HEALTHY for path in self.paths)
        primary = None if self.inspection is None else self.inspection.probes.get("primary")
        unavailable = primary is not None and not primary.available
        return unhealthy or unavailable or bool(self.backlog_messages)

    @property
    def failing_since(self) -> float | None:
        """The time at which the first path failed that is not healthy, or None."""
        times = [path.since_ms for path in self.paths if path.state is not PathStatus.HEALTHY]
        return min(times) / 1000 if times else None


def build_snapshot(knowledge: Knowledge) -> dict[str, Any]:
    """Return the snapshot without the role of the viewer."""
    inspection, now = knowledge.inspection, knowledge.now
    backlog = None if inspection is None else inspection.backlog
    situation = _situation(knowledge)
    description = describe(situation)
    return {
        "time": iso_time(int(now * 1000)),
        "level": description.level,
        "sentence": description.sentence,
        "problems": list(description.problems),
        "primary": knowledge.primary,
        "secondary": knowledge.secondary,
        "paths": [path.to_json() for path in knowledge.paths],
        "senders": [sender.to_json(now) for sender in _most_urgent(knowledge)],
        "omitted_senders": max(0, len(knowledge.senders) - MAX_SENDERS_SHOWN),
        "queues": [] if inspection is None else inspection.queues_to_json(),
        "destinations": _groups(inspection, "destinations"),
        "backlog": {
            "known": backlog is not None and backlog.problem is None,
            "messages": knowledge.backlog_messages,
            "dead_letters": None if backlog is None else backlog.dead_lettered,
            "counted_at": None if inspection is None else iso_time(inspection.time_ms),
            "sampled": backlog is not None and backlog.more_messages,
            "estimated": inspection is not None and inspection.estimated,
        },
        "syphon": knowledge.syphon.to_json(),
        "dead_letters": _groups(inspection, "dead_letters"),
        "throttled": {"operations": knowledge.throttled, "seconds": THROTTLED_S},
        "cost": knowledge.cost,
        "looks": dict(knowledge.inspections),
        "redrives": list(knowledge.redrives),
        "events": _events(knowledge.events),
    }


def _most_urgent(knowledge: Knowledge) -> list[ReportingSender]:
    """Return the senders to show: first those that are silent or have a path that is not
    healthy."""
    senders, now = knowledge.senders, knowledge.now
    if len(senders) > MAX_SENDERS_SHOWN:
        senders = tuple(sorted(senders, key=lambda sender: not sender.needs_attention(now)))
    return list(senders[:MAX_SENDERS_SHOWN])


def _groups(inspection: NamespaceInspection | None, name: str) -> list[dict[str, Any]]:
    if inspection is None:
        return []
    if name == "destinations":
        return [group.destination_to_json() for group in inspection.destinations]
    return [group.dead_letters_to_json() for group in inspection.dead_letters]


def _events(events: Iterable[SenderEvent]) -> list[dict[str, Any]]:
    newest = sorted(events, key=lambda event: event.time_ms, reverse=True)[:MAX_EVENTS_SHOWN]
    return [
        {"time": iso_time(event.time_ms), "source": event.source, "text": event.text}
        for event in newest
    ]


def _situation(knowledge: Knowledge) -> Situation:
    inspection = knowledge.inspection
    probes = {} if inspection is None else inspection.probes
    backlog = None if inspection is None else inspection.backlog
    reporting = [sender for sender in knowledge.senders if not sender.is_silent(knowledge.now)]
    destinations = () if inspection is None else inspection.destinations
    return Situation(
        paths={
            status: tuple(clean(path.path) for path in knowledge.paths if path.state is status)
            for status in PathStatus
        },
        causes=tuple(path.cause for path in knowledge.paths if path.cause is not None),
        senders=len(knowledge.senders),
        silent=len(knowledge.senders) - len(reporting),
        without_secondary=sum(not sender.report.secondary_available for sender in reporting),
        foreign=tuple((clean(host), clean(primary)) for host, primary in knowledge.foreign_senders),
        unavailable={
            role: probe.problem for role, probe in probes.items() if probe.problem is not None
        },
        inspected=inspection is not None,
        waiting=knowledge.backlog_messages,
        waiting_is_lower_bound=backlog is not None and backlog.more_messages,
        destinations=tuple(clean(group.destination or "an unknown path") for group in destinations),
        backlog_problem=None if backlog is None else backlog.problem,
        queue_mismatch=None if backlog is None else backlog.queue_mismatch,
        dead_letters=0 if backlog is None else backlog.dead_lettered or 0,
        syphon=knowledge.syphon.to_json(),
        problems=knowledge.problems,
    )
