"""Outages: from the first sender's failover to the last drained message, with their operations.

Each sender records when a path fails over and when it is healthy again. Overlapping intervals of
one path are one outage, regardless of the sender. An operation for a path belongs to the last
outage that started before it.
"""

from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pairbus.cost.report.aggregates import (
    UnitCosts,
    is_backlog_send,
    is_dead_lettered,
    is_drain_send,
    totals_of_row,
)
from pairbus.cost.report.result import MAX_ROWS, OutageSummary
from pairbus.cost.report.rows import OPERATIONS, STATE_CHANGE
from pairbus.events import PathStatus
from pairbus.usage.operations import OperationKind, Purpose

_FAILOVER, _DRAINING = PathStatus.FAILOVER.value, PathStatus.DRAINING.value
_PURPOSES = [Purpose.PINGS.value, Purpose.BACKLOG.value, Purpose.DRAIN.value]


def find_outages(rows: DataFrame, spans: DataFrame, unit_costs: UnitCosts) -> DataFrame:
    """Return a row for each outage. `spans` is the result of `failover_spans`."""
    totals = _outage_totals(rows, spans, unit_costs)
    outages = spans.join(totals, ["namespace", "entity", "start"], "left").fillna(
        0,
        [
            *("stored", "drained", "dead_lettered", "pings"),
            *("operations", "messages", "units", "bytes", "unanswered", "cost"),
        ],
    )
    path = Window.partitionBy("namespace", "entity")
    up_to_here = path.orderBy("start").rowsBetween(Window.unboundedPreceding, 0)
    removed = F.col("drained") + F.col("dead_lettered")
    # Messages that one outage left in the backlog may be drained in the next.
    remaining = F.sum(F.col("stored") - removed).over(up_to_here)
    is_last = F.col("start") == F.max("start").over(path)
    is_open = is_last & (F.col("failback").isNull() | (remaining > 0))
    end = F.when(~is_open, F.greatest(F.coalesce("failback", "start"), "last_drained"))
    return outages.withColumns({"open": is_open, "end": end}).drop("last_drained")


def collect_latest(outages: DataFrame) -> tuple[OutageSummary, ...]:
    """Return the latest outages, in the order of their start."""
    latest = outages.orderBy(F.desc("start"), "namespace", "entity").limit(MAX_ROWS)
    times = ("start", "failback", "end")
    micros = [F.unix_micros(name).alias(name) for name in times]
    others = [name for name in outages.columns if name not in times]
    return tuple(
        OutageSummary(
            namespace=row["namespace"],
            entity=row["entity"],
            start=datetime.fromtimestamp(row["start"] / 1e6, UTC),
            failback=_optional_time(row["failback"]),
            end=_optional_time(row["end"]),
            open=row["open"],
            stored=row["stored"],
            drained=row["drained"],
            dead_lettered=row["dead_lettered"],
            pings=row["pings"],
            totals=totals_of_row(row),
        )
        for row in reversed(latest.select(*micros, *others).collect())
    )


def _sender_intervals(rows: DataFrame) -> DataFrame:
    """Return the intervals from failover to healthy, for each sender."""
    sender = Window.partitionBy("namespace", "entity", "ledger").orderBy("time")
    later = sender.rowsBetween(1, Window.unboundedFollowing)
    is_start = (F.col("to_state") == _FAILOVER) & ~F.col("from_state").isin(_FAILOVER, _DRAINING)
    is_healthy = F.col("to_state") == PathStatus.HEALTHY.value
    starts = (
        rows.where(F.col("record") == STATE_CHANGE)
        .select(
            "namespace",
            "entity",
            "ledger",
            F.col("time").alias("start"),
            is_start.alias("is_start"),
            F.min(F.when(is_healthy, F.col("time"))).over(later).alias("failback"),
            F.min(F.when(is_start, F.col("time"))).over(later).alias("next_start"),
        )
        .where("is_start")
    )
    # A sender without a failback was stopped or is still in failover. Its interval ends with its
    # last record.
    last_records = rows.groupBy("ledger").agg(F.max("time").alias("last_record"))
    is_before_next = F.col("next_start").isNull() | (F.col("failback") <= F.col("next_start"))
    failback = F.when(is_before_next, F.col("failback"))
    last_seen = F.greatest("start", F.least("next_start", "last_record"))
    return starts.join(last_records, "ledger").select(
        "namespace",
        "entity",
        "start",
        failback.alias("failback"),
        F.when(failback.isNull(), last_seen).alias("last_seen"),
        F.coalesce(failback, last_seen).alias("until"),
    )


