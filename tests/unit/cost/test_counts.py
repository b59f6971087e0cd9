"""Counts, and the exact usage that they make."""

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.cost.counts import (
    PING_SIZE,
    CostKey,
    MessageGroup,
    TrafficCounts,
    calculate_usage,
    group_by_size,
)
from pairbus.emulator.admin.api import MANAGEMENT_OPERATION
from pairbus.errors import ConfigurationError
from pairbus.pairing.ping import make_ping
from pairbus.pairing.sdk import encode
from pairbus.servicebus.limits import BILLING_UNIT
from pairbus.usage.operations import NamespaceRole, OperationKind, Purpose, Usage

CONNECTIONS = Path(__file__).parents[3] / "src" / "pairbus" / "emulator" / "connections"
METER_METHODS = {
    "add_messages": 1,
    "add": 1,
    "add_without_message": 1,
    "count": 0,
    "count_without_message": 0,
}
"""Methods that count operations, with the position of the argument `kind`."""
KB = 1024
PEEK = CostKey(Purpose.DRAIN, NamespaceRole.SECONDARY, OperationKind.PEEK)

message_sizes = st.integers(0, 2_000_000)
message_groups = st.lists(
    st.builds(MessageGroup, st.integers(0, 10_000), message_sizes), max_size=4
).map(tuple)
traffic_counts = st.builds(
    TrafficCounts,
    direct_sends=message_groups,
    backlog_sends=message_groups,
    backlog_receives=message_groups,
    backlog_completes=st.integers(0, 10_000),
    drain_sends=message_groups,
    primary_receives=message_groups,
    primary_completes=st.integers(0, 10_000),
    pings=st.integers(0, 10_000),
    empty_polls=st.integers(0, 10_000),
    others=st.dictionaries(
        st.builds(
            CostKey,
            st.sampled_from(Purpose),
            st.sampled_from(NamespaceRole),
            st.sampled_from(OperationKind),
        ),
        message_groups,
        max_size=3,
    ),
)


def test_operation_kinds_are_those_of_the_emulator_meter_with_ping_and_poll() -> None:
    assert {str(kind) for kind in OperationKind} == _kinds_of_the_meter() | {"ping", "poll"}
    assert OperationKind.PING.metered is OperationKind.SEND
    assert OperationKind.POLL.metered is OperationKind.RECEIVE
    assert all(
        kind.metered is kind
        for kind in OperationKind
        if kind not in (OperationKind.PING, OperationKind.POLL)
    )


def _kinds_of_the_meter() -> set[str]:
    """Return the kinds that the emulator's code passes to its meter."""
    kinds = {MANAGEMENT_OPERATION}
    for path in CONNECTIONS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                position = METER_METHODS.get(node.func.attr)
                if position is not None and len(node.args) > position:
                    kind = node.args[position]
                    if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
                        kinds.add(kind.value)
    return kinds


@pytest.mark.rule("C2")
def test_message_through_the_backlog_is_four_operations_and_six_with_completes() -> None:
    usage = calculate_usage(TrafficCounts.through_backlog((MessageGroup(1, 1024),)))

    assert usage.without_completes == Usage(operations=4, units=4, bytes=4 * 1024)
    assert usage.total == Usage(operations=6, units=6, bytes=4 * 1024)
    assert {tuple(key): amount.operations for key, amount in usage.by_key.items()} == {
        (Purpose.BACKLOG, NamespaceRole.SECONDARY, OperationKind.SEND): 1,
        (Purpose.DRAIN, NamespaceRole.SECONDARY, OperationKind.RECEIVE): 1,
        (Purpose.DRAIN, NamespaceRole.SECONDARY, OperationKind.COMPLETE): 1,
        (Purpose.DRAIN, NamespaceRole.PRIMARY, OperationKind.SEND): 1,
        (Purpose.DELIVERY, NamespaceRole.PRIMARY, OperationKind.RECEIVE): 1,
        (Purpose.DELIVERY, NamespaceRole.PRIMARY, OperationKind.COMPLETE): 1,
    }


@pytest.mark.rule("C1", "C2")
def test_large_message_is_billed_by_units_and_its_completes_are_not() -> None:
    usage = calculate_usage(TrafficCounts.through_backlog((MessageGroup(10, 100 * KB),)))

    assert usage.without_completes.operations == 40
    assert usage.without_completes.units == 80
    assert usage.total.operations == 60
    assert usage.total.units == 100
    assert usage.total.bytes == 40 * 100 * KB


