"""The plots of a report, as SVG that takes its colours and its font from the page around it."""

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

from pairbus.cost.report.result import PastOutage, Report, Series
from pairbus.usage.operations import Part

WIDTH, HEIGHT = 9.6, 3.3
COLOURS = {
    Part.TRAFFIC: "#5b8fd6",
    Part.IDLE: "#9aa5b1",
    Part.PINGS: "#d9a441",
    Part.BACKLOG: "#d1675a",
    Part.DRAIN: "#4fa58a",
    Part.DELIVERY: "#8d7cc3",
}
OUTAGE = "#d1675a"
_number: Callable[..., Any] = date2num
_concise: Callable[..., Any] = ConciseDateFormatter
_locator: Callable[..., Any] = AutoDateLocator
# Stand-ins that no plot uses otherwise: the page gives them their colours, light or dark.
_INK, _MUTED, _GRID = "#010203", "#010204", "#010205"
_VARIABLES = {_INK: "var(--ink)", _MUTED: "var(--muted)", _GRID: "var(--grid)"}
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
_WIDTHS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def svg(draw: Callable[[Report], Figure], report: Report) -> str:
    """A plot as an SVG element for a page."""
    with mpl.rc_context(_STYLE):
        figure = draw(report)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    element = text.getvalue()
    element = element[element.index("<svg") :]
    for stand_in, variable in _VARIABLES.items():
        element = element.replace(stand_in, variable)
    # Text in the page's own font; ids that no other plot of the page has.
    element = re.sub(r"font: ([^;\"']*?\d[\d.]*px)[^;\"]*", r"font: \1 var(--font)", element)
    name = draw.__name__
    element = re.sub(r'\bid="', f'id="{name}-', element)
    element = element.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    label = f'<svg role="img" aria-label="{TITLES[draw]}" '
    return re.sub(r"<svg ", label, re.sub(r' (width|height)="[\d.]+pt"', "", element), count=1)


def operations_plot(report: Report) -> Figure:
    """Operations over time, by part, with outages shaded."""
    series, zone = report.series, report.zone
    figure, axes = _axes()
    axes.set_title("Operations over time")
    parts = [part for part in Part if any(point.operations.get(part) for point in series.points)]
    times = [point.time for point in series.points]
    width = timedelta(seconds=series.width_s)
    bottom = [0] * len(times)
    for part in parts:
        heights = [point.operations.get(part, 0) for point in series.points]
        axes.bar(
            _number(times),
            heights,
            width / timedelta(days=1),
            bottom=bottom,
            align="edge",
            color=COLOURS[part],
            label=part.value,
            linewidth=0,
        )
        bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
    _over_time(axes, series, zone)
    _shade(axes, report.outages, _end(series))
    axes.set_ylabel(f"operations {_each(series.width_s)}")
    axes.set_ylim(0, max(bottom, default=0) * 1.05 or 1)
    _legend(axes)
    return figure


def cost_plot(report: Report) -> Figure:
    """Money by part; charges where nothing has cost anything."""
    found = [(part, report.by_part[part.value]) for part in Part if part.value in report.by_part]
    free = not any(sums.money for _, sums in found)
    figure, axes = _axes(height=0.7 + 0.36 * len(found))
    values = [sums.units if free else sums.money for _, sums in found]
    bars = axes.barh(
        [part.value for part, _ in found],
        values,
        color=[COLOURS[part] for part, _ in found],
        height=0.62,
    )
    axes.set_title("Charges by part" if free else "Cost by part", pad=8)
    currency = report.prices.currency
    labels = [f"{value:,}" if free else f"{value:,.4f} {currency}" for value in values]
    axes.bar_label(bars, labels, padding=5, color=_INK)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.tick_params(axis="y", labelcolor=_INK, length=0)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.set_xlim(0, max(values, default=0) * 1.16 or 1)
    return figure


def backlog_plot(report: Report) -> Figure:
    """What was stored and had not come home, over time."""
    series = report.series
    figure, axes = _axes()
    axes.set_title("Messages in the backlog")
    width = timedelta(seconds=series.width_s)
    times, depths = [], []
    for time, depth in backlog_depths(series):
        times.append(time)
        depths.append(depth)
    if times:
        times.append(times[-1] + width)
        depths.append(depths[-1])
    numbers = _number(times)
    axes.fill_between(numbers, depths, step="post", color=COLOURS[Part.BACKLOG], alpha=0.35, lw=0)
    axes.step(numbers, depths, where="post", color=COLOURS[Part.BACKLOG], linewidth=1.4)
    _over_time(axes, series, report.zone)
    _shade(axes, report.outages, _end(series))
    axes.set_ylabel("stored, not yet home")
    axes.set_ylim(0, max(depths, default=0) * 1.08 or 1)
    _legend(axes)
    return figure


TITLES: dict[Callable[[Report], Figure], str] = {
    operations_plot: "Operations over time",
    cost_plot: "Cost by part",
    backlog_plot: "Messages in the backlog over time",
}


def backlog_depths(series: Series) -> Iterator[tuple[datetime, int]]:
    """How many messages were in the backlog at the end of each point. Where more came home than
    was stored, the ledgers begin with a backlog: it is taken to have been there."""
    depth, least = 0, 0
    for point in series.points:
        depth += point.stored - point.gone
        least = min(least, depth)
    depth = -least
    before: datetime | None = None
    width = timedelta(seconds=series.width_s)
    for point in series.points:
        if before is not None and point.time - before > width:
            yield before + width, depth
        depth += point.stored - point.gone
        before = point.time
        yield point.time, depth


def _axes(height: float = HEIGHT) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def _over_time(axes: Axes, series: Series, zone: tzinfo) -> None:
    locator = _locator(tz=zone, minticks=4, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(_concise(locator, tz=zone))
    axes.yaxis.set_major_formatter(FuncFormatter(_short))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    if series.points:
        axes.set_xlim(_number(series.points[0].time), _number(_end(series)))


def _end(series: Series) -> datetime:
    return series.points[-1].time + timedelta(seconds=series.width_s)


def _shade(axes: Axes, outages: Sequence[PastOutage], end: datetime) -> None:
    for index, (start, until) in enumerate(_merged(outages, end)):
        axes.axvspan(
            _number(start),
            _number(until),
            color=OUTAGE,
            alpha=0.14,
            linewidth=0,
            zorder=0,
            label="" if index else "outage",
        )


def _merged(outages: Iterable[PastOutage], end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Times with an outage of any entity: shaded once where they overlap."""
    reached: tuple[datetime, datetime] | None = None
    for one in sorted(outages, key=lambda one: one.start):
        until = end if one.end is None else one.end
        if reached is not None and one.start <= reached[1]:
            reached = reached[0], max(reached[1], until)
            continue
        if reached is not None:
            yield reached
        reached = one.start, until
    if reached is not None:
        yield reached


def _legend(axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    # Outages are drawn first, and named last.
    order = sorted(range(len(labels)), key=lambda index: labels[index] == "outage")
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


def _short(value: float, _: object) -> str:
    """1500 is 1.5 k."""
    return f"{value:g}" if value < 1000 else EngFormatter(sep=" ")(value)


def _each(width_s: int) -> str:
    for seconds, name in _WIDTHS:
        if width_s % seconds == 0:
            count = width_s // seconds
            return f"per {name}" if count == 1 else f"in {count} {name}s"
    raise AssertionError(width_s)
