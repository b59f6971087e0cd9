"""Register data sources that work in all processes of a Spark session."""

from pyspark.sql import SparkSession

from pairbus.spark.package_archive import archive_content
from pairbus.spark.portable_source import SourceFactory, portable_source
from pairbus.spark.sessions import runs_elsewhere


def register_source(session: SparkSession, name: str, schema: str, factory: SourceFactory) -> None:
    """Register a data source that works wherever the processes of a session run."""
    archive = archive_content() if runs_elsewhere(session) else None
    session.dataSource.register(portable_source(name, schema, factory, archive))
