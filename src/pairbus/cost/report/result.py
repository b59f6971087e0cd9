"""What a report says, as plain data. Nothing here grows with the number of records."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any

from pairbus.cost.prices import Prices, Tier
from pairbus.usage.operations import Part

MOST_LINES = 100
"""Entities, outages and problems that are shown; all of them are in the Parquet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """How much was done, as far as the namespaces answered."""

    operations: int = 0
    messages: int = 0
    units: int = 0
    bytes: int = 0
    unanswered: int = 0
    """Operations that a namespace never answered: nowhere else, and not billed."""
    money: float = 0.0
    """The share of the bill, in proportion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastOutage:
    """From the first sender's failover to the last message home."""

    namespace: str
    entity: str
    start: datetime
    failback: datetime | None
    """When the last sender went back to the primary."""
    end: datetime | None
    """None while it is open."""
    open: bool
    """A sender has not gone back, or messages of the backlog are not home."""
    stored: int
    home: int
    dead_lettered: int
    pings: int
    sums: Sums

    @property
    def left(self) -> int:
        """Messages that are still in the backlog, as far as the ledgers tell."""
        return max(0, self.stored - self.home - self.dead_lettered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What could not be read."""

    path: str
    what: str
    skipped: bool
    """The whole file is not in the report."""
    lines: int = 0
    """Lines that are not in the report."""


@dataclass(frozen=True, slots=True)
class Point:
    """What was done from a time on, for as long as the width of the series."""

    time: datetime
    operations: Mapping[Part, int]
    stored: int
    gone: int
    """Home, or dead-lettered."""


@dataclass(frozen=True, slots=True)
class Series:
    """For plots."""

    width_s: int
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What the writers of the ledgers could not write down."""

    dropped: int = 0
    dropped_operations: int = 0
    failed_writes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    prices: Prices
    tier: Tier
    zone: tzinfo
    """Of days and months."""
    records: int
    files: int
    copies: tuple[str, ...]
    """Files that are copies of others, or older states of them: not counted again."""
    first: datetime | None
    last: datetime | None
    total: Sums
    money: Decimal
    """The whole, exactly."""
    by_day: Mapping[str, Sums]
    by_part: Mapping[str, Sums]
    by_kind: Mapping[str, Sums]
    by_namespace: Mapping[str, Sums]
    by_entity: Mapping[str, Sums]
    """Those with most charges."""
    entities: int
    outages: tuple[PastOutage, ...]
    """The latest."""
    outage_count: int
    series: Series
    missing: Missing
    problems: tuple[Problem, ...]
    problem_count: int

    def plain(self) -> dict[str, Any]:
        """What `pairbus cost report --json` prints. Exact money is text."""
        prices = self.prices
        return {
            "prices": {
                "file": prices.name,
                "as_of": prices.as_of.isoformat(),
                "source": prices.source,
                "currency": prices.currency,
                "region": prices.region,
                "tier": str(self.tier),
            },
            "timezone": str(self.zone),
            "records": self.records,
            "files": self.files,
            "copies": list(self.copies),
            "first": _plain(self.first),
            "last": _plain(self.last),
            "money": str(self.money),
            "total": _plain(asdict(self.total)),
            **{
                name: {key: asdict(sums) for key, sums in getattr(self, name).items()}
                for name in ("by_day", "by_part", "by_kind", "by_namespace", "by_entity")
            },
            "entities": self.entities,
            "outages": [{**_plain(asdict(one)), "left": one.left} for one in self.outages],
            "outage_count": self.outage_count,
            "missing": asdict(self.missing),
            "problems": [asdict(one) for one in self.problems],
            "problem_count": self.problem_count,
        }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, datetime):
        return value.isoformat()
    return value.value if isinstance(value, Enum) else value
