"""One report, from the files to its tables."""

from collections.abc import Iterable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame, Observation, SparkSession

from pairbus.cost.prices import Prices, Tier, read_prices
from pairbus.cost.report.files import ROWS, Disk, Found, find
from pairbus.cost.report.outages import latest, outages, spans
from pairbus.cost.report.result import MOST_LINES, Problem, Report
from pairbus.cost.report.rows import ROW_SCHEMA, broken_lines, clean, read_lines, read_parquet
from pairbus.cost.report.tables import (
    calendar,
    cube,
    largest,
    overview,
    priced,
    series,
    table,
)
from pairbus.errors import ConfigurationError

_PROBLEM = "path string, what string, skipped boolean, lines long"
KEYS = ("day", "part", "kind", "namespace", "entity")


def report(
    spark: SparkSession,
    paths: Iterable[str | Path],
    prices: Prices | None = None,
    *,
    out: str | Path | None = None,
    tier: Tier | str = Tier.STANDARD,
    timezone: str = "UTC",
) -> Report:
    """Sum up ledgers: files, folders and patterns, on any file system that Spark knows; also the
    Parquet of an earlier report.

    With `out`, rows and tables are written there as Parquet; tables of an earlier report in it are
    replaced. Days and months are those of `timezone`. What cannot be read is in `problems`. Raises
    ConfigurationError. The settings of the session are not changed.
    """
    prices = read_prices() if prices is None else prices
    tier = Tier.named(tier)
    zone = _zone(timezone)
    spark = _session(spark, timezone)
    disk = Disk(spark)
    given = [str(path) for path in paths]
    target = None if out is None else _target(disk, str(out), given)
    found = find(disk, given)
    with ExitStack() as stack:
        rows = stack.enter_context(_rows(spark, found, target))
        seen = overview(rows)
        summed = stack.enter_context(_kept(cube(rows)))
        days = calendar(summed, prices, tier)
        summed = priced(summed, days.rates)
        failed = stack.enter_context(_kept(spans(rows)))
        past = stack.enter_context(_kept(outages(rows, failed, days.rates)))
        if target is not None:
            _write(spark, target, summed, past, found.problems)
        by_entity = largest(summed, "entity")
        shown = latest(past)
        return Report(
            prices=prices,
            tier=tier,
            zone=zone,
            records=seen.records,
            files=len(found.ledgers) + len(found.parquet),
            copies=tuple(found.copies),
            first=None if seen.first is None else datetime.fromtimestamp(seen.first, zone),
            last=None if seen.last is None else datetime.fromtimestamp(seen.last, zone),
            total=days.total,
            money=days.rates.money,
            by_day=days.by("day"),
            by_part=days.by("part"),
            by_kind=days.by("kind"),
            by_namespace=largest(summed, "namespace"),
            by_entity=by_entity,
            entities=_count(by_entity, summed.select("entity").distinct()),
            outages=shown,
            outage_count=_count(shown, past),
            series=series(rows, seen),
            missing=seen.missing,
            problems=tuple(found.problems[:MOST_LINES]),
            problem_count=len(found.problems),
        )


def _count(shown: Sized, rows: DataFrame) -> int:
    """How many rows there are. Most often all of them are shown, and Spark need not be asked."""
    return len(shown) if len(shown) < MOST_LINES else rows.count()


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as exc:
        raise ConfigurationError(
            f"{name!r} is not a time zone: it is one such as UTC or Europe/Berlin"
        ) from exc


def _session(spark: SparkSession, timezone: str) -> SparkSession:
    """A session with the same settings, in which days are those of a time zone."""
    mine = spark.newSession()
    for key, value in spark.conf.getAll.items():
        if mine.conf.isModifiable(key):
            mine.conf.set(key, value)
    mine.conf.set("spark.sql.session.timeZone", timezone)
    return mine


def _target(disk: Disk, out: str, given: list[str]) -> str:
    """Where to write. What is read must not be replaced meanwhile."""
    target = disk.qualified(out).rstrip("/")
    for path in given:
        read = disk.qualified(path).rstrip("/")
        if f"{target}/".startswith(f"{read}/") or f"{read}/".startswith(f"{target}/"):
            raise ConfigurationError(f"{out}: this is read ({path}): write to another folder")
    return target


@contextmanager
def _rows(spark: SparkSession, found: Found, target: str | None) -> Iterator[DataFrame]:
    """The rows of all files. Lines are parsed once: they are kept, on disk if need be, or written
    to where they are wanted and read from there."""
    earlier = read_parquet(spark, found)
    if not found.ledgers and target is None:
        yield _none(spark) if earlier is None else earlier
        return
    watch = Observation()
    lines = read_lines(spark, found.ledgers) if found.ledgers else None
    rows = _none(spark) if lines is None else clean(lines, watch)
    if earlier is not None:
        rows = rows.unionByName(earlier)
    if target is None:
        rows = rows.persist()
        rows.count()
    else:
        rows.write.mode("overwrite").parquet(f"{target}/{ROWS}")
        rows = spark.read.parquet(f"{target}/{ROWS}")
    try:
        if lines is not None:
            counts = watch.get
            if counts["bad"] or counts["header"] != len(found.ledgers):
                found.problems += broken_lines(lines, found.ledgers)
        yield rows
    finally:
        rows.unpersist()


def _none(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], ROW_SCHEMA)


@contextmanager
def _kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Computed once, and forgotten at the end."""
    kept = rows.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _write(
    spark: SparkSession, target: str, summed: DataFrame, past: DataFrame, problems: list[Problem]
) -> None:
    tables = {f"by_{key}": table(summed, key) for key in KEYS}
    tables["outages"] = past.drop("number")
    tables["problems"] = spark.createDataFrame([asdict(one) for one in problems], _PROBLEM)
    for name, rows in tables.items():
        first = rows.columns[:3]
        rows.coalesce(1).sortWithinPartitions(*first).write.mode("overwrite").parquet(
            f"{target}/{name}"
        )
