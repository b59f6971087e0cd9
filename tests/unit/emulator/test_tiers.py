"""The limits of each tier, and the throttle."""

from dataclasses import replace
from typing import Any

import pytest

from pairbus.emulator.entities.descriptions import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    stored_description,
    updated_description,
)
from pairbus.emulator.tiers import (
    PREMIUM,
    STANDARD,
    UNLIMITED,
    NamespaceTier,
    Throttle,
    TokenBucket,
    tier_of,
)
from pairbus.errors import Busy, ConfigurationError

KB, MB = 1024, 1024 * 1024


@pytest.mark.rule("N1")
def test_bucket_grants_its_tokens_at_the_start_of_each_second() -> None:
    bucket = TokenBucket(10)
    assert bucket.available(5_500) == 10
    bucket.take(4)
    assert bucket.available(5_999) == 6
    assert bucket.available(6_000) == 10
    assert bucket.available(9_000) == 10


@pytest.mark.rule("N1")
def test_tokens_that_were_taken_too_many_are_missing_later() -> None:
    bucket = TokenBucket(10)
    assert bucket.available(0) == 10
    bucket.take(35)
    assert bucket.wait_s == 3
    assert [bucket.available(second * 1000) for second in (0, 1, 2, 3, 4)] == [-25, -15, -5, 5, 10]


@pytest.mark.rule("N1")
@pytest.mark.parametrize(("taken", "wait_s"), [(9, 0), (10, 1), (19, 1), (20, 2)])
def test_wait_ends_with_the_first_second_that_has_a_token(taken: int, wait_s: int) -> None:
    bucket = TokenBucket(10)
    bucket.available(0)
    bucket.take(taken)
    assert bucket.wait_s == wait_s
    assert bucket.available(wait_s * 1000) > 0


@pytest.mark.rule("N1")
def test_clock_that_is_set_back_grants_nothing() -> None:
    bucket = TokenBucket(10)
    bucket.available(60_000)
    bucket.take(12)
    assert bucket.available(1_000) == -2
    assert bucket.available(2_000) == 8


def throttle(tier: NamespaceTier, seconds: list[float]) -> Throttle:
    return Throttle("contoso", tier, lambda: int(seconds[0] * 1000))


@pytest.mark.rule("N1")
@pytest.mark.parametrize(
    ("kind", "operations"),
    [("send", 20), ("schedule", 20), ("receive", 20), ("peek", 20), ("management", 2)],
)
def test_standard_namespace_admits_operations_until_its_credits_are_used(
    kind: str, operations: int
) -> None:
    now = [0.0]
    counted = throttle(replace(STANDARD, credits_per_second=20), now)
    for _ in range(operations):
        counted.admit(kind)
        counted.count(kind, 100 * KB)
    for throttled in ("send", "schedule", "receive", "peek", "management"):
        with pytest.raises(Busy):
            counted.admit(throttled)
    assert counted.max_messages("receive", 500) == 0
    for free in ("complete", "renew", "abandon"):
        counted.admit(free)
        counted.count(free, 0)
    now[0] = 1.0
    counted.admit(kind)
    assert counted.max_messages("receive", 500) == 20


@pytest.mark.rule("N1")
def test_error_of_a_throttled_operation_names_code_and_wait() -> None:
    counted = throttle(STANDARD, [0.0])
    counted.admit("send")
    for _ in range(1000):
        counted.count("send", 100)
    with pytest.raises(Busy) as raised:
        counted.admit("send")
    assert raised.value.condition == "com.microsoft:server-busy"
    assert raised.value.description.startswith(
        "The request was terminated because the namespace contoso is being throttled. "
        "Error code : 50009. Please wait 2 seconds and try again."
    )
    counted.count_filters(4000)
    with pytest.raises(Busy, match="wait 5 seconds"):
        counted.admit("send")


@pytest.mark.rule("N1")
def test_premium_namespace_is_throttled_by_bytes_in_each_direction() -> None:
    now = [0.0]
    counted = throttle(tier_of("premium", 2), now)
    for _ in range(8):
        counted.admit("send")
        counted.count("send", MB)
    counted.count_filters(1000)
    with pytest.raises(Busy):
        counted.admit("schedule")
    assert counted.max_messages("receive", 500) == 500
    counted.count("receive", 8 * MB)
    assert counted.max_messages("receive", 500) == 0
    counted.admit("management")
    now[0] = 1.0
    counted.admit("send")


def test_unlimited_namespace_has_no_throttle() -> None:
    assert not UNLIMITED.is_throttled


@pytest.mark.rule("N1")
@pytest.mark.parametrize(
    ("tier", "settings", "message_limit", "batch_limit"),
    [
        (STANDARD, {}, 256 * KB, 256 * KB),
        (PREMIUM, {}, MB, MB),
        (PREMIUM, {"max_message_size_in_kilobytes": 102_400}, 100 * MB, MB),
        (PREMIUM, {"max_message_size_in_kilobytes": 8}, 8 * KB, 8 * KB),
        (UNLIMITED, {}, 256 * KB, 256 * KB),
        (UNLIMITED, {"max_message_size_in_kilobytes": 102_400}, 100 * MB, 100 * MB),
    ],
)
def test_tier_limits_messages_and_batches(
    tier: NamespaceTier, settings: dict[str, Any], message_limit: int, batch_limit: int
) -> None:
    description = tier.complete(QueueDescription(name="q", **settings))
    assert tier.message_limit(description) == message_limit
    assert tier.batch_limit(description) == batch_limit


@pytest.mark.rule("N1")
def test_standard_queue_cannot_have_large_messages() -> None:
    large = QueueDescription(name="q", max_message_size_in_kilobytes=1024)
    with pytest.raises(ConfigurationError, match="In the tier standard the maximum is 256"):
        STANDARD.complete(large)
    assert STANDARD.message_limit(large) == 256 * KB  # of a folder that another tier has served


@pytest.mark.rule("N1")
def test_update_of_a_queue_with_a_name_of_an_older_version_is_allowed() -> None:
    """Names that end with a hyphen were allowed once."""
    with pytest.raises(ConfigurationError):
        QueueDescription(name="old-")
    old = stored_description(QueueDescription, {"name": "old-"})
    updated = PREMIUM.complete(updated_description(old, {"max_delivery_count": 3}))
    assert updated == stored_description(
        QueueDescription,
        {"name": "old-", "max_delivery_count": 3, "max_message_size_in_kilobytes": 1024},
    )


def test_subscription_has_no_limit_of_its_own() -> None:
    description: EntityDescription = SubscriptionDescription(topic="t", name="s")
    assert PREMIUM.complete(description) is description


def test_tier_is_found_by_its_name() -> None:
    assert tier_of("Standard") is STANDARD
    assert tier_of(PREMIUM) is PREMIUM
    assert tier_of("premium", 3).bytes_per_second == 12 * MB


@pytest.mark.parametrize(
    ("name", "units", "error"),
    [
        ("basic", 1, "'basic' is not a tier. The tiers are standard, premium, unlimited."),
        ("standard", 2, "not 2 for standard"),
        ("premium", 0, "not 0 for premium"),
    ],
)
def test_unknown_tier_or_units_are_an_error(name: str, units: int, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        tier_of(name, units)
