"""Counts, and the operations that they make, exactly."""

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.cost.counts import PING_SIZE, CostKey, MessageGroup, TrafficCounts, lots, tally
from pairbus.emulator.admin.api import MANAGEMENT_OPERATION
from pairbus.errors import ConfigurationError
from pairbus.pairing.ping import make_ping
from pairbus.pairing.sdk import encode
from pairbus.servicebus.limits import BILLING_UNIT
from pairbus.usage.operations import Amount, NamespaceRole, OperationKind, Part, units

EMULATOR = Path(__file__).parents[3] / "src" / "pairbus" / "emulator" / "connections"
KB = 1024

sizes = st.integers(0, 2_000_000)
some_lots = st.lists(st.builds(MessageGroup, st.integers(0, 10_000), sizes), max_size=4).map(tuple)
some_counts = st.builds(
    TrafficCounts,
    direct=some_lots,
    stored=some_lots,
    taken=some_lots,
    settled=st.integers(0, 10_000),
    homed=some_lots,
    delivered=some_lots,
    completed=st.integers(0, 10_000),
    pings=st.integers(0, 10_000),
    polls=st.integers(0, 10_000),
    others=st.dictionaries(
        st.builds(
            CostKey,
            st.sampled_from(Part),
            st.sampled_from(NamespaceRole),
            st.sampled_from(OperationKind),
        ),
        some_lots,
        max_size=3,
    ),
)


@pytest.mark.rule("C1")
@pytest.mark.parametrize(
    ("size", "billed"),
    [
        (0, 1),
        (1, 1),
        (64 * KB, 1),
        (64 * KB + 1, 2),
        (128 * KB, 2),
        (128 * KB + 1, 3),
        (256 * KB, 4),
    ],
)
def test_units_are_64_kb_and_at_least_one(size: int, billed: int) -> None:
    assert units(size) == billed


def test_kinds_are_those_of_the_meter_and_two_more() -> None:
    assert {str(kind) for kind in OperationKind} == _kinds_of_the_meter() | {"ping", "poll"}
    assert OperationKind.PING.metered is OperationKind.SEND
    assert OperationKind.POLL.metered is OperationKind.RECEIVE
    assert all(
        kind.metered is kind
        for kind in OperationKind
        if kind not in (OperationKind.PING, OperationKind.POLL)
    )


