"""`pairbus cost report`: the cost of a pairing, from its ledgers."""

import contextlib
import os
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from pairbus.cli.console import consoles, print_error, print_json, print_warning
from pairbus.cli.cost_tables import print_titled_table, titled_table
from pairbus.cli.default_paths import ledger_folder
from pairbus.cli.pairing_options import AsJson
from pairbus.cli.spark_errors import first_logged_error
from pairbus.cli.spark_requirements import check_spark
from pairbus.cli.threads import run_in_thread
from pairbus.cost.prices import Prices, read_prices
from pairbus.errors import ConfigurationError
from pairbus.spark.error_summary import error_summary

if TYPE_CHECKING:  # Importing these takes a second, which `--help` does not need.
    from pairbus.cost.report import Report

SUCCESS, FAILURE, USAGE_ERROR, INTERRUPTED = 0, 1, 2, 130
EXAMPLE = "Example: pairbus cost report ledgers/ --out report --html report.html"

PricesFile = Annotated[
    Path | None, typer.Option(help="TOML file with prices, instead of the built-in ones.")
]
TierName = Annotated[str, typer.Option(help="Tier: basic, standard or premium.")]


def report(
    ledgers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LEDGER...]",
            help="Files, folders or glob patterns, also s3a:// or abfss://; "
            "also the Parquet rows of earlier reports.",
            show_default="$XDG_STATE_HOME/pairbus/ledger",
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Write rows and tables as Parquet to this folder.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page with tables and plots to this file.", dir_okay=False),
    ] = None,
    prices: PricesFile = None,
    tier: TierName = "standard",
    timezone: Annotated[
        str, typer.Option(help="Time zone of days and months, such as Europe/Berlin.")
    ] = "UTC",
    as_json: AsJson = False,
    master: Annotated[
        str | None,
        typer.Option(help="URL of a Spark master. Without it, Spark runs on this machine."),
    ] = None,
) -> None:
    """Report operations and their cost by outage, purpose, operation, day, namespace and entity.

    Files and lines that cannot be read are listed and skipped.

    Exit status: 0 success; 1 failure, or no file could be read; 2 invalid option or file; 130
    stopped by Ctrl-C.
    """
    console, err = consoles()
    try:
        if master is not None and master.startswith("sc://"):
            from pairbus.spark.sessions import NOT_REMOTE

            raise ConfigurationError(f"--master: {NOT_REMOTE}")
        price_list = read_prices(prices)
        if html is not None and not html.absolute().parent.is_dir():
            raise ConfigurationError(
                f"--html: the folder {html.absolute().parent} does not exist. Create it first."
            )
    except ConfigurationError as exc:
        print_error(err, exc)
        raise typer.Exit(USAGE_ERROR) from exc
    paths = ledgers or [str(ledger_folder())]
    if master is None and (missing := missing_paths(paths)) and len(missing) == len(paths):
        for path in missing:
            print_error(err, f"{path}: no such file or folder. Name the ledger of a pairing.")
        raise typer.Exit(FAILURE)
    if not check_spark(err, master):
        raise typer.Exit(FAILURE)
    result = _run(
        err,
        paths,
        price_list,
        master,
        out=out,
        tier=tier,
        timezone=timezone,
    )
    if html is not None:
        from pairbus.cost.page import render_page

        try:
            html.write_text(render_page(result), "utf-8")
        except OSError as exc:
            print_error(err, f"--html: the page cannot be written: {exc}")
            raise typer.Exit(FAILURE) from exc
    if as_json:
        print_json(result.to_json())
    else:
        _print_report(console, result)
        _print_problems(err, result)
    raise typer.Exit(FAILURE if result.problems and not result.files else SUCCESS)


def missing_paths(paths: list[str]) -> list[str]:
    """Return the paths that do not exist for certain: those on this machine."""
    return [path for path in paths if _is_local(path) and not Path(path).exists()]


