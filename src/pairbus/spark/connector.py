"""A Service Bus connector for Spark: `format("servicebus")`, after `register(spark)`.

`spark.read` peeks at messages. `spark.readStream` receives them under locks. Writing sends rows as
messages, and completes the locks that the rows have.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from pairbus.errors import ConfigurationError
from pairbus.spark.connector_options import ConnectorOptions
from pairbus.spark.locked_messages import LockedMessages
from pairbus.spark.long_polls import LongPolls
from pairbus.spark.messages import ReceivedMessage
from pairbus.spark.peek_reader import PeekReader
from pairbus.spark.plans import PartitionPlan
from pairbus.spark.queue_reader import QueueReader
from pairbus.spark.registration import register_source
from pairbus.spark.row_writer import BatchWriter, RowForwarder, StreamWriter
from pairbus.spark.rows import COLUMNS, SCHEMA, to_record_batch
from pairbus.spark.stream_reader import QueuePlanner, QueueStreamReader

FORMAT = "servicebus"
DEFAULT_MAX_MESSAGES = 50_000
"""Messages of one micro-batch."""
DEFAULT_POLL_S = 900


def register(spark: SparkSession) -> None:
    """Make `format("servicebus")` available in a session, also of Spark Connect. On a cluster, the
    package is sent to the workers."""
    register_source(spark, FORMAT, SCHEMA, ServiceBus)


class ServiceBus(DataSource):
    """The data source of `format("servicebus")`. The page Service Bus connector for Spark
    of the documentation describes its options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        options = ConnectorOptions(self.options)
        return PeekReader(
            options.client(),
            options.queues(),
            options.number("maxMessages"),
            columns_of(schema),
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = ConnectorOptions(self.options)
        client, queues = options.client(), options.queues()
        max_messages = options.number("maxMessagesPerTrigger") or DEFAULT_MAX_MESSAGES
        polls = LongPolls(client, queues, poll_s=options.number("pollSeconds") or DEFAULT_POLL_S)
        return QueueStreamReader(
            queues,
            partitions=options.number("partitions") or len(queues),
            max_messages=max_messages,
            planner=QueuePlanner(polls, max_messages, LockedMessages(client, queues)),
            reader=QueueReader(client, MessageRows(columns_of(schema))),
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchWriter(RowForwarder(ConnectorOptions(self.options), schema))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        return StreamWriter(RowForwarder(ConnectorOptions(self.options), schema))


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the columns of a query. Raises ConfigurationError for one that does not exist."""
    for name in schema.names:
        if name not in COLUMNS:
            raise ConfigurationError(
                f"Format servicebus has no column {name!r}. Its columns are {SCHEMA}."
            )
    return tuple(schema.names)


class MessageRows:
    """Makes a row of each message, with the columns of a query."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns

    def rows(
        self, queue: str, messages: Iterator[ReceivedMessage], plan: PartitionPlan
    ) -> Iterator[ReceivedMessage]:
        return messages

    def wants_more(self) -> bool:
        return True

    def to_record_batch(self, rows: list[ReceivedMessage]) -> pa.RecordBatch:
        return to_record_batch(rows, self._columns)

    def queue_was_empty(self, queue: str, *, answered: bool = True) -> None:
        """Do nothing: the connector keeps no ledger."""

    def lock_was_renewed(self, message: ReceivedMessage, *, answered: bool = True) -> None:
        """Do nothing: the connector keeps no ledger."""
