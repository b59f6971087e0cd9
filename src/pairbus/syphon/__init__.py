"""The syphon: a Spark query that drains the backlog; and the Service Bus connector for Spark.

with Syphon(SyphonOptions(primary=PRIMARY, secondary=SECONDARY)) as syphon:
    ...

register(spark)
spark.read.format("servicebus").option("connectionString", …).option("queue", "orders").load()
"""

from pairbus.extras import missing_package

try:
    from pairbus.spark.connector import register
    from pairbus.syphon.options import SyphonOptions
    from pairbus.syphon.query import Syphon
    from pairbus.syphon.status import SyphonStatus
except ModuleNotFoundError as exc:
    raise missing_package(exc, "The syphon") from exc

__all__ = ["Syphon", "SyphonOptions", "SyphonStatus", "register"]
