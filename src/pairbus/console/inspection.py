"""The result of an inspection of the namespaces, and of reading the files of a syphon, as data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pairbus.backlog.contents import BacklogContents
from pairbus.backlog.json_values import iso_time
from pairbus.backlog.probe import ProbeResult
from pairbus.backlog.syphon_control import Control
from pairbus.backlog.syphon_file import SyphonSummary
from pairbus.console.estimates import MessageEstimate
from pairbus.console.text import clean, label


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceInspection:
    """The namespaces and the backlog at one moment."""

    time_ms: int
    probes: Mapping[str, ProbeResult]
    """By role: primary, secondary."""
    backlog: BacklogContents | None = None
    """None if the secondary is not available."""
    destinations: tuple[MessageEstimate, ...] = ()
    dead_letters: tuple[MessageEstimate, ...] = ()
    estimated: bool = False
    """The numbers by destination and by reason are estimates."""

    def queues_to_json(self) -> list[dict[str, Any]]:
        """Return the backlog queues for the snapshot."""
        if self.backlog is None:
            return []
        return [
            {
                "queue": queue.path,
                "index": queue.index,
                "messages": queue.messages,
                "dead_letters": queue.dead_lettered,
                "oldest": None if queue.oldest_ms is None else iso_time(queue.oldest_ms),
            }
            for queue in self.backlog.queues
            if queue.exists
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonView:
    """The syphon, as its status file and its control file show it."""

    summary: SyphonSummary | None = None
    """None if no status file was given, or if it cannot be read."""
    time_ms: int | None = None
    """The time at which the status file was written."""
    control: Control = field(default_factory=Control)
    problem: str | None = None
    """The reason why a file cannot be read."""

    def to_json(self) -> dict[str, Any]:
        """Return the syphon for the snapshot."""
        summary, control = self.summary, self.control
        values: dict[str, Any] = {
            "known": summary is not None,
            "healthy": summary is not None and summary.running and summary.problem is None,
            "problem": _phrase(self.problem),
            "paused": control.paused,
            "rate": None,
            "max_rate": control.max_rate,
            "paused_destinations": [label(path) for path in control.paused_destinations],
            "rates": {label(path): rate for path, rate in control.max_rates.items()},
            "seconds_to_go": None,
            "moved": None,
            "throttled_sends": None,
            "throttled_receives": None,
            "running": False,
            "time": None if self.time_ms is None else iso_time(self.time_ms),
        }
        if summary is not None:
            values |= {
                "problem": _phrase(self.problem or summary.problem),
                "paused": summary.paused or control.paused,
                "rate": _finite(summary.rate),
                "seconds_to_go": _finite(summary.seconds_to_go),
                "moved": summary.moved,
                "throttled_sends": summary.throttled_sends,
                "throttled_receives": summary.throttled_receives,
                "running": summary.running,
            }
        return values


def _phrase(problem: str | None) -> str | None:
    """Return a problem as the end of a sentence, without its period."""
    return None if problem is None else clean(problem, 1000).rstrip(".")


def _finite(value: float | None) -> float | None:
    """Return None for a number that JSON does not have."""
    return value if value is not None and math.isfinite(value) else None
