"""A process that starts Spark, and a stream on it: the bare one, or an embedded syphon.

    python -m benchmarks.first_row bare FILE        write a line to the file for each row
    python -m benchmarks.first_row syphon OPTIONS   run a syphon with these options, as JSON

It writes the line `session` when Spark has started, and ends when its standard input is closed.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SESSION = "session"


def run_bare(argument: str) -> Callable[[], None]:
    """Start Spark and a stream of single rows with nothing but PySpark. Return how to stop it."""
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        InputPartition,
        WriterCommitMessage,
    )

    class Reader(DataSourceStreamReader):
        offset = 0

        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"offset": 0}

        def latestOffset(self) -> dict[str, int]:  # noqa: N802
            self.offset += 1
            return {"offset": self.offset}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
            yield ("row",)

    class Writer(DataSourceStreamWriter):
        def __init__(self, path: str) -> None:
            self.path = path

        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            for _ in iterator:
                with Path(self.path).open("a") as file:
                    file.write("row\n")
            return WriterCommitMessage()

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "bare"

        def schema(self) -> str:
            return "value string"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return Reader()

        def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            return Writer(self.options["path"])

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    print(SESSION, flush=True)
    spark.dataSource.register(Source)
    query = (
        spark.readStream.format("bare")
        .load()
        .writeStream.format("bare")
        .option("path", argument)
        .option("checkpointLocation", f"{argument}-checkpoint")
        .start()
    )

    def stop() -> None:
        query.stop()
        spark.stop()

    return stop


def run_syphon(argument: str) -> Callable[[], None]:
    """Start Spark and a syphon. Return how to stop it."""
    from pairbus.spark.sessions import lease_session
    from pairbus.syphon import Syphon, SyphonOptions

    lease = lease_session(None)
    print(SESSION, flush=True)
    syphon = Syphon(SyphonOptions(**json.loads(argument)))
    syphon.start()

    def stop() -> None:
        syphon.stop()
        lease.release()

    return stop


def main() -> None:
    name, argument = sys.argv[1:]
    stop = {"bare": run_bare, "syphon": run_syphon}[name](argument)
    sys.stdin.read()
    stop()


if __name__ == "__main__":
    main()
