"""The plots of a report, as SVG elements that take colours and font from the HTML page."""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from pairbus.cost.report.result import OutageSummary, Report, TimeSeries
from pairbus.usage.operations import Purpose

WIDTH, HEIGHT = 9.6, 3.3
COLOURS = {
    Purpose.TRAFFIC: "#5b8fd6",
    Purpose.IDLE: "#9aa5b1",
    Purpose.PINGS: "#d9a441",
    Purpose.BACKLOG: "#d1675a",
    Purpose.DRAIN: "#4fa58a",
    Purpose.DELIVERY: "#8d7cc3",
}
OUTAGE_COLOUR = "#d1675a"
OUTAGE_LABEL = "outage"
# Matplotlib does not type these.
_date_to_number: Callable[..., Any] = date2num
_date_formatter: Callable[..., Any] = ConciseDateFormatter
_date_locator: Callable[..., Any] = AutoDateLocator
# Placeholders that are replaced by CSS variables, so that the page can have a dark theme.
_INK, _MUTED, _GRID = "#010203", "#010204", "#010205"
_CSS_VARIABLES = {_INK: "var(--ink)", _MUTED: "var(--muted)", _GRID: "var(--grid)"}
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pairbus",
    "font.size": 9.5,
    "text.color": _INK,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _MUTED,
    "axes.titlecolor": _INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlepad": 26,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "ytick.major.size": 0,
    "xtick.major.size": 3,
    "figure.facecolor": "none",
    "legend.frameon": False,
    "legend.labelcolor": _MUTED,
    "legend.fontsize": 9,
}
_TIME_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def render_svg(plot: Callable[[Report], Figure], report: Report) -> str:
    """Return a plot as an SVG element."""
    with mpl.rc_context(_STYLE):
        figure = plot(report)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    element = buffer.getvalue()
    element = element[element.index("<svg") :]
    for placeholder, variable in _CSS_VARIABLES.items():
        element = element.replace(placeholder, variable)
    # Use the font of the page.
    element = re.sub(r"font: ([^;\"']*?\d[\d.]*px)[^;\"]*", r"font: \1 var(--font)", element)
    # Make the ids unique in the page.
    name = plot.__name__
    element = re.sub(r'\bid="', f'id="{name}-', element)
    element = element.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    # Let the page set the size.
    element = re.sub(r' (width|height)="[\d.]+pt"', "", element)
    return element.replace("<svg ", f'<svg role="img" aria-label="{TITLES[plot]}" ', 1)


def operations_plot(report: Report) -> Figure:
    """Plot operations over time by purpose, with outages shaded."""
    series = report.series
    figure, axes = _new_axes()
    axes.set_title("Operations over time")
    times = [point.time for point in series.points]
    interval = timedelta(seconds=series.interval_s)
    totals = [0] * len(times)
    for purpose in Purpose:
        heights = [point.operations.get(purpose, 0) for point in series.points]
        if not any(heights):
            continue
        axes.bar(
            _date_to_number(times),
            heights,
            interval / timedelta(days=1),
            bottom=totals,
            align="edge",
            color=COLOURS[purpose],
            label=purpose.value,
            linewidth=0,
        )
        totals = [total + height for total, height in zip(totals, heights, strict=True)]
    _set_time_axis(axes, series, report.zone)
    _shade_outages(axes, report.outages, _end(series))
    axes.set_ylabel(f"operations {_per_interval(series.interval_s)}")
    axes.set_ylim(0, max(totals, default=0) * 1.05 or 1)
    _add_legend(axes)
    return figure


def cost_plot(report: Report) -> Figure:
    """Plot the cost by purpose, or the billable units if nothing has a cost."""
    totals = {
        purpose: report.by_purpose[purpose.value]
        for purpose in Purpose
        if purpose.value in report.by_purpose
    }
    is_free = not any(total.cost for total in totals.values())
    figure, axes = _new_axes(height=0.7 + 0.36 * len(totals))
    values = [total.units if is_free else total.cost for total in totals.values()]
    bars = axes.barh(
        [purpose.value for purpose in totals],
        values,
        color=[COLOURS[purpose] for purpose in totals],
        height=0.62,
    )
    axes.set_title("Billable units by purpose" if is_free else "Cost by purpose", pad=8)
    currency = report.prices.currency
    labels = [f"{value:,}" if is_free else f"{value:,.4f} {currency}" for value in values]
    axes.bar_label(bars, labels, padding=5, color=_INK)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.tick_params(axis="y", labelcolor=_INK, length=0)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.set_xlim(0, max(values, default=0) * 1.16 or 1)
    return figure


