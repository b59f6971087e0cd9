"""Messages of the same shape are restored as each would be alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus import transfer
from pairbus.amqp.sections import Message, Properties
from pairbus.backlog_shapes import MAX_SHAPES, MISSES_PER_SHAPE, MessageShapes
from pairbus.errors import DecodeError, NotTransferable
from pairbus.transfer import from_backlog, to_backlog
from tests.property.test_transfer import messages, paths, received


@pytest.fixture(autouse=True)
def no_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_shapes", MessageShapes())


def outcome(restore: Any, payload: bytes) -> Any:
    try:
        return restore(payload)
    except (DecodeError, NotTransferable) as exc:
        return type(exc), str(exc)


def alone(payload: bytes) -> Any:
    return outcome(lambda payload: transfer._restore(payload, None), payload)


def delivery(number: int, *, body: int = 10, **properties: Any) -> bytes:
    fields = Properties(message_id=f"{number:04}", **properties)
    message = Message.build(properties=fields, application_properties={"a": number}, data=b"x")
    message.body = Message.build(data=b"y" * body).body
    return received(to_backlog(message.encode(), "orders"), number % 3)


@given(
    messages(timed=False),
    paths,
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6),
    st.binary(max_size=3),
    st.integers(0, 3),
)
def test_messages_that_differ_in_a_byte_are_restored_as_each_alone(
    payload: bytes, path: str, changes: list[tuple[int, int]], added: bytes, removed: int
) -> None:
    transfer._shapes = MessageShapes()
    first = received(to_backlog(payload, path), 1)
    assert outcome(from_backlog, first) == alone(first)

    other = bytearray(first)
    for position, value in changes:
        other[position % len(other)] = value
    for each in (bytes(other), bytes(other[: len(other) - removed]) + added, first):
        assert outcome(from_backlog, each) == alone(each)


@pytest.mark.parametrize("session", [None, "s-1"])
def test_messages_of_a_sender_have_one_shape(session: str | None) -> None:
    from_backlog(delivery(300, group_id=session))
    shape = transfer._shapes.find(delivery(300, group_id=session))

    assert shape is not None
    for number in range(303, 400, 3):
        payload = delivery(number, group_id=session)
        assert transfer._shapes.find(payload) is shape
        assert from_backlog(payload) == alone(payload)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_bodies_of_any_size_are_restored(size: int) -> None:
    for known in (10, 1000):
        from_backlog(delivery(300, body=known))

    payload = delivery(303, body=size)

    assert transfer._shapes.find(payload) is not None
    assert from_backlog(payload) == alone(payload)


def test_path_that_is_not_text_is_an_error_for_a_known_shape_too() -> None:
    payload = delivery(300)
    from_backlog(payload)
    invalid = payload.replace(b"orders", b"order\xff")

    assert transfer._shapes.find(invalid) is not None
    with pytest.raises(DecodeError, match="UTF-8"):
        from_backlog(invalid)


def test_time_to_live_is_deducted_after_messages_without_one() -> None:
    from_backlog(delivery(300))
    message = Message.parse(delivery(303))
    message.edit_application_properties({"x-ms-timetolive": 1000})

    restored = from_backlog(message.encode(), now_ms=10**15)

    assert restored.expired


def test_new_shapes_replace_the_oldest() -> None:
    shapes = transfer._shapes
    for size in range(2 * MISSES_PER_SHAPE + MAX_SHAPES):
        from_backlog(delivery(300, subject="s" * size))

    assert len(shapes._shapes) == MAX_SHAPES
    found = [shapes.find(delivery(300, subject="s" * size)) for size in range(200)]
    assert sum(shape is not None for shape in found) == MAX_SHAPES