def test_aliases_can_add_a_unit_in_the_backlog_only() -> None:
    counts = TrafficCounts.through_backlog((MessageGroup(1, 64 * KB),), alias_bytes=40)
    usage = calculate_usage(counts)
    primary, secondary = (usage.by_kind(role) for role in NamespaceRole)

    assert secondary[OperationKind.SEND] == Usage(1, 2, 64 * KB + 40)
    assert secondary[OperationKind.RECEIVE] == Usage(1, 2, 64 * KB + 40)
    assert primary[OperationKind.SEND] == Usage(1, 1, 64 * KB)


@pytest.mark.rule("C1")
def test_ping_and_empty_poll_are_one_unit_each_and_metered_as_send_and_receive() -> None:
    usage = calculate_usage(
        TrafficCounts(pings=3, empty_polls=40, direct_sends=(MessageGroup(2, 100),))
    )

    assert usage.by_kind() == {
        OperationKind.SEND: Usage(2, 2, 200),
        OperationKind.PING: Usage(3, 3, 3 * PING_SIZE),
        OperationKind.POLL: Usage(40, 40, 0),
    }
    assert usage.by_kind(metered=True) == {
        OperationKind.SEND: Usage(5, 5, 200 + 3 * PING_SIZE),
        OperationKind.RECEIVE: Usage(40, 40, 0),
    }


def test_ping_has_the_size_that_is_assumed() -> None:
    assert len(encode(make_ping())) == PING_SIZE


def test_messages_of_the_same_size_are_one_group() -> None:
    assert group_by_size([5, 7, 5]) == (MessageGroup(2, 5), MessageGroup(1, 7))


def test_other_operations_are_counted_under_their_key() -> None:
    usage = calculate_usage(
        TrafficCounts(others={PEEK: (MessageGroup(3, 70_000), MessageGroup(2, 0))})
    )

    assert usage.by_key == {PEEK: Usage(5, 8, 210_000)}


@pytest.mark.parametrize(
    ("counts", "error"),
    [
        ({"pings": -1}, "pings must be an integer of at least 0, not -1"),
        ({"empty_polls": 1.5}, "empty_polls must be an integer of at least 0, not 1.5"),
        ({"backlog_completes": True}, "backlog_completes must be an integer .* not True"),
        ({"primary_completes": -2}, "primary_completes must be an integer .* not -2"),
        (
            {"backlog_sends": (MessageGroup(-1, 5),)},
            "the number of messages in backlog_sends must be an integer",
        ),
        (
            {"primary_receives": (MessageGroup(1, -5),)},
            "the message size in primary_receives must be an integer",
        ),
        (
            {"others": {PEEK: (MessageGroup(-1, 0),)}},
            "the number of messages in drain peek must be an integer",
        ),
    ],
)
def test_invalid_count_is_rejected(counts: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        TrafficCounts(**counts)


@given(traffic_counts)
def test_purposes_kinds_and_namespaces_add_up_to_the_total(counts: TrafficCounts) -> None:
    usage = calculate_usage(counts)

    assert sum(usage.by_purpose().values(), Usage()) == usage.total
    assert sum(usage.by_kind().values(), Usage()) == usage.total
    assert sum(usage.by_kind(metered=True).values(), Usage()) == usage.total
    by_role = [sum(usage.by_kind(role).values(), Usage()) for role in NamespaceRole]
    assert sum(by_role, Usage()) == usage.total


@given(traffic_counts)
def test_units_are_at_least_the_operations_and_at_most_one_more_per_64_kb(
    counts: TrafficCounts,
) -> None:
    for usage in calculate_usage(counts).by_key.values():
        assert usage.operations <= usage.units
        assert usage.units <= usage.operations + usage.bytes // BILLING_UNIT


@given(st.lists(message_sizes, max_size=20))
def test_each_message_is_billed_separately_regardless_of_grouping(sizes: list[int]) -> None:
    grouped = calculate_usage(TrafficCounts(direct_sends=group_by_size(sizes))).total
    separate = [
        calculate_usage(TrafficCounts(direct_sends=(MessageGroup(1, size),))).total
        for size in sizes
    ]

    assert grouped == sum(separate, Usage())
