"""The choice of dead letters by reason, destination, time and number."""

import pytest

from pairbus.backlog import DeadLetterFilter
from pairbus.backlog.dead_letter_groups import DeadLetterGroups
from pairbus.backlog.message import BacklogMessage
from pairbus.errors import ConfigurationError


def letter(
    reason: str | None = "Broken", destination: str | None = "orders", time: int | None = 100
) -> BacklogMessage:
    return BacklogMessage(
        queue="q",
        payload=b"1234",
        destination=destination,
        enqueued_ms=time,
        dead_letter_reason=reason,
        dead_letter_description=f"{reason}!",
    )


@pytest.mark.rule("R2")
@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        (DeadLetterFilter(), True),
        (DeadLetterFilter(reasons=("Broken", "Other")), True),
        (DeadLetterFilter(reasons=("broken",)), False),
        (DeadLetterFilter(destinations=("orders",)), True),
        (DeadLetterFilter(destinations=("bills",)), False),
        (DeadLetterFilter(reasons=("Broken",), destinations=("bills",)), False),
        (DeadLetterFilter(since_ms=100), True),
        (DeadLetterFilter(since_ms=101), False),
        (DeadLetterFilter(until_ms=101), True),
        (DeadLetterFilter(until_ms=100), False),
    ],
)
def test_message_is_chosen_if_all_conditions_hold(choice: DeadLetterFilter, chosen: bool):
    assert choice.matches(letter()) is chosen


def test_choice_without_conditions_takes_all():
    assert DeadLetterFilter(count=3).takes_all
    assert not DeadLetterFilter(since_ms=0).takes_all
    assert not DeadLetterFilter(reasons=("",)).takes_all


def test_empty_reason_chooses_messages_without_a_reason():
    assert DeadLetterFilter(reasons=("",)).matches(letter(reason=None))


def test_message_without_a_time_is_not_in_a_time_range():
    assert not DeadLetterFilter(since_ms=0).matches(letter(time=None))
    assert DeadLetterFilter().matches(letter(time=None))


@pytest.mark.parametrize("fields", [{"count": 0}, {"since_ms": 5, "until_ms": 5}])
def test_impossible_choice_is_an_error(fields: dict[str, int]):
    with pytest.raises(ConfigurationError):
        DeadLetterFilter(**fields)


@pytest.mark.rule("R1")
def test_groups_have_counts_sizes_and_times_and_the_largest_is_first():
    groups = DeadLetterGroups()
    groups.add([letter("A", "x", 5), letter("B", "x", 7), letter("B", "x", 3), letter("B", None)])

    rows = [
        (group.reason, group.destination, group.messages, group.bytes, group.oldest_ms)
        for group in groups.largest_first()
    ]
    assert rows == [("B", "x", 2, 8, 3), ("A", "x", 1, 4, 5), ("B", None, 1, 4, 100)]
    assert groups.messages == 4
    assert groups.largest_first()[0].to_json(1003)["oldest_age_seconds"] == 1.0
