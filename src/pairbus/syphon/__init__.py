"""The syphon: moves the backlog to where it was going, on Spark; and a Service Bus connector.

with Syphon(SyphonOptions(primary=PRIMARY, secondary=SECONDARY)) as syphon:
    ...

register(spark)
spark.read.format("servicebus").option("connectionString", …).option("queue", "orders").load()
"""

from pairbus.spark.connector import register
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.syphon import Syphon, SyphonStatus

__all__ = ["Syphon", "SyphonOptions", "SyphonStatus", "register"]
