"""A report as tables of text, which the terminal and the HTML page both show."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from pairbus.cost.money import format_money
from pairbus.cost.report.result import InputProblem, OutageSummary, Report, Totals
from pairbus.usage.operations import Purpose

Cells = tuple[str, ...]
OPEN = "open"
"""The end of an outage that has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """A table of text."""

    title: str
    head: Cells
    rows: tuple[Cells, ...]
    text_columns: int = 1
    """The number of columns with text, at the left. The other columns have numbers."""
    note: str = ""


def report_tables(report: Report) -> Iterator[ReportTable]:
    """Yield all tables, in the order in which they are shown."""
    yield _outages_table(report)
    by_purpose = {
        purpose.value: report.by_purpose[purpose.value]
        for purpose in Purpose
        if purpose.value in report.by_purpose
    }
    yield _totals_table(report, "By purpose", "purpose", by_purpose)
    yield _totals_table(report, "By operation", "operation", report.by_kind)
    yield _totals_table(report, "By day", f"day ({report.zone})", report.by_day)
    yield _totals_table(report, "By namespace", "namespace", report.by_namespace)
    hidden = report.entity_count - len(report.by_entity)
    note = f"Entities with fewer units that are not shown: {hidden:,}" if hidden > 0 else ""
    yield _totals_table(report, "By entity", "entity", report.by_entity, note)


def key_figures(report: Report) -> list[tuple[str, str]]:
    """Return the names and values of the most important figures."""
    total = report.total
    open_outages = sum(outage.open for outage in report.outages)
    open_note = f", {open_outages} open" if open_outages else ""
    return [
        ("cost", f"{format_money(report.cost)} {report.prices.currency}"),
        ("billable units", f"{total.units:,}"),
        ("operations", f"{total.operations:,}"),
        ("unanswered", f"{total.unanswered:,}"),
        ("data", format_size(total.bytes)),
        ("outages", f"{report.outage_count:,}{open_note}"),
    ]


def describe_input(report: Report) -> str:
    """Return the time range of the report, and the number of records and files."""
    files = f"{report.records:,} records in {report.files:,} files"
    if report.first is None or report.last is None:
        return f"No operations: {files}"
    first, last = (_format_time(time, report.zone) for time in (report.first, report.last))
    return f"{first} to {last} ({report.zone}), {files}"


def describe_prices(report: Report) -> str:
    prices = report.prices
    return (
        f"Prices of {prices.as_of} in {prices.currency}: {report.tier}, {prices.region} "
        f"({prices.name}). Source: {prices.source}"
    )


def describe_gaps(report: Report) -> str:
    """Return a sentence about records that the ledgers lack, or nothing."""
    gaps = report.gaps
    if not gaps.dropped and not gaps.failed_writes:
        return ""
    return (
        f"The ledgers are incomplete. Dropped records: {gaps.dropped:,} "
        f"(operations: {gaps.dropped_operations:,}). Failed writes: {gaps.failed_writes:,}."
    )


def problem_cells(problem: InputProblem) -> Cells:
    """Return the path, the description and the consequence of a problem."""
    if problem.skipped:
        consequence = "file skipped"
    elif problem.skipped_lines:
        lines = "line" if problem.skipped_lines == 1 else "lines"
        consequence = f"{problem.skipped_lines:,} {lines} skipped"
    else:
        consequence = "file read"
    return problem.path, problem.description, consequence


def _totals_table(
    report: Report, title: str, key: str, totals_by_name: Mapping[str, Totals], note: str = ""
) -> ReportTable:
    head = (key, "operations", "units", "messages", "data", "unanswered", report.prices.currency)
    rows = tuple((name, *_totals_cells(totals)) for name, totals in totals_by_name.items())
    return ReportTable(title=title, head=head, rows=rows, note=note)


def _totals_cells(totals: Totals) -> Cells:
    return (
        f"{totals.operations:,}",
        f"{totals.units:,}",
        f"{totals.messages:,}",
        format_size(totals.bytes),
        f"{totals.unanswered:,}",
        format_money(totals.cost),
    )


def _outages_table(report: Report) -> ReportTable:
    hidden = report.outage_count - len(report.outages)
    notes = [f"Earlier outages that are not shown: {hidden:,}."] if hidden > 0 else []
    if any(outage.open for outage in report.outages):
        notes.append(
            "open: a sender was last seen in failover, or messages are still in the backlog."
        )
    return ReportTable(
        title="Outages, from failover to the last drained message",
        head=(
            *("entity", "namespace", f"start ({report.zone})", "end", "duration"),
            *("stored", "drained", "remaining", "pings", "units", report.prices.currency),
        ),
        rows=tuple(_outage_cells(outage, report) for outage in report.outages),
        text_columns=4,
        note=" ".join(notes),
    )


def _outage_cells(outage: OutageSummary, report: Report) -> Cells:
    until = report.last if outage.end is None else outage.end
    duration = timedelta(0) if until is None else max(until - outage.start, timedelta(0))
    counts = (outage.stored, outage.drained, outage.remaining, outage.pings, outage.totals.units)
    return (
        outage.entity,
        outage.namespace,
        _format_time(outage.start, report.zone),
        OPEN if outage.end is None else _format_time(outage.end, report.zone),
        str(timedelta(seconds=round(duration.total_seconds()))),
        *(f"{count:,}" for count in counts),
        format_money(outage.totals.cost),
    )


def _format_time(time: datetime, zone: tzinfo) -> str:
    return f"{time.astimezone(zone):%Y-%m-%d %H:%M:%S}"


def format_size(size: int) -> str:
    """Return a number of bytes with a decimal unit."""
    if size < 1000:
        return f"{size} B"
    value = float(size)
    for unit in ("kB", "MB"):
        value /= 1000
        if value < 1000:
            return f"{value:,.1f} {unit}"
    return f"{value / 1000:,.1f} GB"
