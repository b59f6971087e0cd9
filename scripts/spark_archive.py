"""Create `spark.jsa` in the virtual environment: an archive of the classes of Spark. With it, the
JVMs of the tests start with two thirds of the CPU time. A JVM of another version ignores it.
"""

import os
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext

from pairbus.spark.sessions import FAST_START, create_session

ARCHIVE = Path(sys.prefix, "spark.jsa")


def main() -> None:
    unfinished = ARCHIVE.with_suffix(f".{os.getpid()}")
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(
        (*FAST_START, f'"-XX:ArchiveClassesAtExit={unfinished}"', "-Xlog:disable")
    )
    session = create_session(None, "spark-archive")
    session.conf.set("spark.sql.shuffle.partitions", "1")
    with tempfile.TemporaryDirectory() as folder:
        numbers = session.range(10).selectExpr("id", "id % 2 as odd")
        numbers.groupBy("odd").count().write.parquet(f"{folder}/numbers")
        session.read.parquet(f"{folder}/numbers").collect()
        stream = session.readStream.format("rate").load().writeStream.format("noop")
        query = stream.option("checkpointLocation", f"{folder}/checkpoint")
        query.trigger(availableNow=True).start().awaitTermination()
    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    process.wait()
    unfinished.replace(ARCHIVE)


if __name__ == "__main__":
    main()
