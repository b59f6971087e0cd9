"""DataFrames as messages: the writers of `format("servicebus")`."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.types import Symbol
from pairbus.errors import ConfigurationError, SendUnavailable
from pairbus.spark.connector_options import ConnectorOptions
from pairbus.spark.forwarder import Forwarder
from pairbus.spark.messages import RestoredMessage
from pairbus.spark.task_commit import TaskCommit
from pairbus.transfer import MISSING_PATH

NO_EXPIRY = 1 << 62
"""The lock expiry of a row that has no column `locked_until`."""


class RowForwarder:
    """Sends rows as messages, in a worker.

    Each row goes to its column `destination`, or to the option `path`. Its message is the column
    `payload`, which is an encoded AMQP message, or is built from `body` and other columns.
    """

    def __init__(self, options: ConnectorOptions, schema: StructType) -> None:
        self._target = options.client()
        self._source = options.settle_client()
        self._path = options.text("path")
        columns = set(schema.names)
        if self._path is None and "destination" not in columns:
            raise ConfigurationError(
                "The rows have no column destination. Add one, or set the option path."
            )
        if not columns & {"payload", "body"}:
            raise ConfigurationError(
                "The rows have neither a column payload (an encoded AMQP message) nor a column "
                "body. Add one of them."
            )

    def forward(self, batches: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Send all rows. Raises SendUnavailable if any was not accepted, so that Spark retries the
        task instead of counting its rows as written."""
        forwarder = Forwarder(self._target, self._source)
        for batch in batches:
            forwarder.forward([self._message(row) for row in batch.to_pylist()])
        outcome = forwarder.finish()
        for path, error in outcome.errors.items():
            raise SendUnavailable(
                f"{outcome.left[path]} messages for {path!r} were not sent: {error}"
            )
        return TaskCommit(outcome)

    def _message(self, row: Mapping[str, Any]) -> RestoredMessage:
        destination = row.get("destination") or self._path
        payload = row.get("payload")
        return RestoredMessage(
            queue=row.get("queue") or "",
            lock_token=row.get("lock_token"),
            locked_until=_to_milliseconds(row.get("locked_until")),
            session_id=row.get("session_id"),
            destination=destination,
            payload=build_message(row) if payload is None else payload,
            problem=None if destination is not None else MISSING_PATH,
            description=None if destination is not None else "The row has no destination.",
        )


def _to_milliseconds(locked_until: Any) -> int:
    if locked_until is None:
        return NO_EXPIRY
    if hasattr(locked_until, "timestamp"):
        return int(locked_until.timestamp() * 1000)
    return int(locked_until)


def build_message(row: Mapping[str, Any]) -> bytes:
    """Return an encoded message made of the columns of a row."""
    body = row.get("body")
    content_type = row.get("content_type")
    application_properties = row.get("application_properties")
    return Message.build(
        properties=Properties(
            message_id=row.get("message_id"),
            subject=row.get("subject"),
            group_id=row.get("session_id"),
            content_type=None if content_type is None else Symbol(content_type),
        ),
        application_properties=(
            None if application_properties is None else dict(application_properties)
        ),
        data=body.encode() if isinstance(body, str) else bytes(body or b""),
    ).encode()


class BatchWriter(DataSourceArrowWriter):
    """The sink of `df.write.format("servicebus")`."""

    def __init__(self, rows: RowForwarder) -> None:
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        return self._rows.forward(iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink of `df.writeStream.format("servicebus")`."""

    def __init__(self, rows: RowForwarder) -> None:
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        return self._rows.forward(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: each message was settled after its destination had accepted it."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: messages that were not accepted stay in their queue and are read again."""
