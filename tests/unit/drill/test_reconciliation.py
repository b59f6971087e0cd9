"""Reconciliation of messages by their ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.drill.reconciliation import MessageKey, SentMessage, reconcile

pytestmark = pytest.mark.rule("X1", "X2")
ORDERS, BILLS = "orders", "bills"


def keys(path: str, text: str) -> list[MessageKey]:
    return [MessageKey(path, id) for id in text]


def sent(path: str, text: str, session: str | None = None) -> list[SentMessage]:
    return [SentMessage(key, session, number) for number, key in enumerate(keys(path, text))]


def test_delivered_messages_are_not_lost() -> None:
    result = reconcile(sent(ORDERS, "abc"), delivered=keys(ORDERS, "cab"))

    assert (result.sent, result.delivered, result.lost) == (3, 3, ())
    assert result.complete


def test_message_in_several_places_is_counted_once() -> None:
    result = reconcile(
        sent(ORDERS, "abcde"),
        delivered=keys(ORDERS, "a"),
        in_backlog=keys(ORDERS, "ab"),
        dead_lettered=keys(ORDERS, "abc"),
    )

    assert (result.delivered, result.in_backlog, result.dead_lettered) == (1, 1, 1)
    assert result.lost == tuple(keys(ORDERS, "de"))
    assert not result.complete
    assert result.still_to_come == tuple(keys(ORDERS, "a"))


def test_message_delivered_to_the_wrong_path_is_lost() -> None:
    result = reconcile(sent(ORDERS, "a"), delivered=keys(BILLS, "a"))

    assert result.lost == tuple(keys(ORDERS, "a"))
    assert result.not_acknowledged == tuple(keys(BILLS, "a"))


def test_duplicates_are_counted() -> None:
    result = reconcile(sent(ORDERS, "abc"), delivered=keys(ORDERS, "abacca"))

    assert result.duplicated == {MessageKey(ORDERS, "a"): 2, MessageKey(ORDERS, "c"): 1}
    assert result.delivered == 3


def test_messages_that_were_not_acknowledged_are_reported() -> None:
    result = reconcile(
        sent(ORDERS, "a"),
        delivered=keys(ORDERS, "ax"),
        in_backlog=keys(ORDERS, "y"),
        dead_lettered=keys(ORDERS, "z"),
    )

    assert result.not_acknowledged == tuple(keys(ORDERS, "xyz"))
    assert result.complete


@pytest.mark.parametrize(
    ("delivered", "late"),
    [("abcd", ""), ("acbd", "b"), ("dabc", "abc"), ("abacbd", ""), ("bcad", "a"), ("ad", "")],
)
def test_message_after_a_later_one_of_its_session_is_out_of_order(
    delivered: str, late: str
) -> None:
    result = reconcile(sent(ORDERS, "abcd", "s"), delivered=keys(ORDERS, delivered))

    assert result.out_of_order == tuple(keys(ORDERS, late))


def test_order_is_checked_within_each_session_and_path() -> None:
    messages = [*sent(ORDERS, "ab", "s"), *sent(ORDERS, "cd", "t"), *sent(BILLS, "ab", "s")]
    mixed = [MessageKey(ORDERS, "c"), *keys(BILLS, "ab"), *keys(ORDERS, "adb")]
    assert reconcile(messages, delivered=mixed).out_of_order == ()

    assert reconcile(sent(ORDERS, "ab"), delivered=keys(ORDERS, "ba")).out_of_order == ()


def test_each_path_is_reconciled() -> None:
    result = reconcile(
        [*sent(ORDERS, "abc"), *sent(BILLS, "x")],
        delivered=[*keys(ORDERS, "aab"), *keys(BILLS, "x")],
    )

    assert list(result.by_path) == [BILLS, ORDERS]
    assert result.by_path[BILLS].complete
    assert result.by_path[ORDERS].lost == tuple(keys(ORDERS, "c"))
    assert result.by_path[ORDERS].duplicated == {MessageKey(ORDERS, "a"): 1}


@given(
    st.sets(st.integers(0, 30)),
    st.lists(st.integers(0, 30)),
    st.sets(st.integers(0, 30)),
    st.sets(st.integers(0, 30)),
)
def test_every_message_is_counted_exactly_once(
    acknowledged: set[int], delivered: list[int], backlog: set[int], dead: set[int]
) -> None:
    def key(number: int) -> MessageKey:
        return MessageKey("q", str(number))

    result = reconcile(
        [SentMessage(key(number)) for number in acknowledged],
        delivered=[key(number) for number in delivered],
        in_backlog=[key(number) for number in backlog],
        dead_lettered=[key(number) for number in dead],
    )

    counted = result.delivered + result.in_backlog + result.dead_lettered + len(result.lost)
    assert counted == result.sent == len(acknowledged)
    everywhere = {*delivered, *backlog, *dead}
    assert set(result.lost) == {key(number) for number in acknowledged - everywhere}
    assert set(result.not_acknowledged) == {key(number) for number in everywhere - acknowledged}
    assert sum(result.duplicated.values()) == len(delivered) - len(set(delivered))