def failover_spans(rows: DataFrame) -> DataFrame:
    """Return the time spans in which paths were in failover, merged over all senders."""
    intervals = _sender_intervals(rows)
    path = Window.partitionBy("namespace", "entity").orderBy("start", "until")
    earlier = path.rowsBetween(Window.unboundedPreceding, -1)
    covered_until = F.max("until").over(earlier)
    is_new = F.when(covered_until.isNull() | (F.col("start") > covered_until), 1).otherwise(0)
    numbered = intervals.withColumn("is_new", is_new).withColumn(
        "number", F.sum("is_new").over(path)
    )
    # A sender that was last seen before the other senders' failback does not keep the outage open.
    still_in_failover = F.max("last_seen") > F.max("failback")
    return numbered.groupBy("namespace", "entity", "number").agg(
        F.min("start").alias("start"),
        F.when(still_in_failover, None).otherwise(F.max("failback")).alias("failback"),
    )


def _outage_totals(rows: DataFrame, spans: DataFrame, unit_costs: UnitCosts) -> DataFrame:
    """Return the totals of the operations for each outage."""
    operations = rows.where((F.col("record") == OPERATIONS) & F.col("purpose").isin(_PURPOSES))
    starts = spans.groupBy(F.col("namespace").alias("primary"), "entity").agg(
        F.collect_list("start").alias("starts")
    )
    # Operations are summed up per second; state changes have milliseconds.
    earlier_starts = F.filter(
        "starts", lambda start: F.date_trunc("second", start) <= F.col("time")
    )
    assigned = (
        operations.withColumn("primary", _primary_column(_primaries(rows, operations)))
        .join(starts, ["primary", "entity"])
        .withColumn("start", F.array_max(earlier_starts))
        .where(F.col("start").isNotNull())
    )
    answered = F.col("answered")

    def total(value: str | Column, condition: Column = answered) -> Column:
        column = F.col(value) if isinstance(value, str) else value
        return F.sum(F.when(condition, column).otherwise(0))

    is_drained = answered & is_drain_send() & (F.col("namespace") == F.col("primary"))
    cost = unit_costs.cost_column(F.col("units"), F.col("bytes"), F.to_date("time"))
    return (
        assigned.groupBy("primary", "entity", "start")
        .agg(
            total("messages", answered & is_backlog_send()).alias("stored"),
            total("messages", is_drained).alias("drained"),
            total("messages", answered & is_dead_lettered()).alias("dead_lettered"),
            total("operations", F.col("kind") == OperationKind.PING.value).alias("pings"),
            F.max(F.when(is_drained, F.col("time"))).alias("last_drained"),
            *[total(name).alias(name) for name in ("operations", "messages", "units", "bytes")],
            total("operations", ~answered).alias("unanswered"),
            total(cost).alias("cost"),
        )
        .withColumnRenamed("primary", "namespace")
    )


def _primaries(rows: DataFrame, operations: DataFrame) -> dict[str, str]:
    """Return the primary of each secondary.

    A sender that stores messages in a secondary also records the failover of its primary. A
    secondary has one primary; if one ledger is of several pairings, the majority decides.
    """
    primary = F.col("namespace").alias("primary")
    failed_over = (
        rows.where(F.col("record") == STATE_CHANGE).select("ledger", "entity", primary).distinct()
    )
    stored = operations.where(F.col("purpose") == Purpose.BACKLOG.value)
    pairs = (
        stored.select("ledger", "entity", "namespace")
        .distinct()
        .join(failed_over, ["ledger", "entity"])
        .groupBy("namespace")
        .agg(F.mode("primary", deterministic=True).alias("primary"))
        .collect()
    )
    return {row["namespace"]: row["primary"] for row in pairs}


def _primary_column(primaries: dict[str, str]) -> Column:
    """Return the primary that an operation was for, at the primary itself or at its secondary."""
    column = F.col("namespace")
    for secondary, primary in primaries.items():
        column = F.when(F.col("namespace") == secondary, F.lit(primary)).otherwise(column)
    return column


def _optional_time(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)
