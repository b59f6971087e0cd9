"""A Service Bus connector for Spark: `format("servicebus")`, once `register(spark)` was called.

Reading looks at messages without taking them; streaming takes them under locks; writing sends, and
completes what a row was locked with.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pairbus.amqp.client import ClientOptions, Management
from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.types import Symbol
from pairbus.errors import ConfigurationError, EntityNotFound, SendUnavailable
from pairbus.spark.columns import SCHEMA, ReceivedMessage, RestoredMessage, as_rows, sequence_of
from pairbus.spark.connections import client_of
from pairbus.spark.forwarder import Forwarder, Outcome
from pairbus.spark.reader import QueueReader
from pairbus.transfer import MISSING_PATH

FORMAT = "servicebus"
PEEKED_AT_ONCE = 250
_NAMES = tuple(part.split()[0] for part in SCHEMA.split(", "))


def register(spark: SparkSession) -> None:
    """Make `format("servicebus")` known to a session."""
    spark.dataSource.register(ServiceBus)


class ServiceBus(DataSource):
    """`format("servicebus")`. The options are in docs/connector.md."""

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
        return QueueReader(
            options.client(),
            options.queues(),
            partitions=options.number("partitions") or len(options.queues()),
            max_messages=options.number("maxMessagesPerTrigger") or 50_000,
            poll_s=options.number("pollSeconds") or 900,
            columns=columns_of(schema),
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchSender(ConnectorOptions(self.options), schema)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        return StreamSender(ConnectorOptions(self.options), schema)


class ConnectorOptions:
    """Options of Spark, checked when they are asked for. Raises ConfigurationError."""

    KNOWN = (
        "connectionString",
        "connectionStringEnv",
        "caFile",
        "queue",
        "maxMessages",
        "maxMessagesPerTrigger",
        "partitions",
        "pollSeconds",
        "path",
        "settleConnectionString",
        "settleConnectionStringEnv",
    )

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        known = {name.lower() for name in self.KNOWN}
        for name in self._given:
            # Spark passes some of its own.
            if name not in known and name not in ("checkpointlocation", "queryname"):
                raise ConfigurationError(
                    f"servicebus has no option {name!r}; it has {', '.join(self.KNOWN)}"
                )

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def client(self) -> ClientOptions:
        """The namespace that is read from or sent to."""
        found = self._client("connectionString")
        if found is None:
            raise ConfigurationError(
                "servicebus needs the option connectionString, or connectionStringEnv with the "
                "name of a variable that holds it"
            )
        return found

    def settle_client(self) -> ClientOptions | None:
        """The namespace that holds the locks of rows; None: rows are not settled."""
        return self._client("settleConnectionString")

    def _client(self, name: str) -> ClientOptions | None:
        text, variable = self.text(name), self.text(f"{name}Env")
        if text is None and variable is not None:
            text = os.environ.get(variable)
            if text is None:
                raise ConfigurationError(f"the environment has no {variable}")
        if text is None:
            return None
        options = ClientOptions.from_connection_string(text)
        ca_file = self.text("caFile")
        return options if ca_file is None else replace(options, ca_file=ca_file)

    def queues(self) -> tuple[str, ...]:
        names = (name.strip() for name in (self.text("queue") or "").split(","))
        queues = tuple(name for name in names if name)
        if not queues:
            raise ConfigurationError("servicebus needs the option queue: one or several, by commas")
        return queues

    def number(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) < 1:
            raise ConfigurationError(f"{name} is a number of at least 1, not {text!r}")
        return int(text)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that are asked for. Raises ConfigurationError for one that there is not."""
    for name in schema.names:
        if name not in _NAMES:
            raise ConfigurationError(f"servicebus has no column {name!r}: it has {SCHEMA}")
    return tuple(schema.names)


@dataclass(frozen=True)
class OneQueue(InputPartition):
    queue: str


