"""What a pairing did cost: ledgers of any size, summed up by Spark.

report(spark, ["ledgers/"], read_prices())
"""

from pairbus.cost.report.result import PastOutage, Problem, Report, Sums
from pairbus.cost.report.run import report

__all__ = ["PastOutage", "Problem", "Report", "Sums", "report"]
