"""The report: from files to tables."""

from collections.abc import Iterable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame, Observation, SparkSession

from pairbus.cost.prices import Prices, Tier, read_prices
from pairbus.cost.report.aggregates import (
    collect_daily_totals,
    collect_largest,
    collect_overview,
    collect_time_series,
    sum_by_day,
    totals_by,
    with_cost,
)
from pairbus.cost.report.files import ROWS, HadoopFiles, ReportInput, find_input
from pairbus.cost.report.outages import collect_latest, failover_spans, find_outages
from pairbus.cost.report.result import MAX_ROWS, InputProblem, Report
from pairbus.cost.report.rows import (
    ROW_SCHEMA,
    LedgerRows,
    all_lines_are_valid,
    find_invalid_lines,
    read_lines,
    read_parquet,
    valid_rows,
)
from pairbus.errors import ConfigurationError
from pairbus.spark.sessions import NOT_REMOTE, is_remote

MAX_SMALL_BYTES = 8_000_000
"""Ledgers of at most this size are small: about 50,000 records."""
TASKS_PER_CORE = 4
_MIN_TASKS_SETTING = "spark.sql.files.minPartitionNum"
_PROBLEM_SCHEMA = "path string, description string, skipped boolean, skipped_lines long"
_TABLE_COLUMNS = ("day", "purpose", "kind", "namespace", "entity")


def report(
    spark: SparkSession,
    paths: Iterable[str | Path],
    prices: Prices | None = None,
    *,
    out: str | Path | None = None,
    tier: Tier | str = Tier.STANDARD,
    timezone: str = "UTC",
) -> Report:
    """Report the operations in ledgers and their cost.

    `paths` are files, folders and glob patterns on any file system that Spark can read: ledgers,
    and the Parquet rows of earlier reports. With `out`, rows and tables are written to that folder
    as Parquet; the tables of an earlier report there are replaced. Days and months are those of
    `timezone`. Files and lines that cannot be read are listed in `problems`. The settings of the
    session are not changed. Raises ConfigurationError.
    """
    if is_remote(spark):
        raise ConfigurationError(NOT_REMOTE)
    prices = read_prices() if prices is None else prices
    tier = Tier.named(tier)
    zone = _time_zone(timezone)
    spark = report_session(spark, timezone)
    file_systems = HadoopFiles(spark)
    path_texts = [str(path) for path in paths]
    target = None if out is None else _target_folder(file_systems, str(out), path_texts)
    report_input = find_input(file_systems, path_texts)
    if _is_small(report_input):
        _disable_code_generation(spark)
    with ExitStack() as stack:
        input_rows = stack.enter_context(_input_rows(spark, report_input, target))
        rows = input_rows.frame
        overview = collect_overview(rows)
        sums = stack.enter_context(_persisted(sum_by_day(input_rows)))
        daily_totals = collect_daily_totals(sums, prices, tier)
        unit_costs = daily_totals.unit_costs
        sums = with_cost(sums, unit_costs)
        spans = stack.enter_context(_persisted(failover_spans(rows)))
        outages = stack.enter_context(_persisted(find_outages(rows, spans, unit_costs)))
        if target is not None:
            _write_tables(spark, target, sums, outages, report_input.problems)
        by_entity = collect_largest(sums, "entity")
        latest_outages = collect_latest(outages)
        return Report(
            prices=prices,
            tier=tier,
            zone=zone,
            records=overview.records,
            files=len(report_input.ledgers) + len(report_input.parquet),
            copies=tuple(report_input.copies),
            first=_optional_time(overview.first, zone),
            last=_optional_time(overview.last, zone),
            total=daily_totals.total,
            cost=unit_costs.total,
            by_day=daily_totals.by("day"),
            by_purpose=daily_totals.by("purpose"),
            by_kind=daily_totals.by("kind"),
            by_namespace=collect_largest(sums, "namespace"),
            by_entity=by_entity,
            entity_count=_count(by_entity, sums.select("entity").distinct()),
            outages=latest_outages,
            outage_count=_count(latest_outages, outages),
            series=collect_time_series(rows, overview),
            gaps=overview.gaps,
            problems=tuple(report_input.problems[:MAX_ROWS]),
            problem_count=len(report_input.problems),
        )


