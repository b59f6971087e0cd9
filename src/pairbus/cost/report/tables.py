"""Rows summed up by Spark. Only sums leave it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pairbus.cost.prices import Prices, Tier
from pairbus.cost.report.result import MOST_LINES, Missing, Point, Series, Sums
from pairbus.cost.report.rows import DONE, MISSING
from pairbus.usage.operations import OperationKind, Part

COUNTS = ("operations", "messages", "units", "bytes", "unanswered")
MOST_POINTS = 240
WIDTHS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200),
    *(86400, 2 * 86400, 7 * 86400, 28 * 86400, 364 * 86400, 3640 * 86400),
)


@dataclass(frozen=True, slots=True)
class Overview:
    records: int
    first: int | None
    """Seconds since 1970."""
    last: int | None
    missing: Missing


def overview(rows: DataFrame) -> Overview:
    done = F.col("record") == DONE
    sums = ("dropped", "dropped_operations", "failed_writes")
    row: Any = rows.agg(
        F.count_if(done).alias("records"),
        F.min(F.when(done, F.unix_seconds("time"))).alias("first"),
        F.max(F.when(done, F.unix_seconds("time"))).alias("last"),
        *[F.sum(F.when(F.col("record") == MISSING, F.col(name))).alias(name) for name in sums],
    ).first()
    found = {name: 0 if row[name] is None else row[name] for name in sums}
    return Overview(row["records"], row["first"], row["last"], Missing(**found))


def cube(rows: DataFrame) -> DataFrame:
    """What was done by day, namespace, entity, kind and part: all tables are sums of this one. Days
    are those of the session's time zone."""
    answered = F.col("answered")
    return (
        rows.where(F.col("record") == DONE)
        .groupBy(F.to_date("time").alias("day"), "namespace", "entity", "kind", "part")
        .agg(
            *[
                F.sum(F.when(answered, F.col(name)).otherwise(0)).alias(name)
                for name in ("operations", "messages", "units", "bytes")
            ],
            F.sum(F.when(answered, 0).otherwise(F.col("operations"))).alias("unanswered"),
        )
    )


@dataclass(frozen=True, slots=True)
class Rates:
    """What a unit cost in each month, on the average of all that was done in it: prices have bands
    over a whole month."""

    by_month: Mapping[date, float]
    per_byte: float
    money: Decimal
    """The whole."""

    def share(self, units: Column, size: Column, day: Column) -> Column:
        """The money for what was done on a day."""
        rate = F.lit(0.0)
        for month, price in self.by_month.items():
            rate = F.when(F.trunc(day, "month") == F.lit(month), F.lit(price)).otherwise(rate)
        return units * rate + size * F.lit(self.per_byte)

    def share_of(self, row: Any) -> float:
        rate = self.by_month.get(row["day"].replace(day=1), 0.0)
        return float(row["units"] * rate + row["bytes"] * self.per_byte)


@dataclass(frozen=True, slots=True)
class Calendar:
    """What was done by day, part and kind: as many rows as the calendar has days, at most, times
    the kinds that there are."""

    rows: Sequence[Any]
    rates: Rates

    def by(self, key: str) -> dict[str, Sums]:
        found: dict[str, Sums] = {}
        for row in sorted(self.rows, key=lambda row: str(row[key])):
            name = str(row[key])
            found[name] = self._plus(found.get(name, Sums()), row)
        return found

    @property
    def total(self) -> Sums:
        total = Sums()
        for row in self.rows:
            total = self._plus(total, row)
        return total

    def _plus(self, sums: Sums, row: Any) -> Sums:
        counts = {name: getattr(sums, name) + row[name] for name in COUNTS}
        return Sums(**counts, money=sums.money + self.rates.share_of(row))


def calendar(summed: DataFrame, prices: Prices, tier: Tier) -> Calendar:
    sums = [F.sum(name).alias(name) for name in COUNTS]
    rows = summed.groupBy("day", "part", "kind").agg(*sums).collect()
    units: Counter[date] = Counter()
    size = 0
    for row in rows:
        units[row["day"].replace(day=1)] += row["units"]
        size += row["bytes"]
    costs = {month: prices.operations(tier, count) for month, count in units.items()}
    by_month = {month: float(cost / units[month]) for month, cost in costs.items() if cost}
    money = sum(costs.values(), Decimal(0)) + prices.bandwidth(size)
    return Calendar(rows, Rates(by_month, float(prices.bandwidth(1)), money))


def priced(summed: DataFrame, known: Rates) -> DataFrame:
    money = known.share(F.col("units"), F.col("bytes"), F.col("day"))
    return summed.withColumn("money", money)


def table(summed: DataFrame, key: str) -> DataFrame:
    return summed.groupBy(key).agg(*[F.sum(name).alias(name) for name in (*COUNTS, "money")])


def largest(summed: DataFrame, key: str) -> dict[str, Sums]:
    """Of a table with any number of rows those with most charges."""
    best = table(summed, key).orderBy(F.desc("units"), F.desc("unanswered"), key)
    return {str(row[key]): sums_of(row) for row in best.limit(MOST_LINES).collect()}


def sums_of(row: Any) -> Sums:
    return Sums(**{name: row[name] for name in (*COUNTS, "money")})


def width_of(first: int, last: int) -> int:
    """The width of a point of a plot, in seconds."""
    span = last - first + 1
    return next((w for w in WIDTHS_S if span <= w * MOST_POINTS), WIDTHS_S[-1])


def series(rows: DataFrame, found: Overview) -> Series:
    """Operations by part over time, and how the backlog grew and shrank."""
    if found.first is None or found.last is None:
        return Series(1, ())
    width = width_of(found.first, found.last)
    second = F.unix_seconds("time")
    bucket = second - second % width
    sums = (
        rows.where((F.col("record") == DONE) & F.col("answered"))
        .groupBy(bucket.alias("second"), "part")
        .agg(
            F.sum("operations").alias("operations"),
            F.sum(F.when(is_stored(), F.col("messages")).otherwise(0)).alias("stored"),
            F.sum(F.when(is_gone(), F.col("messages")).otherwise(0)).alias("gone"),
        )
        .collect()
    )
    points: dict[int, tuple[dict[Part, int], list[int]]] = {}
    for row in sums:
        parts, moved = points.setdefault(row["second"], ({}, [0, 0]))
        parts[Part(row["part"])] = row["operations"]
        moved[0] += row["stored"]
        moved[1] += row["gone"]
    return Series(
        width,
        tuple(
            Point(datetime.fromtimestamp(second, UTC), parts, stored, gone)
            for second, (parts, (stored, gone)) in sorted(points.items())
        ),
    )


def is_stored() -> Column:
    """Put into the backlog."""
    return (F.col("part") == Part.BACKLOG.value) & _is_send()


def is_home() -> Column:
    """Sent to the primary by the syphon."""
    return (F.col("part") == Part.DRAIN.value) & _is_send()


def is_dead_lettered() -> Column:
    return (F.col("part") == Part.DRAIN.value) & (F.col("kind") == OperationKind.DEAD_LETTER.value)


def is_gone() -> Column:
    return is_home() | is_dead_lettered()


def _is_send() -> Column:
    return F.col("kind").isin(OperationKind.SEND.value, OperationKind.SCHEDULE.value)
