"""The rate that follows from throttled operations."""

import pytest

from pairbus.errors import Busy
from pairbus.servicebus.limits import CREDITS_PER_SECOND_STANDARD
from pairbus.spark.rate_control import (
    DECREASE,
    DOUBLING_S,
    FIRST_DECREASE,
    MAX_WAIT_S,
    MIN_RATE,
    NO_LIMIT,
    RECOVERY_S,
    REPEATED_DECREASE,
    SOON_S,
    RateLimit,
    credit_limit,
    latest,
    requested_wait_s,
)

pytestmark = pytest.mark.rule("Y9")
NOW = 1_000_000.0
WAIT_S = 2.0


@pytest.fixture
def limited() -> RateLimit:
    """A limit of 400 messages a second, after throttling that was not the first."""
    return RateLimit(400.0, 400.0, NOW - 20, NOW - 18).throttled(NOW, WAIT_S, 500.0)


def rate(limit: RateLimit, now: float) -> float:
    value = limit.rate(now)
    assert value is not None
    return value


def test_without_throttling_there_is_no_limit_but_the_cap():
    assert NO_LIMIT.rate(NOW) is None
    assert NO_LIMIT.batch_rate(NOW) is None
    assert NO_LIMIT.rate(NOW, 50.0) == 50.0


def test_nothing_is_allowed_during_the_requested_wait(limited: RateLimit):
    assert limited.rate(NOW) == 0.0
    assert limited.rate(NOW + WAIT_S - 0.01) == 0.0
    assert limited.batch_rate(NOW) == pytest.approx(DECREASE * 400)


def test_rate_starts_lower_and_grows_by_the_same_amount_each_second(limited: RateLimit):
    resumed = NOW + WAIT_S
    assert rate(limited, resumed) == pytest.approx(DECREASE * 400)
    assert rate(limited, resumed + RECOVERY_S) == pytest.approx(400)
    steps = [
        rate(limited, resumed + second + 1) - rate(limited, resumed + second)
        for second in range(int(RECOVERY_S))
    ]
    assert steps == pytest.approx([steps[0]] * len(steps))


def test_rate_starts_much_lower_after_the_first_throttled_operation():
    first = NO_LIMIT.throttled(NOW, WAIT_S, 900.0)
    assert rate(first, NOW + WAIT_S) == pytest.approx(FIRST_DECREASE * 900)
    assert rate(first, NOW + WAIT_S + RECOVERY_S) == pytest.approx(900)


def test_answer_that_was_read_after_the_wait_changes_nothing(limited: RateLimit):
    later = NOW + WAIT_S + 1
    assert limited.throttled(later, WAIT_S, 500.0, sent_at=NOW - 0.1) == limited
    assert limited.throttled(later, WAIT_S, 500.0, sent_at=later - 0.1) != limited


def test_namespace_with_credits_starts_at_half_of_them():
    limit = credit_limit(NOW)
    assert rate(limit, NOW) == pytest.approx(CREDITS_PER_SECOND_STANDARD / 2)
    assert rate(limit, NOW + RECOVERY_S / 2) == pytest.approx(CREDITS_PER_SECOND_STANDARD)
    assert latest([NO_LIMIT, limit]) == limit
    throttled = limit.throttled(NOW + 5, WAIT_S, 550.0)
    assert throttled.limit == 550.0
    assert latest([limit, throttled]) == throttled


def test_old_limit_is_forgotten_slowly_at_first(limited: RateLimit):
    reached = NOW + WAIT_S + RECOVERY_S
    assert rate(limited, reached + 1) < 1.01 * 400
    assert rate(limited, reached + DOUBLING_S) == pytest.approx(800)
    assert limited.rate(reached + 60) is None


def test_cap_holds_whatever_the_namespaces_bear(limited: RateLimit):
    assert limited.rate(NOW + WAIT_S, 50.0) == 50.0
    assert limited.rate(NOW + WAIT_S, 1000.0) == pytest.approx(DECREASE * 400)
    assert limited.rate(NOW, 50.0) == 0.0
    assert limited.rate(NOW + 1000, 50.0) == 50.0


def test_throttling_at_the_limit_keeps_it(limited: RateLimit):
    now = NOW + WAIT_S + RECOVERY_S
    again = limited.throttled(now, WAIT_S, 1000.0)
    assert again.limit == pytest.approx(400)
    assert again.start == pytest.approx(DECREASE * 400)


def test_throttling_again_soon_lowers_the_rate_further(limited: RateLimit):
    now = NOW + WAIT_S + SOON_S / 2
    again = limited.throttled(now, WAIT_S, 1000.0)
    assert again.start == pytest.approx(REPEATED_DECREASE * rate(limited, now))
    assert again.limit == pytest.approx(rate(limited, now))


def test_limit_is_at_most_what_was_observed(limited: RateLimit):
    """Without it, a drain that does not use its rate would take the rate for a limit."""
    assert limited.throttled(NOW + 30, WAIT_S, 100.0).limit == 100.0


def test_drain_that_was_throttled_before_it_moved_anything_starts_as_in_the_standard_tier(
    limited: RateLimit,
):
    first = NO_LIMIT.throttled(NOW, WAIT_S, None)
    assert first.rate(NOW) == 0.0
    assert first.rate(NOW + WAIT_S) == FIRST_DECREASE * CREDITS_PER_SECOND_STANDARD
    now = NOW + WAIT_S + RECOVERY_S
    assert limited.throttled(now, WAIT_S, None).limit == pytest.approx(400)


def test_operations_in_flight_extend_the_wait_only(limited: RateLimit):
    later = limited.throttled(NOW + 1, WAIT_S, 10.0)
    assert (later.limit, later.start) == (limited.limit, limited.start)
    assert later.resume_at == NOW + 1 + WAIT_S


def test_rate_never_falls_to_zero(limited: RateLimit):
    limit, now = limited, NOW
    for _ in range(50):
        now = limit.resume_at
        limit = limit.throttled(now, WAIT_S, 0.0)
    assert rate(limit, limit.resume_at) == MIN_RATE


def test_long_wait_is_bounded():
    assert NO_LIMIT.throttled(NOW, 1e6, 10.0).resume_at == NOW + MAX_WAIT_S


def test_latest_limit_wins(limited: RateLimit):
    later = NO_LIMIT.throttled(NOW + 1, WAIT_S, 10.0)
    assert latest([NO_LIMIT, later, limited]) is later
    assert latest([]) is NO_LIMIT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n is being throttled. Error code : 50009. Please wait 2 seconds and try again.", 2.0),
        ("Please wait 10 Seconds.", 10.0),
        ("The server is busy.", None),
    ],
)
def test_wait_is_read_from_the_error(text: str, expected: float | None):
    assert requested_wait_s(Busy(text)) == expected
