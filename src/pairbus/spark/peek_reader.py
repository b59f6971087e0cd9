"""Queues as a batch source: `spark.read` peeks at messages, and does not receive them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pairbus.amqp.client import ClientOptions, Management
from pairbus.spark.connections import client_for
from pairbus.spark.messages import ReceivedMessage, sequence_number_of
from pairbus.spark.rows import to_record_batch
from pairbus.spark.throttled_requests import retry_throttled

PAGE_SIZE = 250
"""Messages of one peek."""


@dataclass(frozen=True)
class QueuePartition(InputPartition):
    """A task reads one queue."""

    queue: str


class PeekReader(DataSourceReader):
    """Peeks at the messages of queues."""

    def __init__(
        self,
        options: ClientOptions,
        queues: tuple[str, ...],
        max_messages: int | None,
        columns: tuple[str, ...],
    ) -> None:
        """`max_messages` is the limit for each queue."""
        self._options = options
        self._queues = queues
        self._max_messages = max_messages
        self._columns = columns

    def partitions(self) -> list[QueuePartition]:
        return [QueuePartition(queue) for queue in self._queues]

    def read(self, partition: QueuePartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        remaining, last_number = self._max_messages, 0
        with Management(client_for(self._options), partition.queue) as management:
            while remaining is None or remaining > 0:
                count = PAGE_SIZE if remaining is None else min(remaining, PAGE_SIZE)
                payloads = retry_throttled(partial(management.peek, last_number + 1, count))
                if not payloads:
                    return
                # Sequence numbers have gaps and never repeat, so each page starts further on.
                last_number = max(last_number + len(payloads), sequence_number_of(payloads[-1]))
                remaining = None if remaining is None else remaining - len(payloads)
                messages = [ReceivedMessage(partition.queue, payload) for payload in payloads]
                yield to_record_batch(messages, self._columns)
