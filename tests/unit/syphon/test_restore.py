"""Backlog messages as rows of the syphon's stream."""

from datetime import UTC, datetime

import pytest

from pairbus.amqp.sections import Header, Message, Properties
from pairbus.amqp.types import Symbol, Timestamp, UInt
from pairbus.backlog.message import NOT_A_MESSAGE
from pairbus.servicebus.application_properties import TTL_EXPIRED
from pairbus.spark.messages import ReceivedMessage
from pairbus.syphon.restore import restore, to_backlog_batch
from pairbus.transfer import MISSING_PATH, to_backlog


def message(session_id: str | None = None, ttl_ms: int | None = None) -> bytes:
    return Message.build(
        header=None if ttl_ms is None else Header(ttl=UInt(ttl_ms)),
        properties=Properties(message_id="m", group_id=session_id),
        data=b"body",
    ).encode()


def stored(payload: bytes) -> bytes:
    """Return a message as the backlog delivers it, enqueued one second after 1970."""
    parsed = Message.parse(to_backlog(payload, "orders"))
    parsed.edit_message_annotations({Symbol("x-opt-enqueued-time"): Timestamp(1_000)})
    return parsed.encode()


def test_backlog_message_is_restored():
    payload = stored(message(session_id="s"))

    restored = restore(ReceivedMessage("q", payload, b"t" * 16, 99), None)

    assert (restored.destination, restored.session_id, restored.problem) == ("orders", "s", None)
    assert (restored.lock_token, restored.locked_until) == (b"t" * 16, 99)
    assert restored.payload == message(session_id="s")
    assert restored.enqueued_time == 1_000_000
    [row] = to_backlog_batch([restored]).to_pylist()
    assert row.pop("enqueued_time") == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert restored._asdict().items() >= row.items()


@pytest.mark.parametrize(
    ("payload", "problem"), [(message(), MISSING_PATH), (b"\x00\x01", NOT_A_MESSAGE)]
)
def test_message_that_cannot_be_restored_has_a_problem(payload: bytes, problem: str):
    restored = restore(ReceivedMessage("q", payload), None)

    assert restored.problem == problem
    assert restored.description
    assert restored.payload == payload


@pytest.mark.parametrize(
    ("now_ms", "problem"), [(10_000, TTL_EXPIRED), (1_100, None), (None, None)]
)
def test_message_that_expired_in_the_backlog_has_a_problem_if_its_time_is_deducted(
    now_ms: int | None, problem: str | None
):
    received = ReceivedMessage("q", stored(message(ttl_ms=500)))

    assert restore(received, now_ms).problem == problem
