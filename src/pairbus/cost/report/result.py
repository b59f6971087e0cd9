"""The result of a report, as plain data whose size does not grow with the number of records."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any

from pairbus.cost.prices import Prices, Tier
from pairbus.usage.operations import Purpose

MAX_ROWS = 100
"""The most entities, outages and problems in a report. The Parquet tables have all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Totals of the operations that the namespaces answered."""

    operations: int = 0
    messages: int = 0
    units: int = 0
    bytes: int = 0
    unanswered: int = 0
    """Operations that the namespace did not answer. They are not billed, and no other total
    includes them."""
    cost: float = 0.0
    """The proportional share of the bill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageSummary:
    """An outage of one path, from the first sender's failover to the last drained message."""

    namespace: str
    entity: str
    start: datetime
    failback: datetime | None
    """The time at which the last sender returned to the primary."""
    end: datetime | None
    """None while the outage is open."""
    open: bool
    """True if a sender was last seen in failover, or messages are still in the backlog."""
    stored: int
    """Messages that were sent to the backlog."""
    drained: int
    """Messages that the syphon sent to the primary."""
    dead_lettered: int
    pings: int
    totals: Totals

    @property
    def remaining(self) -> int:
        """Messages that are still in the backlog, according to the ledgers."""
        return max(0, self.stored - self.drained - self.dead_lettered)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputProblem:
    """A file, or some of its lines, that could not be read."""

    path: str
    description: str
    skipped: bool
    """True if the report does not include the file."""
    skipped_lines: int = 0


@dataclass(frozen=True, slots=True)
class TimePoint:
    """The operations of one interval of a time series."""

    time: datetime
    """The start of the interval."""
    operations: Mapping[Purpose, int]
    stored: int
    """Messages that were added to the backlog."""
    removed: int
    """Messages that were drained or dead-lettered."""


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Operations over time, for plots."""

    interval_s: int
    points: tuple[TimePoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerGaps:
    """Records that the ledgers lack, as counted by their writers."""

    dropped: int = 0
    dropped_operations: int = 0
    failed_writes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of `report`."""

    prices: Prices
    tier: Tier
    zone: tzinfo
    """The time zone of days and months."""
    records: int
    files: int
    copies: tuple[str, ...]
    """Files that are copies, or earlier states, of other files. They are not counted."""
    first: datetime | None
    last: datetime | None
    total: Totals
    cost: Decimal
    """The exact total cost."""
    by_day: Mapping[str, Totals]
    by_purpose: Mapping[str, Totals]
    by_kind: Mapping[str, Totals]
    by_namespace: Mapping[str, Totals]
    by_entity: Mapping[str, Totals]
    """The entities with the most billable units."""
    entity_count: int
    outages: tuple[OutageSummary, ...]
    """The latest outages."""
    outage_count: int
    series: TimeSeries
    gaps: LedgerGaps
    problems: tuple[InputProblem, ...]
    problem_count: int

    def to_json(self) -> dict[str, Any]:
        """Return what `pairbus cost report --json` prints. The exact cost is text."""
        return {
            "prices": self.prices.to_json(self.tier),
            "timezone": str(self.zone),
            "records": self.records,
            "files": self.files,
            "copies": list(self.copies),
            "first": _times_to_text(self.first),
            "last": _times_to_text(self.last),
            "cost": str(self.cost),
            "total": asdict(self.total),
            **{
                name: {key: asdict(totals) for key, totals in getattr(self, name).items()}
                for name in ("by_day", "by_purpose", "by_kind", "by_namespace", "by_entity")
            },
            "entity_count": self.entity_count,
            "outages": [
                {**_times_to_text(asdict(outage)), "remaining": outage.remaining}
                for outage in self.outages
            ],
            "outage_count": self.outage_count,
            "gaps": asdict(self.gaps),
            "problems": [asdict(problem) for problem in self.problems],
            "problem_count": self.problem_count,
        }


def _times_to_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _times_to_text(item) for key, item in value.items()}
    return value.isoformat() if isinstance(value, datetime) else value
