"""Messages as rows of a DataFrame.

Only the columns that the query selects are decoded.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from pairbus.amqp.section_edit import read_fields
from pairbus.amqp.sections import CONTENT_TYPE, GROUP_ID, MESSAGE_ID, SUBJECT, Message
from pairbus.amqp.types import Timestamp
from pairbus.errors import DecodeError
from pairbus.servicebus import annotations
from pairbus.servicebus.application_properties import PATH_ALIAS
from pairbus.spark.messages import ReceivedMessage

SCHEMA = (
    "queue string, sequence_number long, enqueued_time timestamp, lock_token binary, "
    "locked_until timestamp, message_id string, session_id string, subject string, "
    "content_type string, delivery_count int, application_properties map<string,string>, "
    "destination string, payload binary"
)
"""The schema of `format("servicebus")`. `payload` is the whole message, encoded as AMQP."""
_ARROW_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "long": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


def arrow_types(schema: str) -> dict[str, pa.DataType]:
    """Return the Arrow types of the columns of a Spark schema."""
    columns = (column.split() for column in schema.split(", "))
    return {name: _ARROW_TYPES[type_name] for name, type_name in columns}


_TYPES = arrow_types(SCHEMA)
COLUMNS = tuple(_TYPES)


class _ParsedMessage:
    """A message whose sections are decoded when a column needs them."""

    __slots__ = ("_annotations", "message", "received")

    def __init__(self, received: ReceivedMessage) -> None:
        self.received = received
        self.message = Message.parse(received.payload)
        self._annotations: dict[Any, Any] | None = None

    def annotation(self, name: str) -> Any:
        if self._annotations is None:
            self._annotations = self.message.read_message_annotations()
        return self._annotations.get(name)

    def time_us(self, name: str) -> int | None:
        """Return an annotation that is a timestamp, in microseconds since 1970."""
        value = self.annotation(name)
        return int(value) * 1000 if isinstance(value, Timestamp) else None

    def property(self, index: int) -> str | None:
        (value,) = read_fields(self.message.properties, (index,))
        return None if value is None else str(value)

    def application_properties(self) -> list[tuple[str, str | None]]:
        entries = self.message.read_application_properties().items()
        return [(str(key), None if value is None else _text(value)) for key, value in entries]

    def destination(self) -> str | None:
        value = self.message.read_application_properties().get(PATH_ALIAS)
        return value if isinstance(value, str) else None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


_GETTERS: dict[str, Callable[[_ParsedMessage], Any]] = {
    "queue": lambda parsed: parsed.received.queue,
    "sequence_number": lambda parsed: parsed.annotation(annotations.SEQUENCE_NUMBER),
    "enqueued_time": lambda parsed: parsed.time_us(annotations.ENQUEUED_TIME),
    "lock_token": lambda parsed: parsed.received.lock_token,
    "locked_until": lambda parsed: parsed.time_us(annotations.LOCKED_UNTIL),
    "message_id": lambda parsed: parsed.property(MESSAGE_ID),
    "session_id": lambda parsed: parsed.property(GROUP_ID),
    "subject": lambda parsed: parsed.property(SUBJECT),
    "content_type": lambda parsed: parsed.property(CONTENT_TYPE),
    "delivery_count": lambda parsed: parsed.message.read_header().delivery_count,
    "application_properties": lambda parsed: parsed.application_properties(),
    "destination": lambda parsed: parsed.destination(),
    "payload": lambda parsed: parsed.received.payload,
}


def to_record_batch(messages: Sequence[ReceivedMessage], columns: Sequence[str]) -> pa.RecordBatch:
    """Return messages as rows with some of the columns of `SCHEMA`."""
    parsed_messages = [_ParsedMessage(message) for message in messages]
    arrays = [
        pa.array([_GETTERS[name](parsed) for parsed in parsed_messages], type=_TYPES[name])
        for name in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def decode_or_null(messages: Sequence[ReceivedMessage], columns: Sequence[str]) -> pa.RecordBatch:
    """Return messages as rows, with nulls for a payload that is not a message."""
    try:
        return to_record_batch(messages, columns)
    except DecodeError:
        nulls = pa.RecordBatch.from_arrays(
            [pa.nulls(1, _TYPES[name]) for name in columns], names=list(columns)
        )
        batches = []
        for message in messages:
            try:
                batches.append(to_record_batch([message], columns))
            except DecodeError:
                batches.append(nulls)
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