def _count(collected: Sized, rows: DataFrame) -> int:
    """Return the number of rows, without a Spark job if all of them are collected already."""
    return len(collected) if len(collected) < MAX_ROWS else rows.count()


def _time_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as exc:
        raise ConfigurationError(
            f"Unknown time zone {name!r}. Use a name such as UTC or Europe/Berlin."
        ) from exc


def _optional_time(seconds: int | None, zone: ZoneInfo) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, zone)


def report_session(spark: SparkSession, timezone: str) -> SparkSession:
    """Return a session with the same settings, but another time zone and smaller tasks: ledger
    files differ in size, and with one or two tasks for each core some would have to wait."""
    session = spark.newSession()
    for key, value in spark.conf.getAll.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    session.conf.set("spark.sql.session.timeZone", timezone)
    if session.conf.get(_MIN_TASKS_SETTING, None) is None:
        tasks = TASKS_PER_CORE * session.sparkContext.defaultParallelism
        session.conf.set(_MIN_TASKS_SETTING, str(tasks))
    return session


def _is_small(report_input: ReportInput) -> bool:
    size = sum(file.size for file in report_input.ledgers)
    return not report_input.parquet and size <= MAX_SMALL_BYTES


def _disable_code_generation(spark: SparkSession) -> None:
    """Let Spark interpret its expressions. To generate and compile Java code for them takes
    seconds, which only pays with many rows."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")


def _target_folder(file_systems: HadoopFiles, out: str, paths: list[str]) -> str:
    """Return the folder to write to. Raises ConfigurationError if it overlaps with the input."""
    target = file_systems.qualified(out).rstrip("/")
    for path in paths:
        source = file_systems.qualified(path).rstrip("/")
        if f"{target}/".startswith(f"{source}/") or f"{source}/".startswith(f"{target}/"):
            raise ConfigurationError(
                f"The output folder {out} overlaps with the input {path}. Choose another folder."
            )
    return target


@contextmanager
def _input_rows(
    spark: SparkSession, report_input: ReportInput, target: str | None
) -> Iterator[LedgerRows]:
    """Provide the rows of all input files.

    Lines are parsed once: the rows are persisted, or written to the target and read from there.
    """
    earlier = read_parquet(spark, report_input)
    ledgers = report_input.ledgers
    if not ledgers and target is None:
        yield LedgerRows(_no_rows(spark)) if earlier is None else earlier
        return
    observation = Observation()
    lines = read_lines(spark, ledgers) if ledgers else None
    rows = _no_rows(spark) if lines is None else valid_rows(lines, observation)
    if earlier is not None:
        rows = rows.unionByName(earlier.frame)
    files: tuple[str, ...] = ()
    if target is None:
        rows = rows.persist()
        rows.count()
    else:
        rows.write.mode("overwrite").parquet(f"{target}/{ROWS}")
        rows = spark.read.parquet(f"{target}/{ROWS}")
        files = tuple(find_input(HadoopFiles(spark), [f"{target}/{ROWS}"]).parquet)
    try:
        if lines is not None and not all_lines_are_valid(observation, ledgers):
            report_input.problems += find_invalid_lines(lines, ledgers)
        yield LedgerRows(rows, files)
    finally:
        rows.unpersist()


def _no_rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], ROW_SCHEMA)


@contextmanager
def _persisted(rows: DataFrame) -> Iterator[DataFrame]:
    persisted = rows.persist()
    try:
        yield persisted
    finally:
        persisted.unpersist()


def _write_tables(
    spark: SparkSession,
    target: str,
    sums: DataFrame,
    outages: DataFrame,
    problems: list[InputProblem],
) -> None:
    tables = {f"by_{column}": totals_by(sums, column) for column in _TABLE_COLUMNS}
    tables["outages"] = outages.drop("number")
    tables["problems"] = spark.createDataFrame(
        [asdict(problem) for problem in problems], _PROBLEM_SCHEMA
    )
    for name, rows in tables.items():
        sort_columns = rows.columns[:3]
        rows.coalesce(1).sortWithinPartitions(*sort_columns).write.mode("overwrite").parquet(
            f"{target}/{name}"
        )