def _is_local(path: str) -> bool:
    """Return True if a path is on this machine for certain, and no glob pattern. Paths without a
    scheme are elsewhere if Hadoop is configured here."""
    is_plain = not re.search(r"[*?\[\]{}\\]|^\w[\w+.-]+:", path)
    return is_plain and not os.environ.get("HADOOP_CONF_DIR")


def are_small(paths: list[str], max_bytes: int) -> bool:
    """Return True if the files of all paths are on this machine, and have few bytes in total."""
    if not all(map(_is_local, paths)):
        return False
    size = 0
    for path in map(Path, paths):
        for file in path.rglob("*") if path.is_dir() else [path]:
            with contextlib.suppress(OSError):  # Spark reports it
                size += file.stat().st_size
            if size > max_bytes:
                return False
    return True


def _run(
    err: Console, ledgers: list[str], prices: Prices, master: str | None, **options: Any
) -> "Report":
    """Return the report, or end the command with an error."""
    with tempfile.NamedTemporaryFile(
        "r", prefix="pairbus-", suffix=".log", errors="replace"
    ) as log:
        make_report = partial(_run_on_spark, Path(log.name), ledgers, prices, master, **options)
        try:
            with err.status("Starting Spark…") as status:  # Shown on a terminal only.
                return run_in_thread(partial(make_report, status.update))
        except ConfigurationError as exc:
            print_error(err, exc)
            raise typer.Exit(USAGE_ERROR) from exc
        except KeyboardInterrupt as exc:
            print_warning(err, "Stopped.")
            raise typer.Exit(INTERRUPTED) from exc
        except Exception as exc:  # Spark raises errors of many types.
            print_error(
                err, f"Spark failed: {first_logged_error(log.read()) or error_summary(exc)}"
            )
            raise typer.Exit(FAILURE) from exc


def _run_on_spark(
    log: Path,
    ledgers: list[str],
    prices: Prices,
    master: str | None,
    update_status: Callable[[str], None],
    **options: Any,
) -> "Report":
    from pairbus.cost.report.run import MAX_SMALL_BYTES
    from pairbus.cost.report.run import report as make_report
    from pairbus.spark.sessions import Workload, create_session

    workload = Workload.SMALL_QUERIES if are_small(ledgers, MAX_SMALL_BYTES) else Workload.QUERIES
    spark = create_session(master, "pairbus-cost-report", workload=workload, log=log)
    try:
        if master is None or master.startswith("local"):
            # Spark's default of 200 partitions is meant for a cluster.
            cores = spark.sparkContext.defaultParallelism
            spark.conf.set("spark.sql.shuffle.partitions", str(cores))
        update_status("Summing up the ledgers…")
        return make_report(spark, ledgers, prices, **options)
    finally:
        spark.stop()


def _print_report(out: Console, result: "Report") -> None:
    from pairbus.cost.report_tables import (
        describe_input,
        describe_prices,
        key_figures,
        report_tables,
    )

    out.print(escape(describe_input(result)))
    out.print(escape(describe_prices(result)))
    for name, value in key_figures(result):
        out.print(f"  {name}: {escape(value)}")
    for content in report_tables(result):
        if not content.rows:
            continue
        table = titled_table(out, content.title, content.head, text_columns=content.text_columns)
        for row in content.rows:
            table.add_row(*map(escape, row))
        print_titled_table(out, table)
        if content.note:
            out.print(escape(content.note))


def _print_problems(err: Console, result: "Report") -> None:
    from pairbus.cost.report_tables import describe_gaps, problem_cells

    if gaps := describe_gaps(result):
        print_warning(err, gaps)
    for problem in result.problems:
        path, description, consequence = problem_cells(problem)
        print_warning(err, f"{path}: {description} ({consequence})")
    if (hidden := result.problem_count - len(result.problems)) > 0:
        print_warning(err, f"Problems that are not shown: {hidden:,}")
    for path in result.copies:
        print_warning(err, f"{path}: a copy of another file (not counted)")