class PeekReader(DataSourceReader):
    """Looks at messages without taking them, a queue in each task."""

    def __init__(
        self,
        options: ClientOptions,
        queues: tuple[str, ...],
        max_messages: int | None,
        columns: tuple[str, ...],
        *,
        may_be_absent: bool = False,
    ) -> None:
        self._options = options
        self._queues = queues
        self._max_messages = max_messages
        self._columns = columns
        self._absent = (EntityNotFound,) if may_be_absent else ()

    def partitions(self) -> list[OneQueue]:
        return [OneQueue(queue) for queue in self._queues]

    def read(self, partition: OneQueue) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        left, after = self._max_messages, 0
        with (
            contextlib.suppress(*self._absent),
            Management(client_of(self._options), partition.queue) as management,
        ):
            while left is None or left > 0:
                count = PEEKED_AT_ONCE if left is None else min(left, PEEKED_AT_ONCE)
                payloads = management.peek(after + 1, count)
                if not payloads:
                    return
                # Numbers may have gaps, but each is there once: so it gets on whatever they are.
                after = max(after + len(payloads), sequence_of(payloads[-1]))
                left = None if left is None else left - len(payloads)
                yield self.frame([ReceivedMessage(partition.queue, one, None) for one in payloads])

    def frame(self, found: list[ReceivedMessage]) -> pa.RecordBatch:
        """Messages as Spark takes them."""
        return as_rows(found, self._columns)


@dataclass
class Sent(WriterCommitMessage):
    """What came of one task."""

    outcome: Outcome


class _StrictForwarder(Forwarder):
    """Fails for what it cannot send, where there is no queue to dead-letter it in."""

    def __init__(self, primary: ClientOptions, settle: ClientOptions | None) -> None:
        super().__init__(primary, settle)
        self._can_bury = settle is not None

    def _bury(self, message: RestoredMessage, reason: str, description: str) -> None:
        if self._can_bury and message.lock_token is not None:
            super()._bury(message, reason, description)
            return
        path = message.destination or ""
        self.outcome.left[path] += 1
        self.outcome.errors.setdefault(path, f"{reason}: {description}")


class _RowSender:
    """Sends rows. They have a `destination` or all go to the option `path`; and a `payload`, which
    is an encoded AMQP message, or a `body` with what else a message has."""

    def __init__(self, options: ConnectorOptions, schema: StructType) -> None:
        self._primary = options.client()
        self._settle = options.settle_client()
        self._path = options.text("path")
        names = set(schema.names)
        if self._path is None and "destination" not in names:
            raise ConfigurationError("rows need a column destination, or servicebus an option path")
        if not names & {"payload", "body"}:
            raise ConfigurationError("rows need a column payload (AMQP bytes) or a column body")

    def send(self, batches: Iterator[pa.RecordBatch]) -> Sent:
        forwarder = _StrictForwarder(self._primary, self._settle)
        for batch in batches:
            forwarder.take(self._message(row) for row in batch.to_pylist())
        outcome = forwarder.finish()
        if outcome.errors:
            # The task is tried again: nothing counts as written that was not accepted.
            path, why = next(iter(outcome.errors.items()))
            raise SendUnavailable(
                f"{outcome.left[path]} messages for {path!r} were not sent: {why}"
            )
        return Sent(outcome)

    def _message(self, row: dict[str, Any]) -> RestoredMessage:
        until = row.get("locked_until")
        path = row.get("destination") or self._path
        return RestoredMessage(
            row.get("queue") or "",
            row.get("lock_token"),
            _lock_ms(until),
            row.get("session_id"),
            path,
            row["payload"] if row.get("payload") is not None else build(row),
            None if path is not None else MISSING_PATH,
            None if path is not None else "the row has no destination",
        )


def _lock_ms(until: Any) -> int:
    if until is None:
        return 1 << 62
    return int(until.timestamp() * 1000) if hasattr(until, "timestamp") else int(until)


def build(row: Mapping[str, Any]) -> bytes:
    """A message from the columns that people write."""
    body = row.get("body")
    data = body.encode() if isinstance(body, str) else bytes(body or b"")
    kind = row.get("content_type")
    properties = Properties(
        message_id=row.get("message_id"),
        subject=row.get("subject"),
        group_id=row.get("session_id"),
        content_type=None if kind is None else Symbol(kind),
    )
    given = row.get("application_properties")
    return Message.build(
        properties=properties,
        application_properties=None if given is None else dict(given),
        data=data,
    ).encode()


class BatchSender(_RowSender, DataSourceArrowWriter):
    """`df.write.format("servicebus")`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return self.send(iterator)


class StreamSender(_RowSender, DataSourceStreamArrowWriter):
    """`df.writeStream.format("servicebus")`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return self.send(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The rows were confirmed as they were sent."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was sent stays sent; the rest is read again."""
