"""The cost report: ledgers of any size, summed up by Spark.

report(spark, ["ledgers/"], read_prices())
"""

from pairbus.cost.report.result import InputProblem, OutageSummary, Report, Totals
from pairbus.cost.report.run import report

__all__ = ["InputProblem", "OutageSummary", "Report", "Totals", "report"]
