"""Events are plain data."""

import dataclasses
from datetime import UTC, datetime

import pytest

from pairbus import events
from pairbus.events import (
    BacklogQueueMismatch,
    BacklogQueuePulled,
    BacklogQueueRestored,
    DrainStalled,
    Event,
    PathStatus,
    Pinged,
    Probed,
    SecondaryRestored,
    SecondaryUnavailable,
    StateChanged,
    SyphonStarted,
    SyphonStopped,
    Throttled,
)

WHEN = datetime(2030, 1, 2, tzinfo=UTC)
CAUSE = OSError("down")
EVENTS = [
    StateChanged(
        when=WHEN,
        path="orders",
        from_state=PathStatus.HEALTHY,
        to_state=PathStatus.SUSPECT,
        cause=CAUSE,
    ),
    Pinged(when=WHEN, path="orders"),
    Probed(when=WHEN, path="orders", error=CAUSE),
    Throttled(when=WHEN, path="orders", namespace="one", messages=3, error=CAUSE),
    BacklogQueueMismatch(
        when=WHEN,
        queue="one/x-servicebus-transfer/0",
        setting="LockDuration",
        value="PT10S",
        expected="PT1M",
        consequence="messages are delivered more than once",
    ),
    BacklogQueuePulled(when=WHEN, queue="one/x-servicebus-transfer/0", cause=CAUSE),
    BacklogQueueRestored(when=WHEN, queue="one/x-servicebus-transfer/0"),
    SecondaryUnavailable(when=WHEN, cause=CAUSE),
    SecondaryRestored(when=WHEN),
    DrainStalled(when=WHEN, path="orders"),
    SyphonStarted(when=WHEN),
    SyphonStopped(when=WHEN, error=CAUSE),
]
each_event = pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)


@pytest.mark.rule("S13")
@each_event
def test_event_is_frozen_and_slotted(event: Event) -> None:
    for field in dataclasses.fields(event):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, field.name, None)
    assert not hasattr(event, "__dict__")


@pytest.mark.rule("S13")
@each_event
def test_event_has_a_time(event: Event) -> None:
    assert isinstance(event, Event)
    assert event.when == WHEN


@each_event
def test_events_are_compared_by_value_and_hashable(event: Event) -> None:
    assert dataclasses.replace(event) == event
    assert dataclasses.replace(event, when=WHEN.replace(year=2031)) != event
    assert len({event, dataclasses.replace(event)}) == 1


@pytest.mark.rule("S13")
def test_state_change_has_path_states_and_cause() -> None:
    changed = EVENTS[0]

    assert isinstance(changed, StateChanged)
    assert changed.path == "orders"
    assert (changed.from_state, changed.to_state) == (PathStatus.HEALTHY, PathStatus.SUSPECT)
    assert changed.cause is CAUSE


def test_all_events_are_in_this_test() -> None:
    named = {
        value
        for value in vars(events).values()
        if isinstance(value, type) and Event in value.__bases__
    }

    assert {type(event) for event in EVENTS} == named


def test_states_have_their_documented_names() -> None:
    assert [state.value for state in PathStatus] == ["healthy", "suspect", "failover", "draining"]
