"""A report as titles, heads and cells of text: what the terminal and the page both show."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from pairbus.cost.report.result import PastOutage, Problem, Report, Sums
from pairbus.usage.operations import Part

Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    title: str
    head: Cells
    rows: tuple[Cells, ...]
    texts: int = 1
    """Columns at the left that are words; the others are numbers."""
    note: str = ""


def tables(report: Report) -> Iterator[Table]:
    """All tables, in the order in which they are shown."""
    yield _outages(report)
    parts = {part.value: report.by_part[part.value] for part in Part if part in report.by_part}
    yield _sums(report, "By part", "part", parts)
    yield _sums(report, "By operation", "operation", report.by_kind)
    yield _sums(report, "By day", f"day ({report.zone})", report.by_day)
    yield _sums(report, "By namespace", "namespace", report.by_namespace)
    more = report.entities - len(report.by_entity)
    note = f"and {more:,} more, with fewer charges" if more > 0 else ""
    yield _sums(report, "By entity", "entity", report.by_entity, note)


def headline(report: Report) -> list[tuple[str, str]]:
    total = report.total
    opened = sum(one.open for one in report.outages)
    return [
        ("cost", f"{money(float(report.money))} {report.prices.currency}"),
        ("charges", f"{total.units:,}"),
        ("operations", f"{total.operations:,}"),
        ("unanswered", f"{total.unanswered:,}"),
        ("data", size(total.bytes)),
        ("outages", f"{report.outage_count:,}" + (f", {opened} open" if opened else "")),
    ]


def span(report: Report) -> str:
    """When, and from what."""
    files = f"{report.records:,} records of {report.files:,} files"
    if report.first is None or report.last is None:
        return f"Nothing was done: {files}"
    first, last = (_moment(when, report.zone) for when in (report.first, report.last))
    return f"{first} to {last} ({report.zone}), {files}"


def prices(report: Report) -> str:
    found = report.prices
    return (
        f"Prices of {found.as_of} in {found.currency}: {report.tier}, {found.region} "
        f"({found.name}). Source: {found.source}"
    )


def missing(report: Report) -> str:
    """What the writers of ledgers could not write, or nothing."""
    lost = report.missing
    if not lost.dropped and not lost.failed_writes:
        return ""
    return (
        f"The ledgers are not complete: {lost.dropped:,} records with {lost.dropped_operations:,} "
        f"operations were dropped, {lost.failed_writes:,} writes failed."
    )


def trouble(one: Problem) -> Cells:
    fate = "skipped" if one.skipped else f"{one.lines:,} lines skipped" if one.lines else "read"
    return one.path, one.what, "1 line skipped" if one.lines == 1 else fate


def _sums(report: Report, title: str, key: str, found: Mapping[str, Sums], note: str = "") -> Table:
    head = ("operations", "charges", "messages", "data", "unanswered", report.prices.currency)
    rows = tuple((name, *_cells(sums)) for name, sums in found.items())
    return Table(title=title, head=(key, *head), rows=rows, note=note)


def _cells(sums: Sums) -> Cells:
    counts = (sums.operations, sums.units, sums.messages)
    return (
        *(f"{count:,}" for count in counts),
        size(sums.bytes),
        f"{sums.unanswered:,}",
        money(sums.money),
    )


def _outages(report: Report) -> Table:
    more = report.outage_count - len(report.outages)
    notes = [f"and {more:,} before"] if more > 0 else []
    if any(one.open for one in report.outages):
        notes.append("open: a sender has not gone back, or not all messages are home")
    return Table(
        title="Outages, from failover to the last message home",
        head=(
            *("entity", "namespace", f"from ({report.zone})", "to"),
            *("for", "stored", "home", "left", "pings", "charges", report.prices.currency),
        ),
        rows=tuple(_outage(one, report) for one in report.outages),
        texts=4,
        note="; ".join(notes),
    )


def _outage(one: PastOutage, report: Report) -> Cells:
    until = report.last if one.end is None else one.end
    length = timedelta(0) if until is None else max(until - one.start, timedelta(0))
    counts = (one.stored, one.home, one.left, one.pings, one.sums.units)
    return (
        one.entity,
        one.namespace,
        _moment(one.start, report.zone),
        "open" if one.end is None else _moment(one.end, report.zone),
        str(timedelta(seconds=round(length.total_seconds()))),
        *(f"{count:,}" for count in counts),
        money(one.sums.money),
    )


def _moment(when: datetime, zone: tzinfo) -> str:
    return f"{when.astimezone(zone):%Y-%m-%d %H:%M:%S}"


def money(value: float) -> str:
    """Cents, and more digits where it is less than one."""
    if value == 0 or value >= 1:
        return f"{value:,.2f}"
    return f"{value:.4f}" if value >= 0.001 else f"{value:.6f}"


def size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} GB"
