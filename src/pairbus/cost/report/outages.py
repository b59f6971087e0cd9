"""Outages: from the first sender's failover to the last message home, with what was done for it.

Each sender notes when a path of its own fails over and when it is healthy again. Intervals of one
path that overlap are one outage, whoever noted them. What is done for the path belongs to the last
outage that had begun.
"""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pairbus.cost.report.result import MOST_LINES, PastOutage
from pairbus.cost.report.rows import CHANGE, DONE
from pairbus.cost.report.tables import (
    Rates,
    is_dead_lettered,
    is_home,
    is_stored,
    sums_of,
)
from pairbus.events import PathStatus
from pairbus.usage.operations import OperationKind, Part

_FAILOVER, _DRAINING = PathStatus.FAILOVER.value, PathStatus.DRAINING.value
_PARTS = [Part.PINGS.value, Part.BACKLOG.value, Part.DRAIN.value]


def outages(rows: DataFrame, failed: DataFrame, known: Rates) -> DataFrame:
    """A row for each outage; `failed` is what `spans` gives."""
    done = _sums(rows, failed, known)
    found = failed.join(done, ["namespace", "entity", "start"], "left").fillna(
        0,
        [
            *("stored", "home", "dead_lettered", "pings"),
            *("operations", "messages", "units", "bytes", "unanswered", "money"),
        ],
    )
    path = Window.partitionBy("namespace", "entity")
    so_far = path.orderBy("start").rowsBetween(Window.unboundedPreceding, 0)
    gone = F.col("home") + F.col("dead_lettered")
    # What one outage left in the backlog may come home in the next.
    left = F.sum(F.col("stored") - gone).over(so_far)
    is_last = F.col("start") == F.max("start").over(path)
    is_open = is_last & (F.col("failback").isNull() | (left > 0))
    end = F.when(~is_open, F.greatest(F.coalesce("failback", "start"), "last_home"))
    return found.withColumns({"open": is_open, "end": end}).drop("last_home")


def latest(found: DataFrame) -> tuple[PastOutage, ...]:
    """Those that began last, in the order in which they began."""
    last = found.orderBy(F.desc("start"), "namespace", "entity").limit(MOST_LINES)
    instants = [F.unix_micros(name).alias(name) for name in ("start", "failback", "end")]
    rest = [name for name in found.columns if name not in ("start", "failback", "end")]
    return tuple(
        PastOutage(
            namespace=row["namespace"],
            entity=row["entity"],
            start=datetime.fromtimestamp(row["start"] / 1e6, UTC),
            failback=_instant(row["failback"]),
            end=_instant(row["end"]),
            open=row["open"],
            stored=row["stored"],
            home=row["home"],
            dead_lettered=row["dead_lettered"],
            pings=row["pings"],
            sums=sums_of(row),
        )
        for row in reversed(last.select(*instants, *rest).collect())
    )


def _intervals(rows: DataFrame) -> DataFrame:
    """From failover to healthy, as each sender saw it."""
    mine = Window.partitionBy("namespace", "entity", "ledger").orderBy("time")
    later = mine.rowsBetween(1, Window.unboundedFollowing)
    begins = (F.col("to_state") == _FAILOVER) & ~F.col("from_state").isin(_FAILOVER, _DRAINING)
    back = F.col("to_state") == PathStatus.HEALTHY.value
    began = (
        rows.where(F.col("record") == CHANGE)
        .select(
            "namespace",
            "entity",
            "ledger",
            F.col("time").alias("start"),
            begins.alias("begins"),
            F.min(F.when(back, F.col("time"))).over(later).alias("failback"),
            F.min(F.when(begins, F.col("time"))).over(later).alias("next"),
        )
        .where("begins")
    )
    # A sender that never went back was stopped, or is still at it: how long did it live?
    heard = rows.groupBy("ledger").agg(F.max("time").alias("heard"))
    seen_back = F.col("next").isNull() | (F.col("failback") <= F.col("next"))
    failback = F.when(seen_back, F.col("failback"))
    lived = F.greatest("start", F.least("next", "heard"))
    return began.join(heard, "ledger").select(
        "namespace",
        "entity",
        "start",
        failback.alias("failback"),
        F.when(failback.isNull(), lived).alias("lived"),
        F.coalesce(failback, lived).alias("until"),
    )


