"""A report as one HTML page that needs nothing else: no network, no script."""

from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from pairbus.cost import report_tables
from pairbus.cost.plots import backlog_plot, cost_plot, operations_plot, svg
from pairbus.cost.report.result import Report

TEMPLATE = "page.html.j2"


def page(report: Report) -> str:
    """The whole page. What stands in ledgers is escaped."""
    source = files("pairbus.cost").joinpath(TEMPLATE).read_text("utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    plots = []
    if report.series.points:
        plots = [svg(draw, report) for draw in (operations_plot, backlog_plot, cost_plot)]
    return environment.from_string(source).render(
        span=report_tables.span(report),
        figures=report_tables.headline(report),
        prices=report_tables.prices(report),
        zone=str(report.zone),
        plots=plots,
        tables=list(report_tables.tables(report)),
        missing=report_tables.missing(report),
        problems=[report_tables.trouble(one) for one in report.problems],
        more_problems=report.problem_count - len(report.problems),
        copies=report.copies,
    )
