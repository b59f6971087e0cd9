"""Messages as rows of a DataFrame."""

import pytest

from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.spark.messages import ReceivedMessage, destination_of, sequence_number_of
from pairbus.spark.rows import COLUMNS, to_record_batch
from pairbus.transfer import to_backlog

MESSAGE = Message.build(
    properties=Properties(message_id="m", subject="s"),
    application_properties={"n": 1},
    data=b"body",
).encode()


def with_annotations(payload: bytes, sequence_number: int = 7) -> bytes:
    """Return a message with the annotations of a message that a namespace delivers."""
    message = Message.parse(payload)
    message.edit_message_annotations(
        {
            Symbol("x-opt-enqueued-time"): Timestamp(1_000),
            Symbol("x-opt-sequence-number"): sequence_number,
        }
    )
    return message.encode()


def test_row_has_every_column_of_the_schema():
    payload = with_annotations(to_backlog(MESSAGE, "orders"))

    [row] = to_record_batch([ReceivedMessage("q", payload, b"t" * 16)], COLUMNS).to_pylist()

    assert tuple(row) == COLUMNS
    assert (row["queue"], row["sequence_number"], row["message_id"]) == ("q", 7, "m")
    assert (row["destination"], row["subject"], row["lock_token"]) == ("orders", "s", b"t" * 16)
    assert row["enqueued_time"].timestamp() == 1.0
    assert row["payload"] == payload
    assert ("n", "1") in row["application_properties"]


@pytest.mark.parametrize("number", [0, 1, 127, 200, 2**40])
def test_sequence_number_is_found_in_every_encoding(number: int):
    assert sequence_number_of(with_annotations(MESSAGE, number)) == number


def test_message_without_sequence_number_or_destination_has_none():
    assert sequence_number_of(MESSAGE) == 0
    assert destination_of(MESSAGE) is None
    assert destination_of(b"not a message") is None
