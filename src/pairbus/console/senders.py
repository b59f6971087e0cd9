"""The sender processes that report to the console, and the commands for them. No I/O.

A sender that stops reporting is first shown as silent, and later removed. Its paths count until it
is removed: a process that hangs in an outage is still part of it. One that says that it was closed
is removed at once.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final
from uuid import uuid4

from pairbus.backlog.json_values import iso_time
from pairbus.console.sender_report import ReportedEvent, ReportedPath, SenderReport
from pairbus.errors import PairbusError
from pairbus.events import PathStatus

SILENT_AFTER_S: Final = 30.0
REMOVED_AFTER_S: Final = 600.0
COMMAND_LIFETIME_S: Final = 300.0
"""A sender that returns after this time does not get the command: the situation has changed."""
MAX_SENDERS: Final = 5_000
MAX_EVENTS_KEPT: Final = 200
MAX_COMMANDS: Final = 100
"""Commands that wait for one sender."""
MAX_PATHS_SHOWN: Final = 2_000
MAX_NAMED_SENDERS: Final = 3
"""Senders that are named at a path."""
MAX_REPORTED_PATHS: Final = 100_000
"""Paths of all senders together. It bounds the memory."""
_SEVERITY: Final = (
    PathStatus.HEALTHY,
    PathStatus.DRAINING,
    PathStatus.SUSPECT,
    PathStatus.FAILOVER,
)


class TooManySenders(PairbusError):
    """Raised when no further sender is accepted."""


@dataclass(frozen=True, slots=True)
class SenderCommand:
    """A command that a sender gets with the answer to its report."""

    id: str
    action: str
    path: str
    issued_at: float

    def to_json(self) -> dict[str, str]:
        """Return the command for `json.dumps`."""
        return {"id": self.id, "action": self.action, "path": self.path}


@dataclass(frozen=True, slots=True)
class SenderEvent:
    """An event of a sender, with its source."""

    time_ms: int
    source: str
    text: str


@dataclass(slots=True)
class ReportingSender:
    """A sender process and its last report."""

    report: SenderReport
    reported_at: float
    commands: dict[str, SenderCommand] = field(default_factory=dict)
    last_event_ms: int = 0

    def is_silent(self, now: float) -> bool:
        """Return True if the sender is late with its report."""
        return now - self.reported_at > SILENT_AFTER_S

    def needs_attention(self, now: float) -> bool:
        """Return True if the sender is silent, or if a path is not healthy."""
        unhealthy = any(path.state is not PathStatus.HEALTHY for path in self.report.paths)
        return unhealthy or self.is_silent(now)

    def to_json(self, now: float) -> dict[str, Any]:
        """Return the sender for the snapshot."""
        report = self.report
        states = Counter(path.state.value for path in report.paths)
        return {
            "id": report.sender_id,
            "host": report.host,
            "process": report.process,
            "application": report.application,
            "started_at": iso_time(report.started_ms),
            "pairbus": report.version,
            "last_report": iso_time(int(self.reported_at * 1000)),
            "silent": self.is_silent(now),
            "secondary_available": report.secondary_available,
            "states": dict(states),
            "omitted_paths": report.omitted_paths,
            "counts": {
                "sent": report.sent,
                "stored": report.stored,
                "failed": report.failed,
                "throttled": report.throttled,
            },
        }


@dataclass(frozen=True, slots=True)
class PathSummary:
    """The state of a path in all senders: the most severe one."""

    path: str
    state: PathStatus
    senders: int
    """Senders that have the path in this state."""
    all_senders: int
    """Senders that have the path."""
    since_ms: int
    cause: str | None
    named_senders: tuple[str, ...] = ()
    """The first senders that have the path in this state, unless it is healthy."""

    def to_json(self) -> dict[str, Any]:
        """Return the path for the snapshot."""
        return {
            "path": self.path,
            "state": self.state.value,
            "senders": self.senders,
            "all_senders": self.all_senders,
            "named_senders": list(self.named_senders),
            "since": iso_time(self.since_ms),
            "cause": self.cause,
        }


class SenderRegistry:
    """All senders that report. Use it from one thread."""

    def __init__(
        self, primary_name: str, *, new_id: Callable[[], str] = lambda: str(uuid4())
    ) -> None:
        self._primary_name = primary_name
        self._new_id = new_id
        self._senders: dict[str, ReportingSender] = {}
        self._foreign: dict[str, tuple[float, str]] = {}
        self.events: deque[SenderEvent] = deque(maxlen=MAX_EVENTS_KEPT)
        """The latest events of all senders."""
        self.throttled = 0
        """Messages that were throttled since the console knows their senders. What happened before
        has no known time."""
        self._path_count = 0
        self._paths: list[PathSummary] | None = None
        """The result of `paths`, until the next report."""

    def accept(self, report: SenderReport, now: float) -> list[SenderCommand]:
        """Take a report, and return the commands for the sender. A command is repeated until the
        sender reports it as done. Raises TooManySenders."""
        if report.primary_name.lower() != self._primary_name.lower():
            if len(self._foreign) < MAX_COMMANDS:
                self._foreign[report.host] = now, report.primary_name
            return []
        sender = self._senders.get(report.sender_id)
        before = 0 if sender is None else len(sender.report.paths)
        if sender is None and len(self._senders) >= MAX_SENDERS:
            raise TooManySenders(f"{MAX_SENDERS:,} senders report already.")
        if self._path_count - before + len(report.paths) > MAX_REPORTED_PATHS:
            raise TooManySenders(f"The senders report {MAX_REPORTED_PATHS:,} paths already.")
        if sender is None:
            sender = self._senders[report.sender_id] = ReportingSender(report, now)
        self._path_count += len(report.paths) - before
        self._paths = None
        self.throttled += max(0, report.throttled - sender.report.throttled)
        sender.report, sender.reported_at = report, now
        self._take_events(sender)
        if report.closed:
            self._remove(report.sender_id)
        sender.commands = {
            id: command
            for id, command in sender.commands.items()
            if id not in report.done and now - command.issued_at <= COMMAND_LIFETIME_S
        }
        return list(sender.commands.values())

    def expire(self, now: float) -> None:
        """Remove senders that have not reported for a long time."""
        for id, sender in list(self._senders.items()):
            if now - sender.reported_at > REMOVED_AFTER_S:
                self._remove(id)
        for host, (reported_at, _) in list(self._foreign.items()):
            if now - reported_at > REMOVED_AFTER_S:
                del self._foreign[host]

    def _remove(self, id: str) -> None:
        self._path_count -= len(self._senders.pop(id).report.paths)
        self._paths = None

    def mark_healthy(self, path: str, now: float) -> int:
        """Tell all senders that have a path in failover or draining to send to the primary again.
        Return the number of senders. A second call before they answer changes nothing."""
        senders = self.senders_to_mark(path, now)
        for sender in senders:
            waiting = any(command.path == path for command in sender.commands.values())
            if not waiting and len(sender.commands) < MAX_COMMANDS:
                command = SenderCommand(self._new_id(), "mark-healthy", path, now)
                sender.commands[command.id] = command
        return len(senders)

    def senders_to_mark(self, path: str, now: float) -> list[ReportingSender]:
        """Return the senders that report, and for which a path is not healthy."""
        return [
            sender
            for sender in self._senders.values()
            if not sender.is_silent(now)
            and any(
                reported.path == path and reported.state is not PathStatus.HEALTHY
                for reported in sender.report.paths
            )
        ]

    def senders(self) -> list[ReportingSender]:
        """Return all senders, sorted by host and process."""
        return sorted(
            self._senders.values(),
            key=lambda sender: (sender.report.host, sender.report.process, sender.report.sender_id),
        )

    def paths(self) -> list[PathSummary]:
        """Return all paths, the most severe state first."""
        if self._paths is None:
            by_path: dict[str, list[tuple[ReportedPath, SenderReport]]] = {}
            for sender in self._senders.values():
                for reported in sender.report.paths:
                    by_path.setdefault(reported.path, []).append((reported, sender.report))
            summaries = [_summary(path, reported) for path, reported in by_path.items()]
            summaries.sort(key=lambda summary: (-_SEVERITY.index(summary.state), summary.path))
            self._paths = summaries[:MAX_PATHS_SHOWN]
        return self._paths

    def foreign(self) -> Iterator[tuple[str, str]]:
        """Yield the host and the primary of senders that belong to another pairing."""
        for host, (_, primary_name) in sorted(self._foreign.items()):
            yield host, primary_name

    def _take_events(self, sender: ReportingSender) -> None:
        """Keep the events that are new: a sender may repeat those of a report that got lost."""
        last = sender.last_event_ms
        source = sender.report.source
        for event in sorted(sender.report.events, key=_time_of):
            if event.time_ms > last:
                self.events.append(SenderEvent(event.time_ms, source, event.text))
                sender.last_event_ms = event.time_ms


def _time_of(event: ReportedEvent) -> int:
    return event.time_ms


def _summary(path: str, reported: list[tuple[ReportedPath, SenderReport]]) -> PathSummary:
    state = max((each.state for each, _ in reported), key=_SEVERITY.index)
    same = [(each, sender) for each, sender in reported if each.state is state]
    first, _ = min(same, key=_since)
    named = () if state is PathStatus.HEALTHY else nsmallest(MAX_NAMED_SENDERS, same, key=_since)
    return PathSummary(
        path,
        state,
        len(same),
        len(reported),
        first.since_ms,
        first.cause,
        tuple(sender.source for _, sender in named),
    )


def _since(reported: tuple[ReportedPath, SenderReport]) -> int:
    return reported[0].since_ms