def backlog_plot(report: Report) -> Figure:
    """Plot the messages in the backlog over time."""
    series = report.series
    figure, axes = _new_axes()
    axes.set_title("Messages in the backlog")
    interval = timedelta(seconds=series.interval_s)
    times, depths = [], []
    for time, depth in backlog_depths(series):
        times.append(time)
        depths.append(depth)
    if times:
        times.append(times[-1] + interval)
        depths.append(depths[-1])
    x_values = _date_to_number(times)
    colour = COLOURS[Purpose.BACKLOG]
    axes.fill_between(x_values, depths, step="post", color=colour, alpha=0.35, lw=0)
    axes.step(x_values, depths, where="post", color=colour, linewidth=1.4)
    _set_time_axis(axes, series, report.zone)
    _shade_outages(axes, report.outages, _end(series))
    axes.set_ylabel("stored, not yet drained")
    axes.set_ylim(0, max(depths, default=0) * 1.08 or 1)
    _add_legend(axes)
    return figure


TITLES: dict[Callable[[Report], Figure], str] = {
    operations_plot: "Operations over time",
    cost_plot: "Cost by purpose",
    backlog_plot: "Messages in the backlog over time",
}


def backlog_depths(series: TimeSeries) -> Iterator[tuple[datetime, int]]:
    """Yield the number of messages in the backlog at the end of each interval.

    If more messages were removed than stored, the backlog was not empty when the ledgers began. The
    initial number is then the smallest that keeps the depth at 0 or above.
    """
    depth, lowest = 0, 0
    for point in series.points:
        depth += point.stored - point.removed
        lowest = min(lowest, depth)
    depth = -lowest
    previous: datetime | None = None
    interval = timedelta(seconds=series.interval_s)
    for point in series.points:
        if previous is not None and point.time - previous > interval:
            yield previous + interval, depth
        depth += point.stored - point.removed
        previous = point.time
        yield point.time, depth


def _new_axes(height: float = HEIGHT) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def _set_time_axis(axes: Axes, series: TimeSeries, zone: tzinfo) -> None:
    locator = _date_locator(tz=zone, minticks=4, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(_date_formatter(locator, tz=zone))
    axes.yaxis.set_major_formatter(FuncFormatter(_format_count))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    if series.points:
        start, end = series.points[0].time, _end(series)
        axes.set_xlim(_date_to_number(start), _date_to_number(end))


def _end(series: TimeSeries) -> datetime:
    return series.points[-1].time + timedelta(seconds=series.interval_s)


def _shade_outages(axes: Axes, outages: Sequence[OutageSummary], end: datetime) -> None:
    for index, (start, until) in enumerate(_merge_outages(outages, end)):
        axes.axvspan(
            _date_to_number(start),
            _date_to_number(until),
            color=OUTAGE_COLOUR,
            alpha=0.14,
            linewidth=0,
            zorder=0,
            label="" if index else OUTAGE_LABEL,
        )


def _merge_outages(
    outages: Iterable[OutageSummary], end: datetime
) -> Iterator[tuple[datetime, datetime]]:
    """Yield the time spans in which at least one entity is in an outage, without overlaps."""
    merged: tuple[datetime, datetime] | None = None
    for outage in sorted(outages, key=lambda outage: outage.start):
        until = end if outage.end is None else outage.end
        if merged is not None and outage.start <= merged[1]:
            merged = merged[0], max(merged[1], until)
            continue
        if merged is not None:
            yield merged
        merged = outage.start, until
    if merged is not None:
        yield merged


def _add_legend(axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    # Outages are drawn first, and come last in the legend.
    order = sorted(range(len(labels)), key=lambda index: labels[index] == OUTAGE_LABEL)
    handles, labels = [handles[index] for index in order], [labels[index] for index in order]
    if handles:
        axes.legend(
            handles,
            labels,
            loc="lower left",
            bbox_to_anchor=(-0.01, 1.0),
            ncols=len(labels),
            handlelength=0.9,
            handleheight=0.9,
            columnspacing=1.4,
            borderaxespad=0.2,
        )


def _format_count(value: float, _: object) -> str:
    """Return a number with an SI prefix: 1500 is 1.5 k."""
    return f"{value:g}" if value < 1000 else EngFormatter(sep=" ")(value)


def _per_interval(seconds: int) -> str:
    for unit_seconds, name in _TIME_UNITS:
        if seconds % unit_seconds == 0:
            count = seconds // unit_seconds
            return f"per {name}" if count == 1 else f"per {count} {name}s"
    raise AssertionError(seconds)
