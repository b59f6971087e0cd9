"""A Spark session for a syphon, and the syphon's source and sink in it."""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

import pairbus.errors
from pairbus.spark.columns import BACKLOG_SCHEMA
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.sink import Sink
from pairbus.syphon.source import BacklogReader

ROWS_PER_BATCH = 2000
"""Rows that cross from Python to Spark together. Spark's default, 10 000, keeps reading and sending
from going on side by side."""


QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For an embedded Spark: it starts in two thirds of the time, and little is left to Java then."""
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def own_session(
    master: str | None,
    app_name: str = "pairbus-syphon",
    *,
    sums: bool = False,
    log: Path | None = None,
) -> SparkSession:
    """A session of our own, embedded unless there is a master. `sums`: Java is to work, not only to
    hand on what Python does. `log`: a file for what Java and the workers write to their standard
    error, which is ours otherwise."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java = [f"-Dlog4j2.configurationFile={LOG_SETTINGS}"]
    if not sums and (master is None or master.startswith("local[")):
        java += QUICK_START
    settings: dict[str, Any] = {
        "spark.app.name": app_name,
        "spark.master": master or "local[*]",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": " ".join(java),
    }
    if master is None:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    if log is not None:
        with log.open("ab") as file:
            conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
            gateway = launch_gateway(conf, {"stderr": file})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)
    session = SparkSession.builder.config(map=settings).getOrCreate()
    if master is not None and not master.startswith("local["):
        session.sparkContext.addPyFile(package_archive())
    set_for_streams(session)
    return session


def set_for_streams(session: SparkSession) -> None:
    """Settings that make a drain fast. They are the session's own, not the application's."""
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_PER_BATCH))
    session.conf.set("spark.sql.streaming.pollingDelay", "100ms")


def package_archive() -> str:
    """The package as a zip file, for workers that do not have it."""
    source = Path(pairbus.errors.__file__).parent
    folder = Path(tempfile.mkdtemp(prefix="pairbus-"))
    return shutil.make_archive(str(folder / "pairbus"), "zip", source.parent, source.name)


def register(spark: SparkSession, options: SyphonOptions, record: Path, partitions: int) -> str:
    """Make a source and sink for these options known to Spark; the name of the format.

    The options are in the class, not among Spark's options: so no secret is in a plan or a log.
    """
    format_name = f"pairbus-syphon-{uuid4().hex[:8]}"

    class Backlog(DataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> str:
            return BACKLOG_SCHEMA

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return BacklogReader(options, record, partitions)

        def streamWriter(  # noqa: N802
            self, schema: StructType, overwrite: bool
        ) -> DataSourceStreamWriter:
            return Sink(options, record)

    spark.dataSource.register(Backlog)
    # A sink is looked up in the session that is this thread's, whatever `spark` is.
    java = SparkSession._get_j_spark_session_class(spark._jvm)
    java.setActiveSession(spark._jsparkSession)
    return format_name


def backlog(spark: SparkSession, format_name: str, only: tuple[str, ...]) -> DataFrame:
    """The backlog as a stream of rows, those for some destinations if it is to be only those."""
    rows = spark.readStream.format(format_name).load()
    if only:
        rows = rows.where(rows["destination"].isin(list(only)) | rows["problem"].isNotNull())
    return rows
