"""Settings of existing backlog queues, compared with those that pairing creates."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pairbus.pairing.backlog_queues import QUEUE_SETTINGS
from pairbus.pairing.backlog_settings import SettingMismatch, find_mismatches, group_mismatches
from pairbus.servicebus.atom import QueueProperties
from pairbus.servicebus.entity_status import EntityStatus
from pairbus.servicebus.time_spans import MAX_TIME_SPAN, MAX_TIME_SPAN_TEXT, parse_time_span

OURS = QueueProperties(
    path="one/x-servicebus-transfer/0",
    status=EntityStatus.ACTIVE,
    requires_session=False,
    requires_duplicate_detection=False,
    active_message_count=0,
    dead_letter_message_count=0,
    size_in_bytes=0,
    lock_duration=timedelta(minutes=1),
    max_size_in_megabytes=5120,
    default_message_time_to_live=MAX_TIME_SPAN,
    dead_lettering_on_message_expiration=True,
    max_delivery_count=2147483647,
    auto_delete_on_idle=MAX_TIME_SPAN,
)
DAY, TICK = timedelta(days=1), timedelta(microseconds=1)


def found(*, ordered: bool = False, **settings: Any) -> list[tuple[str, str, str]]:
    return [
        (mismatch.setting, mismatch.value, mismatch.expected)
        for mismatch in find_mismatches(replace(OURS, **settings), ordered=ordered)
    ]


@pytest.mark.rule("P4", "P5")
@pytest.mark.parametrize("ordered", [False, True])
def test_queue_that_pairing_created_has_no_mismatch(ordered: bool) -> None:
    created = {
        name: value for name, value in QUEUE_SETTINGS.items() if name != "enable_batched_operations"
    }

    assert found(ordered=ordered, **created) == []


@pytest.mark.rule("P5")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"lock_duration": timedelta(seconds=10)}, ("LockDuration", "PT10S", "PT1M")),
        ({"lock_duration": timedelta(minutes=1) - TICK}, ("LockDuration", "PT59.999999S", "PT1M")),
        ({"max_delivery_count": 10}, ("MaxDeliveryCount", "10", "2147483647")),
        ({"max_size_in_megabytes": 1024}, ("MaxSizeInMegabytes", "1024", "5120")),
        (
            {"default_message_time_to_live": 14 * DAY},
            ("DefaultMessageTimeToLive", "P14D", MAX_TIME_SPAN_TEXT),
        ),
        (
            {"auto_delete_on_idle": timedelta(minutes=5)},
            ("AutoDeleteOnIdle", "PT5M", MAX_TIME_SPAN_TEXT),
        ),
        ({"requires_session": True}, ("RequiresSession", "true", "false")),
        (
            {"requires_duplicate_detection": True},
            ("RequiresDuplicateDetection", "true", "false"),
        ),
        ({"forward_to": "other"}, ("ForwardTo", "other", "")),
        ({"status": "SendDisabled"}, ("Status", "SendDisabled", "Active")),
        ({"status": EntityStatus.RECEIVE_DISABLED}, ("Status", "ReceiveDisabled", "Active")),
    ],
)
def test_worse_setting_is_a_mismatch(
    settings: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    assert found(**settings) == [expected]


@pytest.mark.rule("P5")
@pytest.mark.parametrize(
    "settings",
    [
        {"lock_duration": timedelta(minutes=5)},
        {"max_size_in_megabytes": 81920},
        {"dead_lettering_on_message_expiration": False},  # messages do not expire
        {"default_message_time_to_live": parse_time_span("P10675199DT2H48M5.477S")},
        {"auto_delete_on_idle": parse_time_span("P10675199D")},
        {"enable_partitioning": True},
        {
            "lock_duration": None,
            "max_size_in_megabytes": None,
            "default_message_time_to_live": None,
            "max_delivery_count": None,
            "auto_delete_on_idle": None,
        },
    ],
)
def test_better_equal_or_unknown_setting_is_no_mismatch(settings: dict[str, Any]) -> None:
    assert found(**settings) == []


@pytest.mark.rule("P5")
def test_expired_messages_that_are_deleted_are_a_mismatch_of_their_own() -> None:
    settings = {
        "default_message_time_to_live": DAY,
        "dead_lettering_on_message_expiration": False,
    }

    assert [setting for setting, _, _ in found(**settings)] == [
        "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration",
    ]
    first, _ = find_mismatches(replace(OURS, **settings), ordered=False)
    assert "deleted" in first.consequence


@pytest.mark.rule("P5", "S12")
def test_partitioned_queue_is_a_mismatch_if_order_is_kept() -> None:
    assert found(ordered=True, enable_partitioning=True) == [
        ("EnablePartitioning", "true", "false")
    ]


@pytest.mark.rule("P5")
def test_consequence_of_required_sessions_is_that_sends_fail() -> None:
    (mismatch,) = find_mismatches(replace(OURS, requires_session=True), ordered=False)

    assert "every send to the queue fails" in mismatch.consequence
    assert mismatch.queue == OURS.path


def test_queues_with_the_same_value_are_one_group() -> None:
    def mismatch(queue: str, value: str) -> SettingMismatch:
        return SettingMismatch(
            queue=queue, setting="LockDuration", value=value, expected="PT1M", consequence="twice"
        )

    groups = group_mismatches([mismatch("a", "PT5S"), mismatch("b", "PT9S"), mismatch("c", "PT5S")])

    assert [(group.first.value, group.queues) for group in groups] == [
        ("PT5S", ("a", "c")),
        ("PT9S", ("b",)),
    ]
