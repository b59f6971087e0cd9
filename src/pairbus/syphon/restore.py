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
    "destination string, payload binary, problem string, description string"
)
"""The columns of `RestoredMessage`."""

_TYPES = arrow_types(BACKLOG_SCHEMA)


def restore(received: ReceivedMessage, now_ms: int | None) -> RestoredMessage:
    """Return a backlog message as its sender sent it, or with a problem if that is impossible.

    With `now_ms`, the time spent in the backlog is deducted from the time-to-live.
    """
    problem = description = destination = session_id = None
    payload = received.payload
    try:
        message = from_backlog(received.payload, now_ms=now_ms)
        payload, destination, session_id = message.payload, message.path, message.session
        if message.expired:
            problem, description = TTL_EXPIRED, "The time-to-live expired in the backlog."
    except NotTransferable as exc:
        problem, description = exc.reason, str(exc)
    except DecodeError as exc:
        problem, description = NOT_A_MESSAGE, str(exc)
    return received.restored(payload, destination, session_id, problem, description)


def to_backlog_batch(messages: Sequence[RestoredMessage]) -> pa.RecordBatch:
    """Return messages as rows of `BACKLOG_SCHEMA`."""
    names = RestoredMessage._fields
    arrays = [
        pa.array(column, type=_TYPES[name])
        for name, column in zip(names, zip(*messages, strict=True), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))
