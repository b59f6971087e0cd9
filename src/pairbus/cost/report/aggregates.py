"""Sums over the rows of ledgers, computed by Spark. Only the sums are collected."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pairbus.cost.prices import Prices, Tier
from pairbus.cost.report.condensed import condense
from pairbus.cost.report.result import MAX_ROWS, LedgerGaps, TimePoint, TimeSeries, Totals
from pairbus.cost.report.rows import GAP, OPERATIONS, LedgerRows
from pairbus.usage.operations import OperationKind, Purpose

COUNTS = ("operations", "messages", "units", "bytes", "unanswered")
MAX_POINTS = 240
INTERVALS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200),
    *(86400, 2 * 86400, 7 * 86400, 28 * 86400, 364 * 86400, 3640 * 86400),
)


@dataclass(frozen=True, slots=True)
class Overview:
    """The number of records, their time range, and the gaps that the writers recorded."""

    records: int
    first: int | None
    """Seconds since 1970."""
    last: int | None
    gaps: LedgerGaps


def collect_overview(rows: DataFrame) -> Overview:
    is_operations = F.col("record") == OPERATIONS
    gap_columns = ("dropped", "dropped_operations", "failed_writes")
    row: Any = rows.agg(
        F.count_if(is_operations).alias("records"),
        F.min(F.when(is_operations, F.unix_seconds("time"))).alias("first"),
        F.max(F.when(is_operations, F.unix_seconds("time"))).alias("last"),
        *[F.sum(F.when(F.col("record") == GAP, F.col(name))).alias(name) for name in gap_columns],
    ).first()
    gaps = LedgerGaps(**{name: row[name] or 0 for name in gap_columns})
    return Overview(row["records"], row["first"], row["last"], gaps)


def sum_by_day(rows: LedgerRows) -> DataFrame:
    """Sum up operations by day, namespace, entity, kind and purpose.

    All tables of a report are sums of this one. Days are those of the session's time zone.
    """
    answered = F.col("answered")
    condensed = condense(rows.frame.sparkSession, rows.files) if rows.files else None
    days = rows.frame.withColumn("day", F.to_date("time")) if condensed is None else condensed
    return (
        days.where(F.col("record") == OPERATIONS)
        .groupBy("day", "namespace", "entity", "kind", "purpose")
        .agg(
            *[
                F.sum(F.when(answered, F.col(name)).otherwise(0)).alias(name)
                for name in ("operations", "messages", "units", "bytes")
            ],
            F.sum(F.when(answered, 0).otherwise(F.col("operations"))).alias("unanswered"),
        )
    )


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """The average cost of a billable unit in each month.

    Prices have bands over a whole month. With the average, all tables add up to the same total.
    """

    by_month: Mapping[date, float]
    per_byte: float
    total: Decimal
    """The exact total cost."""

    def cost_column(self, units: Column, size: Column, day: Column) -> Column:
        """Return the cost of the usage of a day, as a column."""
        unit_cost = F.lit(0.0)
        for month, cost in self.by_month.items():
            in_month = F.trunc(day, "month") == F.lit(month)
            unit_cost = F.when(in_month, F.lit(cost)).otherwise(unit_cost)
        return units * unit_cost + size * F.lit(self.per_byte)

    def cost_of_row(self, row: Any) -> float:
        unit_cost = self.by_month.get(row["day"].replace(day=1), 0.0)
        return float(row["units"] * unit_cost + row["bytes"] * self.per_byte)


@dataclass(frozen=True, slots=True)
class DailyTotals:
    """Totals by day, purpose and kind: at most one row per day and combination."""

    rows: Sequence[Any]
    unit_costs: UnitCosts

    def by(self, column: str) -> dict[str, Totals]:
        totals: dict[str, Totals] = {}
        for row in sorted(self.rows, key=lambda row: str(row[column])):
            name = str(row[column])
            totals[name] = self._add(totals.get(name, Totals()), row)
        return totals

    @property
    def total(self) -> Totals:
        total = Totals()
        for row in self.rows:
            total = self._add(total, row)
        return total

    def _add(self, totals: Totals, row: Any) -> Totals:
        counts = {name: getattr(totals, name) + row[name] for name in COUNTS}
        return Totals(**counts, cost=totals.cost + self.unit_costs.cost_of_row(row))


def collect_daily_totals(sums: DataFrame, prices: Prices, tier: Tier) -> DailyTotals:
    columns = [F.sum(name).alias(name) for name in COUNTS]
    rows = sums.groupBy("day", "purpose", "kind").agg(*columns).collect()
    units: Counter[date] = Counter()
    size = 0
    for row in rows:
        units[row["day"].replace(day=1)] += row["units"]
        size += row["bytes"]
    costs = {month: prices.operations_cost(tier, count) for month, count in units.items()}
    by_month = {month: float(cost / units[month]) for month, cost in costs.items() if cost}
    total = sum(costs.values(), Decimal(0)) + prices.bandwidth_cost(size)
    return DailyTotals(rows, UnitCosts(by_month, float(prices.bandwidth_cost(1)), total))


def with_cost(sums: DataFrame, unit_costs: UnitCosts) -> DataFrame:
    cost = unit_costs.cost_column(F.col("units"), F.col("bytes"), F.col("day"))
    return sums.withColumn("cost", cost)


def totals_by(sums: DataFrame, column: str) -> DataFrame:
    return sums.groupBy(column).agg(*[F.sum(name).alias(name) for name in (*COUNTS, "cost")])


def collect_largest(sums: DataFrame, column: str) -> dict[str, Totals]:
    """Return the totals with the most billable units, of a column with any number of values."""
    ordered = totals_by(sums, column).orderBy(F.desc("units"), F.desc("unanswered"), column)
    return {str(row[column]): totals_of_row(row) for row in ordered.limit(MAX_ROWS).collect()}


def totals_of_row(row: Any) -> Totals:
    return Totals(**{name: row[name] for name in (*COUNTS, "cost")})


def interval_for(first: int, last: int) -> int:
    """Return the interval of a time series in seconds, such that it has few enough points."""
    seconds = last - first + 1
    return next((i for i in INTERVALS_S if seconds <= i * MAX_POINTS), INTERVALS_S[-1])


def collect_time_series(rows: DataFrame, overview: Overview) -> TimeSeries:
    """Return operations by purpose over time, with the messages added to and removed from the
    backlog."""
    if overview.first is None or overview.last is None:
        return TimeSeries(1, ())
    interval = interval_for(overview.first, overview.last)
    second = F.unix_seconds("time")
    sums = (
        rows.where((F.col("record") == OPERATIONS) & F.col("answered"))
        .groupBy((second - second % interval).alias("second"), "purpose")
        .agg(
            F.sum("operations").alias("operations"),
            F.sum(F.when(is_backlog_send(), F.col("messages")).otherwise(0)).alias("stored"),
            F.sum(F.when(is_removal(), F.col("messages")).otherwise(0)).alias("removed"),
        )
        .collect()
    )
    points: dict[int, tuple[dict[Purpose, int], list[int]]] = {}
    for row in sums:
        operations, moved = points.setdefault(row["second"], ({}, [0, 0]))
        operations[Purpose(row["purpose"])] = row["operations"]
        moved[0] += row["stored"]
        moved[1] += row["removed"]
    return TimeSeries(
        interval,
        tuple(
            TimePoint(datetime.fromtimestamp(second, UTC), operations, stored, removed)
            for second, (operations, (stored, removed)) in sorted(points.items())
        ),
    )


def is_backlog_send() -> Column:
    """Return a condition: a send to the backlog."""
    return (F.col("purpose") == Purpose.BACKLOG.value) & _is_send()


def is_drain_send() -> Column:
    """Return a condition: a send of the syphon to the primary."""
    return (F.col("purpose") == Purpose.DRAIN.value) & _is_send()


def is_dead_lettered() -> Column:
    """Return a condition: the syphon dead-lettered a backlog message."""
    is_dead_letter = F.col("kind") == OperationKind.DEAD_LETTER.value
    return (F.col("purpose") == Purpose.DRAIN.value) & is_dead_letter


def is_removal() -> Column:
    """Return a condition: a message left the backlog."""
    return is_drain_send() | is_dead_lettered()


def _is_send() -> Column:
    return F.col("kind").isin(OperationKind.SEND.value, OperationKind.SCHEDULE.value)
