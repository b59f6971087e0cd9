"""The options of a pairing, and their bounds."""

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
    ("ping_primary_interval", SECOND, 30 * MINUTE),
    ("failback_hold", timedelta(milliseconds=100), MINUTE),
    ("drain_timeout", SECOND, timedelta(days=7)),
    ("operation_timeout", SECOND, HOUR),
    ("backlog_cool_down", timedelta(), HOUR),
]
NAMES = [name for name, _, _ in BOUNDS]


def made(**options: Any) -> SendAvailabilityOptions:
    return SendAvailabilityOptions(**options)


@pytest.mark.rule("P2")
def test_the_defaults_are_those_of_the_rules() -> None:
    options = made()

    assert options.secondary is None
    assert options.primary_name is None
    assert options.backlog_queue_count == 10
    assert options.failover_interval == MINUTE
    assert options.ping_primary_interval == MINUTE
    assert options.enable_syphon is False
    assert options.failback == "immediate"
    assert options.failback_hold == 5 * SECOND
    assert options.operation_timeout == MINUTE
    assert options.create_backlog is True
    assert options.check_backlog_size is False


@pytest.mark.rule("P2")
@pytest.mark.parametrize(("name", "least", "most"), BOUNDS, ids=NAMES)
def test_a_duration_may_be_at_its_bounds_and_between(
    name: str, least: timedelta, most: timedelta
) -> None:
    for value in (least, least + TICK, most - TICK, most):
        assert getattr(made(**{name: value}), name) == value


@pytest.mark.rule("P2")
@pytest.mark.parametrize(("name", "least", "most"), BOUNDS, ids=NAMES)
def test_a_duration_beyond_its_bounds_is_refused_and_the_error_says_which_and_what(
    name: str, least: timedelta, most: timedelta
) -> None:
    for value in (least - TICK, most + TICK, -HOUR):
        with pytest.raises(ConfigurationError) as caught:
            made(**{name: value})
        text = str(caught.value)
        assert text == f"{name} is {least} to {most}, not {value}"


@pytest.mark.rule("P2")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [60, 0.5, "1 min", None])
def test_a_duration_is_a_timedelta_and_no_bare_number(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{name} is a timedelta, not {value!r}"):
        made(**{name: value})


@pytest.mark.rule("P2")
@pytest.mark.parametrize("count", [-1, 0])
def test_there_is_at_least_one_backlog_queue(count: int) -> None:
    with pytest.raises(ConfigurationError, match=f"backlog_queue_count is at least 1, not {count}"):
        made(backlog_queue_count=count)


@pytest.mark.rule("P2")
@pytest.mark.parametrize("count", [1, 2, 1000])
def test_there_may_be_one_backlog_queue_or_many(count: int) -> None:
    assert made(backlog_queue_count=count).backlog_queue_count == count


@pytest.mark.rule("P2")
@pytest.mark.parametrize("jitter", [0, 0.0, 0.5, 1, 1.0])
def test_the_jitter_is_a_part_of_the_interval(jitter: float) -> None:
    assert made(ping_jitter=jitter).ping_jitter == jitter


@pytest.mark.rule("P2")
@pytest.mark.parametrize("jitter", [-0.001, 1.001, float("nan"), float("inf")])
def test_no_other_jitter_is_taken(jitter: float) -> None:
    with pytest.raises(ConfigurationError, match="ping_jitter is 0 to 1, not"):
        made(ping_jitter=jitter)


@pytest.mark.parametrize("failback", ["immediate", "after-drain"])
def test_there_are_two_ways_to_fail_back(failback: Any) -> None:
    assert made(failback=failback).failback == failback


@pytest.mark.parametrize("failback", ["", "later", "Immediate", "after_drain", None])
def test_another_way_to_fail_back_is_refused(failback: Any) -> None:
    with pytest.raises(ConfigurationError, match="one of immediate, after-drain, not") as caught:
        made(failback=failback)
    assert repr(failback) in str(caught.value)


def test_a_wrong_option_is_a_value_error_and_one_of_ours() -> None:
    with pytest.raises(ValueError, match="backlog_queue_count") as caught:
        made(backlog_queue_count=0)
    assert isinstance(caught.value, PairbusError)


def test_options_do_not_change() -> None:
    options = made()

    with pytest.raises(FrozenInstanceError):
        options.backlog_queue_count = 3  # type: ignore[misc]
    assert not hasattr(options, "__dict__")


def test_options_are_given_by_name() -> None:
    with pytest.raises(TypeError):
        SendAvailabilityOptions("Endpoint=sb://other/")  # type: ignore[misc]


def test_equal_options_are_equal() -> None:
    assert made(backlog_queue_count=3) == made(backlog_queue_count=3)
    assert made(backlog_queue_count=3) != made(backlog_queue_count=4)


def test_no_secret_is_shown() -> None:
    secret = "Endpoint=sb://two/;SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0"
    options = made(secondary=secret, secondary_administration="also c2VjcmV0", primary_name="one")

    assert "c2VjcmV0" not in repr(options)
    assert "secondary" not in repr(options)
    assert "primary_name='one'" in repr(options)
