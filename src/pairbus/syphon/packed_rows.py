"""Messages between the source and the sink of a plain drain: many in one row.

Spark copies each row several times on its way from one Python process to another. It looks into the
rows only if there is a filter or a function of the user. Without one, the messages that a task
received together are one row.
"""

import marshal
from collections.abc import Iterator, Sequence

import pyarrow as pa

from pairbus.spark.messages import RestoredMessage
from pairbus.syphon.restore import from_backlog_batch

PACKED_COLUMN = "messages"
PACKED_SCHEMA = f"{PACKED_COLUMN} binary"
"""The column of a row with several messages: their fields, one after the other, in the format of
`marshal`. The workers of a query have the same version of Python."""
MAX_ROW_BYTES = 1024 * 1024
"""The size of the messages of a row, unless it has only one."""


def pack(messages: Sequence[RestoredMessage]) -> pa.RecordBatch:
    """Return messages as rows of `PACKED_SCHEMA`."""
    rows = [marshal.dumps(tuple(zip(*part, strict=True))) for part in _parts(messages)]
    return pa.RecordBatch.from_arrays([pa.array(rows, pa.binary())], names=[PACKED_COLUMN])


def messages_of(batch: pa.RecordBatch) -> list[RestoredMessage]:
    """Return the messages in rows of `PACKED_SCHEMA` or of `BACKLOG_SCHEMA`."""
    if batch.schema.names != [PACKED_COLUMN]:
        return from_backlog_batch(batch)
    return [
        RestoredMessage(*fields)
        for row in batch.column(0)
        for fields in zip(*marshal.loads(row.as_buffer()), strict=True)
    ]


def _parts(messages: Sequence[RestoredMessage]) -> Iterator[Sequence[RestoredMessage]]:
    """Divide messages into parts for one row each."""
    start = size = 0
    for index, message in enumerate(messages):
        size += len(message.payload)
        if size > MAX_ROW_BYTES and index > start:
            yield messages[start:index]
            start, size = index, len(message.payload)
    yield messages[start:]
