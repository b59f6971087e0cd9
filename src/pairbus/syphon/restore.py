"""Backlog messages, restored for the primary, as rows of a DataFrame."""

from collections.abc import Sequence

import pyarrow as pa

from pairbus.backlog.message import NOT_A_MESSAGE
from pairbus.errors import DecodeError, NotTransferable
from pairbus.servicebus.application_properties import TTL_EXPIRED
from pairbus.spark.messages import ReceivedMessage, RestoredMessage
from pairbus.spark.rows import arrow_types
from pairbus.transfer import from_backlog

BACKLOG_SCHEMA = (
    "queue string, lock_token binary, locked_until long, session_id string, "
    "destination string, payload binary, problem string, description string, "
    "enqueued_time timestamp"
)
"""The columns of `RestoredMessage`."""

_TYPES = arrow_types(BACKLOG_SCHEMA)


def restore(received: ReceivedMessage, now_ms: int | None) -> RestoredMessage:
    """Return a backlog message as its sender sent it, or with a problem if that is impossible.

    With `now_ms`, the time spent in the backlog is deducted from the time-to-live.
    """
    problem = description = destination = session_id = enqueued_time = None
    payload = received.payload
    try:
        message = from_backlog(received.payload, now_ms=now_ms)
        payload, destination, session_id = message.payload, message.path, message.session
        if message.enqueued_ms is not None:
            enqueued_time = message.enqueued_ms * 1000
        if message.expired:
            problem, description = TTL_EXPIRED, "The time-to-live expired in the backlog."
    except NotTransferable as exc:
        problem, description = exc.reason, str(exc)
    except DecodeError as exc:
        problem, description = NOT_A_MESSAGE, str(exc)
    return received.restored(payload, destination, session_id, problem, description, enqueued_time)


def to_backlog_batch(
    messages: Sequence[RestoredMessage], *, with_times: bool = True
) -> pa.RecordBatch:
    """Return messages as rows of `BACKLOG_SCHEMA`. Without times, the enqueued times are null."""
    *columns, times = zip(*messages, strict=True)
    columns.append(times if with_times else (None,) * len(messages))
    arrays = [
        pa.array(column, type=type_) for column, type_ in zip(columns, _TYPES.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(_TYPES))


def from_backlog_batch(batch: pa.RecordBatch) -> list[RestoredMessage]:
    """Return rows of `BACKLOG_SCHEMA` as messages."""
    columns = []
    for column in batch.columns:
        if column.null_count == len(column):
            columns.append([None] * len(column))
        elif pa.types.is_timestamp(column.type):
            # As numbers: to convert them to objects takes longer than everything else here.
            columns.append(column.cast(pa.int64()).to_pylist())
        else:
            columns.append(column.to_pylist())
    return [RestoredMessage(*row) for row in zip(*columns, strict=True)]
