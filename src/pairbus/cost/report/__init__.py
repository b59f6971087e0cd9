"""The cost report: ledgers of any size, summed up by Spark.

report(spark, ["ledgers/"], read_prices())
"""

from pairbus.extras import missing_package

try:
    from pairbus.cost.report.result import InputProblem, OutageSummary, Report, Totals
    from pairbus.cost.report.run import report
except ModuleNotFoundError as exc:
    raise missing_package(exc, "The cost report") from exc

__all__ = ["InputProblem", "OutageSummary", "Report", "Totals", "report"]