def _kinds_of_the_meter() -> set[str]:
    """The kinds that the emulator's code gives to its meter."""
    found = {MANAGEMENT_OPERATION}
    for file in ("links.py", "management.py"):
        for node in ast.walk(ast.parse((EMULATOR / file).read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                place = {"add": 1, "add_without_message": 1, "count": 0}.get(node.func.attr)
                if place is not None and len(node.args) > place:
                    kind = node.args[place]
                    if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
                        found.add(kind.value)
    return found


@pytest.mark.rule("C2")
def test_a_message_through_the_backlog_is_four_operations_and_six_with_completes() -> None:
    done = tally(TrafficCounts.through_backlog((MessageGroup(1, 1024),)))

    assert done.without_completes == Amount(operations=4, units=4, bytes=4 * 1024)
    assert done.total == Amount(operations=6, units=6, bytes=4 * 1024)
    assert {
        (slot.part, slot.place, slot.kind): amount.operations for slot, amount in done.slots.items()
    } == {
        (Part.BACKLOG, NamespaceRole.SECONDARY, OperationKind.SEND): 1,
        (Part.DRAIN, NamespaceRole.SECONDARY, OperationKind.RECEIVE): 1,
        (Part.DRAIN, NamespaceRole.SECONDARY, OperationKind.COMPLETE): 1,
        (Part.DRAIN, NamespaceRole.PRIMARY, OperationKind.SEND): 1,
        (Part.DELIVERY, NamespaceRole.PRIMARY, OperationKind.RECEIVE): 1,
        (Part.DELIVERY, NamespaceRole.PRIMARY, OperationKind.COMPLETE): 1,
    }


@pytest.mark.rule("C1", "C2")
def test_a_large_message_is_charged_by_the_unit_and_its_completes_are_not() -> None:
    done = tally(TrafficCounts.through_backlog((MessageGroup(10, 100 * KB),)))

    assert done.without_completes.operations == 40
    assert done.without_completes.units == 80
    assert done.total.operations == 60
    assert done.total.units == 100
    assert done.total.bytes == 40 * 100 * KB


def test_aliases_can_make_a_second_unit_in_the_backlog_alone() -> None:
    done = tally(TrafficCounts.through_backlog((MessageGroup(1, 64 * KB),), alias_bytes=40))

    assert done.by_kind(NamespaceRole.SECONDARY)[OperationKind.SEND] == Amount(1, 2, 64 * KB + 40)
    assert done.by_kind(NamespaceRole.SECONDARY)[OperationKind.RECEIVE] == Amount(
        1, 2, 64 * KB + 40
    )
    assert done.by_kind(NamespaceRole.PRIMARY)[OperationKind.SEND] == Amount(1, 1, 64 * KB)


@pytest.mark.rule("C1")
def test_pings_and_empty_polls_are_one_each_and_are_metered_as_sends_and_receives() -> None:
    done = tally(TrafficCounts(pings=3, polls=40, direct=(MessageGroup(2, 100),)))

    assert done.by_kind() == {
        OperationKind.SEND: Amount(2, 2, 200),
        OperationKind.PING: Amount(3, 3, 3 * PING_SIZE),
        OperationKind.POLL: Amount(40, 40, 0),
    }
    assert done.by_kind(metered=True) == {
        OperationKind.SEND: Amount(5, 5, 200 + 3 * PING_SIZE),
        OperationKind.RECEIVE: Amount(40, 40, 0),
    }


def test_a_ping_has_the_size_that_is_reckoned_with() -> None:
    assert len(encode(make_ping())) == PING_SIZE


def test_lots_gather_messages_of_one_size() -> None:
    assert lots([5, 7, 5]) == (MessageGroup(2, 5), MessageGroup(1, 7))


def test_other_operations_are_counted_where_they_belong() -> None:
    peek = CostKey(Part.DRAIN, NamespaceRole.SECONDARY, OperationKind.PEEK)
    done = tally(TrafficCounts(others={peek: (MessageGroup(3, 70_000), MessageGroup(2, 0))}))

    assert done.slots == {peek: Amount(5, 8, 210_000)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pings": -1}, "pings is a whole number, 0 or more, not -1"),
        ({"polls": 1.5}, "polls is a whole number, 0 or more, not 1.5"),
        ({"settled": True}, "settled is a whole number, 0 or more, not True"),
        ({"completed": -2}, "completed is a whole number, 0 or more, not -2"),
        ({"stored": (MessageGroup(-1, 5),)}, "messages of stored is a whole number"),
        ({"delivered": (MessageGroup(1, -5),)}, "the size of delivered is a whole number"),
        (
            {
                "others": {
                    CostKey(Part.DRAIN, NamespaceRole.SECONDARY, OperationKind.PEEK): (
                        MessageGroup(-1, 0),
                    )
                }
            },
            "messages of drain peek is a whole number",
        ),
    ],
)
def test_a_count_that_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        TrafficCounts(**given)


@given(some_counts)
def test_parts_and_kinds_add_up_to_the_whole(counts: TrafficCounts) -> None:
    done = tally(counts)

    assert sum(done.by_part().values(), Amount()) == done.total
    assert sum(done.by_kind().values(), Amount()) == done.total
    assert sum(done.by_kind(metered=True).values(), Amount()) == done.total
    by_place = [sum(done.by_kind(place).values(), Amount()) for place in NamespaceRole]
    assert sum(by_place, Amount()) == done.total


@given(some_counts)
def test_nothing_is_billed_less_than_once_nor_by_more_than_its_size(counts: TrafficCounts) -> None:
    for amount in tally(counts).slots.values():
        assert amount.operations <= amount.units
        assert amount.units <= amount.operations + amount.bytes // BILLING_UNIT


@given(st.lists(sizes, max_size=20))
def test_each_message_is_billed_by_itself_however_they_are_put_together(some: list[int]) -> None:
    together = tally(TrafficCounts(direct=lots(some))).total

    assert together == sum(
        (tally(TrafficCounts(direct=(MessageGroup(1, size),))).total for size in some), Amount()
    )