def spans(rows: DataFrame) -> DataFrame:
    """When paths were in failover: intervals of all senders that overlap as one, by path."""
    intervals = _intervals(rows)
    path = Window.partitionBy("namespace", "entity").orderBy("start", "until")
    before = path.rowsBetween(Window.unboundedPreceding, -1)
    reached = F.max("until").over(before)
    is_new = F.when(reached.isNull() | (F.col("start") > reached), 1).otherwise(0)
    numbered = intervals.withColumn("new", is_new).withColumn("number", F.sum("new").over(path))
    # One that was last heard of before the others went back is not waited for.
    waits = F.max("lived") > F.max("failback")
    return numbered.groupBy("namespace", "entity", "number").agg(
        F.min("start").alias("start"),
        F.when(waits, None).otherwise(F.max("failback")).alias("failback"),
    )


def _sums(rows: DataFrame, failed: DataFrame, known: Rates) -> DataFrame:
    """What was done for each outage."""
    done = rows.where((F.col("record") == DONE) & F.col("part").isin(_PARTS))
    starts = failed.groupBy(F.col("namespace").alias("primary"), "entity").agg(
        F.collect_list("start").alias("starts")
    )
    # Sums are of whole seconds, changes are not.
    began = F.filter("starts", lambda start: F.date_trunc("second", start) <= F.col("time"))
    placed = (
        done.withColumn("primary", _primary_of(_primaries(rows, done)))
        .join(starts, ["primary", "entity"])
        .withColumn("start", F.array_max(began))
        .where(F.col("start").isNotNull())
    )
    answered = F.col("answered")

    def total(value: str | Column, when: Column = answered) -> Column:
        column = F.col(value) if isinstance(value, str) else value
        return F.sum(F.when(when, column).otherwise(0))

    came_home = answered & is_home() & (F.col("namespace") == F.col("primary"))
    money = known.share(F.col("units"), F.col("bytes"), F.to_date("time"))
    return (
        placed.groupBy("primary", "entity", "start")
        .agg(
            total("messages", answered & is_stored()).alias("stored"),
            total("messages", came_home).alias("home"),
            total("messages", answered & is_dead_lettered()).alias("dead_lettered"),
            total("operations", F.col("kind") == OperationKind.PING.value).alias("pings"),
            F.max(F.when(came_home, F.col("time"))).alias("last_home"),
            *[total(name).alias(name) for name in ("operations", "messages", "units", "bytes")],
            total("operations", ~answered).alias("unanswered"),
            total(money).alias("money"),
        )
        .withColumnRenamed("primary", "namespace")
    )


def _primaries(rows: DataFrame, done: DataFrame) -> dict[str, str]:
    """The primary of each secondary. Whoever stores in a secondary notes its failover from the
    primary too. A secondary has one primary; where one ledger is of several pairings, most of what
    it says decides."""
    primary = F.col("namespace").alias("primary")
    noted = rows.where(F.col("record") == CHANGE).select("ledger", "entity", primary).distinct()
    stored = done.where(F.col("part") == Part.BACKLOG.value)
    pairs = (
        stored.select("ledger", "entity", "namespace")
        .distinct()
        .join(noted, ["ledger", "entity"])
        .groupBy("namespace")
        .agg(F.mode("primary", deterministic=True).alias("primary"))
        .collect()
    )
    return {row["namespace"]: row["primary"] for row in pairs}


def _primary_of(primaries: dict[str, str]) -> Column:
    """For which primary something was done; at a primary that is plain."""
    primary = F.col("namespace")
    for secondary, of in primaries.items():
        primary = F.when(F.col("namespace") == secondary, F.lit(of)).otherwise(primary)
    return primary


def _instant(micros: Any) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)
