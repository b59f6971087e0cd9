"""Settings of entities: defaults, limits, updates and parsing."""

from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.entities.descriptions import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    parse_setting,
    updated_description,
)
from pairbus.errors import ConfigurationError
from pairbus.servicebus.atom import property_name
from pairbus.servicebus.entity_status import EntityStatus
from pairbus.servicebus.time_spans import MAX_TIME_SPAN

KEY = "c2VjcmV0LWtleS10aGF0LWlzLW5vdC1zaG93bg=="


def make(kind: type[EntityDescription], **settings: Any) -> EntityDescription:
    names = {"topic": "t"} if kind is SubscriptionDescription else {}
    return kind(name="n", **names, **settings)


def test_new_queue_has_the_defaults_of_the_service():
    queue = QueueDescription(name="q")

    assert queue.lock_duration == timedelta(minutes=1)
    assert queue.max_size_in_megabytes == 1024
    assert queue.default_message_time_to_live == queue.auto_delete_on_idle == MAX_TIME_SPAN
    assert queue.duplicate_detection_history_time_window == timedelta(minutes=10)
    assert queue.max_delivery_count == 10
    assert queue.enable_batched_operations
    assert queue.status is EntityStatus.ACTIVE
    assert not queue.requires_session
    assert not queue.dead_lettering_on_message_expiration
    assert queue.max_message_size_in_kilobytes == 256


def test_new_subscription_dead_letters_on_filter_errors():
    subscription = SubscriptionDescription(topic="t", name="s")

    assert subscription.dead_lettering_on_filter_evaluation_exceptions
    assert subscription.path == "t/Subscriptions/s"


def test_settings_of_a_backlog_queue_are_valid():
    queue = QueueDescription(
        name="primary/x-servicebus-transfer/0",
        max_size_in_megabytes=5120,
        max_delivery_count=2147483647,
        default_message_time_to_live=MAX_TIME_SPAN,
        auto_delete_on_idle=MAX_TIME_SPAN,
        lock_duration=timedelta(minutes=1),
        dead_lettering_on_message_expiration=True,
        enable_batched_operations=True,
    )

    assert queue.path == "primary/x-servicebus-transfer/0"


@pytest.mark.parametrize(
    ("kind", "name", "value", "message"),
    [
        (
            QueueDescription,
            "lock_duration",
            timedelta(days=25),
            "is P25D. It must be from PT0.001S to PT5M",
        ),
        (QueueDescription, "lock_duration", timedelta(0), "is PT0S"),
        (SubscriptionDescription, "lock_duration", timedelta(minutes=5, microseconds=1), "PT5M"),
        (QueueDescription, "max_delivery_count", 0, "is 0. It must be from 1 to 2147483647"),
        (SubscriptionDescription, "max_delivery_count", 2**31, "2147483647"),
        (QueueDescription, "max_size_in_megabytes", 0, "1 to 81920"),
        (TopicDescription, "max_size_in_megabytes", 81921, "1 to 81920"),
        (QueueDescription, "max_message_size_in_kilobytes", 102401, "1 to 102400"),
        (QueueDescription, "default_message_time_to_live", timedelta(0), "PT1S"),
        (TopicDescription, "default_message_time_to_live", timedelta.max, "4775807S"),
        (QueueDescription, "auto_delete_on_idle", timedelta(minutes=4), "PT5M"),
        (TopicDescription, "duplicate_detection_history_time_window", timedelta(days=25), "P7D"),
        (QueueDescription, "duplicate_detection_history_time_window", timedelta(1 / 9e4), "PT20S"),
        (TopicDescription, "user_metadata", "x" * 1025, "1025 characters. The maximum is 1024"),
    ],
)
def test_setting_outside_its_limits_is_refused(
    kind: type[EntityDescription], name: str, value: object, message: str
):
    with pytest.raises(ConfigurationError, match=message) as raised:
        make(kind, **{name: value})

    assert property_name(name) in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (QueueDescription, "lock_duration", timedelta(minutes=5)),
        (QueueDescription, "lock_duration", timedelta(milliseconds=50)),
        (QueueDescription, "auto_delete_on_idle", timedelta(minutes=5)),
        (TopicDescription, "duplicate_detection_history_time_window", timedelta(days=7)),
        (TopicDescription, "duplicate_detection_history_time_window", timedelta(seconds=20)),
        (SubscriptionDescription, "default_message_time_to_live", timedelta(seconds=1)),
        (QueueDescription, "user_metadata", "x" * 1024),
    ],
)
def test_setting_at_its_limit_is_accepted(kind: type[EntityDescription], name: str, value: object):
    assert getattr(make(kind, **{name: value}), name) == value


