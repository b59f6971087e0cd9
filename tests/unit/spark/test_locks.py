"""Expiry of locks, by what each delivery says, and the time that must be left."""

import pytest

from pairbus.amqp.sections import Message
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.spark.locks import LockExpiry, LockMargin, is_short
from pairbus.spark.messages import locked_until_of

pytestmark = pytest.mark.rule("Y13")
NOW = 1_700_000_000_000


def delivery(locked_until: int) -> bytes:
    annotations = {
        Symbol("x-opt-enqueued-time"): Timestamp(1),
        Symbol("x-opt-locked-until"): Timestamp(locked_until),
    }
    return Message.build(message_annotations=annotations, data=b"x-opt-locked-until").encode()


def test_expiry_is_read_from_the_delivery():
    assert locked_until_of(delivery(NOW + 10_000)) == NOW + 10_000
    assert LockExpiry(lambda: NOW).of(delivery(NOW + 10_000)) == NOW + 10_000


def test_message_without_an_expiry_has_none():
    assert locked_until_of(Message.build(data=b"x-opt-locked-until?").encode()) == 0


@pytest.mark.parametrize(("ahead", "lock"), [(-600_000, 5_000), (600_000, 300_000)])
def test_clock_that_differs_from_that_of_the_service_is_corrected_once(ahead: int, lock: int):
    now = [NOW]
    expiry = LockExpiry(lambda: now[0])

    assert expiry.of(delivery(NOW + ahead)) == NOW + lock
    now[0] += 60_000  # the next delivery waited in a buffer, and its lock went on
    assert expiry.of(delivery(NOW + ahead + 7)) == NOW + lock + 7
    assert expiry.corrected(NOW + ahead + 9) == NOW + lock + 9


def test_margin_is_a_quarter_of_the_longest_lock_within_limits():
    margin = LockMargin()

    assert margin.update(4_000) == 1_000
    assert margin.update(10_000) == 2_500
    assert margin.update(500) == 2_500
    assert margin.update(60_000) == 5_000
    assert LockMargin().update(0) == 1_000


def test_lock_is_short_when_less_than_a_third_is_left():
    assert is_short(NOW + 19_999, 60_000, NOW)
    assert not is_short(NOW + 20_000, 60_000, NOW)
    assert is_short(NOW - 1, 60_000, NOW)
