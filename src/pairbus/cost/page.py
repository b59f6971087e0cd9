"""A report as a self-contained HTML page, without scripts and network access."""

from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from pairbus.cost.plots import backlog_plot, cost_plot, operations_plot, render_svg
from pairbus.cost.report.result import Report
from pairbus.cost.report_tables import (
    OPEN,
    describe_gaps,
    describe_input,
    describe_prices,
    key_figures,
    problem_cells,
    report_tables,
)

TEMPLATE = "page.html.j2"


def render_page(report: Report) -> str:
    """Return the HTML page. All text from ledgers is escaped."""
    template = files("pairbus.cost").joinpath(TEMPLATE).read_text("utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    plots = []
    if report.series.points:
        plots = [render_svg(plot, report) for plot in (operations_plot, backlog_plot, cost_plot)]
    return environment.from_string(template).render(
        input=describe_input(report),
        key_figures=key_figures(report),
        prices=describe_prices(report),
        zone=str(report.zone),
        plots=plots,
        tables=list(report_tables(report)),
        open=OPEN,
        gaps=describe_gaps(report),
        problems=[problem_cells(problem) for problem in report.problems],
        hidden_problems=report.problem_count - len(report.problems),
        copies=report.copies,
    )