@pytest.mark.parametrize("name", ["forward_to", "forward_dead_lettered_messages_to"])
def test_entity_with_sessions_can_forward(name: str):
    QueueDescription(name="q", requires_session=True, **{name: "other"})
    SubscriptionDescription(topic="t", name="s", requires_session=True, **{name: "other"})


@pytest.mark.parametrize("target", ["N", "sb://localhost:5671/n", "/n/"])
@pytest.mark.parametrize("name", ["forward_to", "forward_dead_lettered_messages_to"])
def test_queue_can_forward_to_itself(name: str, target: str):
    assert getattr(QueueDescription(name="n", **{name: target}), name) == target


def test_express_and_duplicate_detection_exclude_each_other():
    with pytest.raises(ConfigurationError, match="both EnableExpress and RequiresDuplicate"):
        QueueDescription(name="q", enable_express=True, requires_duplicate_detection=True)


def test_authorization_rules_are_limited_and_have_unique_names():
    rules = [SharedAccessRule(name=f"r{number}", primary_key=KEY) for number in range(13)]

    with pytest.raises(ConfigurationError, match="13 authorization rules"):
        TopicDescription(name="t", authorization_rules=tuple(rules))
    with pytest.raises(ConfigurationError, match="same name"):
        TopicDescription(name="t", authorization_rules=(rules[0], rules[0]))


def test_repr_contains_no_keys():
    rule = SharedAccessRule(
        name="send", primary_key=KEY, secondary_key=KEY[::-1], rights=frozenset({Right.SEND})
    )

    text = repr(QueueDescription(name="q", authorization_rules=(rule,)))

    assert "send" in text
    assert KEY not in text
    assert KEY[::-1] not in text


def test_description_is_immutable():
    with pytest.raises(FrozenInstanceError):
        QueueDescription(name="q").name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("old", "change"),
    [
        (QueueDescription(name="q"), {"requires_session": True}),
        (QueueDescription(name="q"), {"requires_duplicate_detection": True}),
        (QueueDescription(name="q", enable_partitioning=True), {"enable_partitioning": False}),
        (TopicDescription(name="t"), {"requires_duplicate_detection": True}),
        (SubscriptionDescription(topic="t", name="s"), {"requires_session": True}),
    ],
)
def test_update_cannot_change_immutable_settings(old: EntityDescription, change: dict[str, bool]):
    with pytest.raises(ConfigurationError, match="cannot be changed") as raised:
        updated_description(old, change)

    assert property_name(next(iter(change))) in str(raised.value)


def test_update_resets_other_settings_and_keeps_immutable_ones():
    old = QueueDescription(name="q", requires_session=True, user_metadata="x", max_delivery_count=3)

    new = updated_description(old, {"max_delivery_count": 4})

    assert new == QueueDescription(name="q", requires_session=True, max_delivery_count=4)


def test_update_is_validated():
    with pytest.raises(ConfigurationError, match="LockDuration"):
        updated_description(QueueDescription(name="q"), {"lock_duration": timedelta(days=25)})


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("PT1M", timedelta, timedelta(minutes=1)),
        ("True", bool, True),
        ("false", bool | None, False),
        (" 12 ", int, 12),
        ("senddisabled", EntityStatus, EntityStatus.SEND_DISABLED),
        ("", str | None, None),
        ("a b", str | None, "a b"),
    ],
)
def test_setting_is_parsed_from_text(text: str, kind: Any, value: object):
    assert parse_setting(text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *(("1", bool), ("yes", bool), ("1.5", int), ("", int), ("--1", int), ("9" * 5000, int)),
        *(("\u0661", int), ("Renaming", EntityStatus), ("", timedelta)),
    ],
)
def test_invalid_text_of_a_setting_is_refused(text: str, kind: Any):
    with pytest.raises(ConfigurationError):
        parse_setting(text, kind)


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        (EntityStatus.ACTIVE, True, True),
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
def test_status_determines_whether_sending_and_receiving_are_allowed(
    status: EntityStatus, sends: bool, receives: bool
):
    assert (status.allows_sending, status.allows_receiving) == (sends, receives)
