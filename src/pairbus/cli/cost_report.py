"""`pairbus cost report`: what a pairing did cost, from its ledgers."""

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pairbus.cli.console import check_java, consoles, print_error
from pairbus.cli.default_paths import ledger_folder
from pairbus.cli.spark_errors import error_summary, first_logged_error
from pairbus.cli.tables import natural_width
from pairbus.cli.threads import run_in_thread
from pairbus.cost.prices import read_prices
from pairbus.errors import ConfigurationError

DONE, FAILED, WRONG, STOPPED = 0, 1, 2, 130
EXAMPLE = "Example: pairbus cost report ledgers/ --out report --html report.html"


def report(
    ledgers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LEDGER...]",
            help="Files, folders or patterns, also s3a:// or abfss://; rows of an earlier report.",
            show_default="$XDG_STATE_HOME/pairbus/ledger",
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="A folder for rows and tables as Parquet.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="A file for a page with plots.", dir_okay=False)
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="A TOML file with your prices, instead of ours.")
    ] = None,
    tier: Annotated[str, typer.Option(help="basic, standard or premium.")] = "standard",
    timezone: Annotated[
        str, typer.Option(help="Of days and months, such as Europe/Berlin.")
    ] = "UTC",
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    master: Annotated[
        str | None, typer.Option(help="A Spark master; without it, Spark runs in this process.")
    ] = None,
) -> None:
    """Report what was done and what it cost: by day, entity, operation, part and outage.

    What cannot be read is named, counted and left out.

    Exit status: 0 done; 1 failed, or nothing could be read; 2 a wrong option or file; 130
    stopped by Ctrl-C.
    """
    screen, err = consoles()
    try:
        table_of_prices = read_prices(prices)
        if html is not None and not html.absolute().parent.is_dir():
            raise ConfigurationError(f"--html: there is no folder {html.absolute().parent}")
    except ConfigurationError as exc:
        print_error(err, exc)
        raise typer.Exit(WRONG) from exc
    if not check_java(err):
        raise typer.Exit(FAILED)
    found = _run(
        err,
        ledgers or [str(ledger_folder())],
        table_of_prices,
        master,
        out=out,
        tier=tier,
        timezone=timezone,
    )
    if html is not None:
        from pairbus.cost.page import page

        try:
            html.write_text(page(found), "utf-8")
        except OSError as exc:
            print_error(err, f"--html: {exc}")
            raise typer.Exit(FAILED) from exc
    if as_json:
        typer.echo(json.dumps(found.plain(), indent=2, ensure_ascii=False))
    else:
        _show(screen, found)
        _complain(err, found)
    raise typer.Exit(FAILED if found.problems and not found.files else DONE)


def _run(err: Console, ledgers: list[str], prices: Any, master: str | None, **options: Any) -> Any:
    """The report. Ends the command where there is none."""
    with tempfile.NamedTemporaryFile(
        "r", prefix="pairbus-", suffix=".log", errors="replace"
    ) as log:
        work = partial(_on_spark, Path(log.name), ledgers, prices, master, **options)
        try:
            with err.status("Starting Spark…") as shown:  # in a terminal alone
                return run_in_thread(partial(work, shown.update))
        except ConfigurationError as exc:
            print_error(err, exc)
            raise typer.Exit(WRONG) from exc
        except KeyboardInterrupt as exc:
            print_error(err, "Stopped.", "yellow")
            raise typer.Exit(STOPPED) from exc
        except Exception as exc:  # whatever Spark says
            print_error(
                err, f"Spark failed: {first_logged_error(log.read()) or error_summary(exc)}"
            )
            raise typer.Exit(FAILED) from exc


def _on_spark(
    log: Path,
    ledgers: list[str],
    prices: Any,
    master: str | None,
    tell: Callable[[str], None],
    **options: Any,
) -> Any:
    from pairbus.cost.report import report as make_report
    from pairbus.spark.sessions import create_session

    spark = create_session(master, "pairbus-cost-report", fast_start=False, log=log)
    try:
        if master is None or master.startswith("local"):
            # Spark's 200 are for a cluster.
            cores = spark.sparkContext.defaultParallelism
            spark.conf.set("spark.sql.shuffle.partitions", str(cores))
        tell("Summing up the ledgers…")
        return make_report(spark, ledgers, prices, **options)
    finally:
        spark.stop()


def _show(out: Console, found: Any) -> None:
    from pairbus.cost import report_tables

    out.print(escape(report_tables.span(found)))
    out.print(escape(report_tables.prices(found)))
    for name, value in report_tables.headline(found):
        out.print(f"  {name}: {escape(value)}")
    for table in report_tables.tables(found):
        if not table.rows:
            continue
        framed = out.is_terminal
        shown = Table(
            title=f"\n{table.title}",
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD if framed else None,
            pad_edge=framed,
            padding=(0, 1) if framed else (0, 2, 0, 0),
        )
        for index, head in enumerate(table.head):
            words = index < table.texts
            shown.add_column(escape(head), justify="left" if words else "right", no_wrap=True)
        for row in table.rows:
            shown.add_row(*map(escape, row))
        # Nothing is cut, not even on a terminal that is too narrow: its lines are broken there.
        out.width = max(out.width, natural_width(out, shown))
        out.print(shown)
        if table.note:
            out.print(escape(table.note))


def _complain(err: Console, found: Any) -> None:
    from pairbus.cost import report_tables

    if lost := report_tables.missing(found):
        print_error(err, lost, "yellow")
    for one in found.problems:
        path, what, fate = report_tables.trouble(one)
        print_error(err, f"{path}: {what}: {fate}", "yellow")
    if (more := found.problem_count - len(found.problems)) > 0:
        print_error(err, f"and {more:,} more", "yellow")
    for path in found.copies:
        print_error(err, f"{path}: a copy, counted once", "yellow")
