"""Where messages are, by their ids."""

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


def test_what_was_delivered_is_not_lost() -> None:
    found = reconcile(sent(ORDERS, "abc"), delivered=keys(ORDERS, "cab"))

    assert (found.sent, found.delivered, found.lost) == (3, 3, ())
    assert found.complete


def test_each_message_is_counted_once_wherever_it_is() -> None:
    found = reconcile(
        sent(ORDERS, "abcde"),
        delivered=keys(ORDERS, "a"),
        in_backlog=keys(ORDERS, "ab"),
        dead_lettered=keys(ORDERS, "abc"),
    )

    assert (found.delivered, found.in_backlog, found.dead_lettered) == (1, 1, 1)
    assert found.lost == tuple(keys(ORDERS, "de"))
    assert not found.complete
    assert found.still_to_come == tuple(keys(ORDERS, "a"))


def test_a_message_with_the_right_id_at_the_wrong_path_is_lost() -> None:
    found = reconcile(sent(ORDERS, "a"), delivered=keys(BILLS, "a"))

    assert found.lost == tuple(keys(ORDERS, "a"))
    assert found.not_acknowledged == tuple(keys(BILLS, "a"))


def test_copies_are_counted() -> None:
    found = reconcile(sent(ORDERS, "abc"), delivered=keys(ORDERS, "abacca"))

    assert found.duplicated == {MessageKey(ORDERS, "a"): 2, MessageKey(ORDERS, "c"): 1}
    assert found.delivered == 3


def test_what_nobody_was_told_of_is_named() -> None:
    found = reconcile(
        sent(ORDERS, "a"),
        delivered=keys(ORDERS, "ax"),
        in_backlog=keys(ORDERS, "y"),
        dead_lettered=keys(ORDERS, "z"),
    )

    assert found.not_acknowledged == tuple(keys(ORDERS, "xyz"))
    assert found.complete


@pytest.mark.parametrize(
    ("delivered", "late"),
    [("abcd", ""), ("acbd", "b"), ("dabc", "abc"), ("abacbd", ""), ("bcad", "a"), ("ad", "")],
)
def test_what_a_later_one_of_its_session_has_overtaken_is_out_of_order(
    delivered: str, late: str
) -> None:
    found = reconcile(sent(ORDERS, "abcd", "s"), delivered=keys(ORDERS, delivered))

    assert found.out_of_order == tuple(keys(ORDERS, late))


def test_sessions_and_paths_have_orders_of_their_own_and_no_session_has_none() -> None:
    given = [*sent(ORDERS, "ab", "s"), *sent(ORDERS, "cd", "t"), *sent(BILLS, "ab", "s")]
    mixed = [MessageKey(ORDERS, "c"), *keys(BILLS, "ab"), *keys(ORDERS, "adb")]
    assert reconcile(given, delivered=mixed).out_of_order == ()

    assert reconcile(sent(ORDERS, "ab"), delivered=keys(ORDERS, "ba")).out_of_order == ()


def test_each_path_has_a_reckoning_of_its_own() -> None:
    found = reconcile(
        [*sent(ORDERS, "abc"), *sent(BILLS, "x")],
        delivered=[*keys(ORDERS, "aab"), *keys(BILLS, "x")],
    )

    assert list(found.by_path) == [BILLS, ORDERS]
    assert found.by_path[BILLS].complete
    assert found.by_path[ORDERS].lost == tuple(keys(ORDERS, "c"))
    assert found.by_path[ORDERS].duplicated == {MessageKey(ORDERS, "a"): 1}


@given(
    st.sets(st.integers(0, 30)),
    st.lists(st.integers(0, 30)),
    st.sets(st.integers(0, 30)),
    st.sets(st.integers(0, 30)),
)
def test_nothing_is_counted_twice_and_nothing_is_forgotten(
    acknowledged: set[int], delivered: list[int], backlog: set[int], dead: set[int]
) -> None:
    def key(number: int) -> MessageKey:
        return MessageKey("q", str(number))

    found = reconcile(
        [SentMessage(key(number)) for number in acknowledged],
        delivered=[key(number) for number in delivered],
        in_backlog=[key(number) for number in backlog],
        dead_lettered=[key(number) for number in dead],
    )

    counted = found.delivered + found.in_backlog + found.dead_lettered + len(found.lost)
    assert counted == found.sent == len(acknowledged)
    everywhere = {*delivered, *backlog, *dead}
    assert set(found.lost) == {key(number) for number in acknowledged - everywhere}
    assert set(found.not_acknowledged) == {key(number) for number in everywhere - acknowledged}
    assert sum(found.duplicated.values()) == len(delivered) - len(set(delivered))
