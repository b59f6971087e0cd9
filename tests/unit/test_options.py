"""The options of a pairing, and their limits."""

from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from pairbus.errors import ConfigurationError, PairbusError
from pairbus.options import SendAvailabilityOptions

TICK = timedelta(microseconds=1)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)

BOUNDS = [
    ("failover_interval", timedelta(), HOUR),
    ("failover_on_busy", timedelta(), HOUR),
    ("ping_primary_interval", SECOND, 30 * MINUTE),
    ("failback_hold", timedelta(milliseconds=100), MINUTE),
    ("drain_timeout", SECOND, timedelta(days=7)),
    ("operation_timeout", SECOND, HOUR),
    ("backlog_cool_down", timedelta(), HOUR),
]
NAMES = [name for name, _, _ in BOUNDS]


def make_options(**options: Any) -> SendAvailabilityOptions:
    return SendAvailabilityOptions(**options)


@pytest.mark.rule("P2")
def test_defaults() -> None:
    options = make_options()

    assert options.secondary is None
    assert options.primary_name is None
    assert options.backlog_queue_count == 10
    assert options.failover_interval == MINUTE
    assert options.failover_on_busy is None
    assert options.ping_primary_interval == MINUTE
    assert options.enable_syphon is False
    assert options.failback == "immediate"
    assert options.failback_hold == 5 * SECOND
    assert options.operation_timeout == MINUTE
    assert options.create_backlog is True
    assert options.check_backlog_size is False


@pytest.mark.rule("P2")
@pytest.mark.parametrize(("name", "minimum", "maximum"), BOUNDS, ids=NAMES)
def test_duration_within_its_limits_is_accepted(
    name: str, minimum: timedelta, maximum: timedelta
) -> None:
    for value in (minimum, minimum + TICK, maximum - TICK, maximum):
        assert getattr(make_options(**{name: value}), name) == value


@pytest.mark.rule("P2")
@pytest.mark.parametrize(("name", "minimum", "maximum"), BOUNDS, ids=NAMES)
def test_duration_beyond_its_limits_is_refused(
    name: str, minimum: timedelta, maximum: timedelta
) -> None:
    for value in (minimum - TICK, maximum + TICK, -HOUR):
        with pytest.raises(ConfigurationError) as caught:
            make_options(**{name: value})
        text = str(caught.value)
        assert text == f"{name} must be between {minimum} and {maximum}, not {value}"


@pytest.mark.rule("P2")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [60, 0.5, "1 min", None])
def test_duration_that_is_not_a_timedelta_is_refused(name: str, value: Any) -> None:
    if (name, value) == ("failover_on_busy", None):
        assert make_options(failover_on_busy=None).failover_on_busy is None
        return
    with pytest.raises(ConfigurationError, match=rf"^{name} must be a timedelta, not {value!r}"):
        make_options(**{name: value})


@pytest.mark.rule("P2")
@pytest.mark.parametrize("count", [-1, 0])
def test_backlog_needs_at_least_one_queue(count: int) -> None:
    with pytest.raises(ConfigurationError, match=f"of at least 1, not {count}"):
        make_options(backlog_queue_count=count)


@pytest.mark.rule("P2")
@pytest.mark.parametrize("count", [1, 2, 1000])
def test_backlog_can_have_many_queues(count: int) -> None:
    assert make_options(backlog_queue_count=count).backlog_queue_count == count


@pytest.mark.rule("P2")
@pytest.mark.parametrize("jitter", [0, 0.0, 0.5, 1, 1.0])
def test_jitter_between_0_and_1_is_accepted(jitter: float) -> None:
    assert make_options(ping_jitter=jitter).ping_jitter == jitter


@pytest.mark.rule("P2")
@pytest.mark.parametrize("jitter", [-0.001, 1.001, float("nan"), float("inf")])
def test_jitter_beyond_its_limits_is_refused(jitter: float) -> None:
    with pytest.raises(ConfigurationError, match="ping_jitter must be between 0 and 1, not"):
        make_options(ping_jitter=jitter)


@pytest.mark.rule("P2")
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("backlog_queue_count", "3", "an integer of at least 1, not '3'"),
        ("backlog_queue_count", float("inf"), "an integer of at least 1, not inf"),
        ("ping_jitter", "0.1", "between 0 and 1, not '0.1'"),
        ("classify", 3, "a function, not 3"),
        ("on_event", "print", "a function, not 'print'"),
        ("ledger", 3, "the path of a folder, not 3"),
    ],
)
def test_value_of_a_wrong_type_is_refused(name: str, value: Any, expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make_options(**{name: value})

    assert str(caught.value) == f"{name} must be {expected}"


@pytest.mark.parametrize("failback", ["immediate", "after-drain"])
def test_valid_failback_is_accepted(failback: Any) -> None:
    assert make_options(failback=failback).failback == failback


@pytest.mark.parametrize("failback", ["", "later", "Immediate", "after_drain", None])
def test_unknown_failback_is_refused(failback: Any) -> None:
    with pytest.raises(ConfigurationError, match="one of immediate, after-drain, not") as caught:
        make_options(failback=failback)
    assert repr(failback) in str(caught.value)


def test_invalid_option_raises_a_value_error_of_pairbus() -> None:
    with pytest.raises(ValueError, match="backlog_queue_count") as caught:
        make_options(backlog_queue_count=0)
    assert isinstance(caught.value, PairbusError)


def test_options_are_frozen() -> None:
    options = make_options()

    with pytest.raises(FrozenInstanceError):
        options.backlog_queue_count = 3  # type: ignore[misc]
    assert not hasattr(options, "__dict__")


def test_options_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        SendAvailabilityOptions("Endpoint=sb://other/")  # type: ignore[misc]


def test_options_are_compared_by_value() -> None:
    assert make_options(backlog_queue_count=3) == make_options(backlog_queue_count=3)
    assert make_options(backlog_queue_count=3) != make_options(backlog_queue_count=4)


def test_repr_shows_no_secrets() -> None:
    secret = "Endpoint=sb://two/;SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0"
    options = make_options(secondary=secret, primary_name="one")

    assert "c2VjcmV0" not in repr(options)
    assert "secondary" not in repr(options)
    assert "primary_name='one'" in repr(options)
