"""Service Bus in Spark, on this machine: write rows, query them with SQL, move some with a stream.

The exit status is 0 only if every message is where it belongs.
"""

import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import concat, lit

from pairbus.emulator import LocalNamespace
from pairbus.spark.sessions import create_session
from pairbus.syphon import register


def write(spark: SparkSession, connection_string: str) -> None:
    rows = [(f"order {n}", f"id-{n}", "large" if n % 3 == 0 else "small") for n in range(10)]
    orders = spark.createDataFrame(rows, "body string, message_id string, subject string")
    (
        orders.write.format("servicebus")
        .option("connectionString", connection_string)
        .option("path", "orders")
        .mode("append")
        .save()
    )


def peek(spark: SparkSession, connection_string: str, queue: str) -> DataFrame:
    return (
        spark.read.format("servicebus")
        .option("connectionString", connection_string)
        .option("queue", queue)
        .load()
    )


def count_by_subject(spark: SparkSession, connection_string: str) -> DataFrame:
    peek(spark, connection_string, "orders").createOrReplaceTempView("orders")
    return spark.sql("SELECT subject, count(*) AS n FROM orders GROUP BY subject ORDER BY subject")


def move_large(spark: SparkSession, source: str, target: str, checkpoint: str) -> None:
    rows = (
        spark.readStream.format("servicebus")
        .option("connectionString", source)
        .option("queue", "orders")
        .load()
    )
    large = rows.where("subject = 'large'").withColumn("destination", concat("subject", lit("-in")))
    query = (
        large.writeStream.format("servicebus")
        .option("connectionString", target)
        .option("settleConnectionString", source)  # completes what was sent
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def run(spark: SparkSession) -> int:
    register(spark)
    with LocalNamespace("one") as one, LocalNamespace("two") as two:
        one.create_queue("orders")
        two.create_queue("large-in")
        write(spark, one.connection_string)
        print("Messages in namespace one, by subject:")
        count_by_subject(spark, one.connection_string).show()
        with tempfile.TemporaryDirectory() as checkpoint:
            move_large(spark, one.connection_string, two.connection_string, checkpoint)
        remaining = peek(spark, one.connection_string, "orders").select("message_id").collect()
        moved = peek(spark, two.connection_string, "large-in").select("message_id").collect()
    print("Left in one:", ", ".join(sorted(row.message_id for row in remaining)))
    print("Moved to two:", ", ".join(sorted(row.message_id for row in moved)))
    large = {f"id-{n}" for n in range(0, 10, 3)}
    complete = {row.message_id for row in moved} == large and len(remaining) == 10 - len(large)
    print("All messages are where they belong." if complete else "Some messages are missing.")
    return 0 if complete else 1


def main() -> int:
    spark = create_session("local[2]", "servicebus demo")  # any session works
    try:
        return run(spark)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
