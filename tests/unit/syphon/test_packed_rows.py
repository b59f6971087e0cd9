"""Messages of a plain drain, many in one row of Spark."""

from pairbus.spark.messages import RestoredMessage
from pairbus.syphon.packed_rows import MAX_ROW_BYTES, messages_of, pack
from pairbus.syphon.restore import to_backlog_batch


def message(number: int, size: int = 10) -> RestoredMessage:
    return RestoredMessage(
        "queue", number.to_bytes(16, "big"), 99 + number, None, "orders", bytes([number]) * size
    )


def test_messages_of_a_row_keep_their_fields_and_their_order() -> None:
    messages = [
        message(1),
        message(2)._replace(session_id="s", enqueued_time=1_000_000),
        message(3)._replace(destination=None, problem="reason", description="description"),
        message(4)._replace(lock_token=None),
    ]

    batch = pack(messages)

    assert batch.num_rows == 1
    assert messages_of(batch) == messages


def test_row_has_a_limited_size_unless_it_has_one_message() -> None:
    half = MAX_ROW_BYTES // 2
    messages = [message(1, half), message(2, half), message(3), message(4, 3 * half), message(5)]

    batch = pack(messages)

    assert batch.num_rows == 4
    assert messages_of(batch.slice(0, 1)) == messages[:2]
    assert messages_of(batch.slice(2, 1)) == messages[3:4]
    assert messages_of(batch) == messages


def test_rows_that_passed_a_filter_are_read_by_their_columns() -> None:
    messages = [message(1), message(2)]

    batch = to_backlog_batch(messages)

    assert messages_of(batch) == messages
