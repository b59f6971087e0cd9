"""Skipped time has the same effects as time that passes."""

from datetime import timedelta

import pytest

from pairbus.emulator.entities.timeline import skip_time
from tests.unit.emulator.entities.harness import (
    EntityHarness,
    dead_letter_reasons,
    lock_all,
    message,
    peek,
)

pytestmark = pytest.mark.rule("N4")

SECOND_MS, MINUTE_MS, HOUR_MS = 1000, 60_000, 3_600_000
MINUTE = timedelta(minutes=1)


def test_message_that_is_forwarded_on_the_way_expires_on_the_way(harness: EntityHarness) -> None:
    harness.add_queue(
        "end", default_message_time_to_live=MINUTE, dead_lettering_on_message_expiration=True
    )
    harness.add_queue("start", forward_to="end")
    harness.send("start", message("x", at=HOUR_MS))
    skip_time(harness.entities, 0, 2 * HOUR_MS)
    assert dead_letter_reasons(harness.dead_letters("end")) == [("x", "TTLExpiredException")]


def test_message_is_enqueued_at_the_time_for_which_it_was_scheduled(harness: EntityHarness) -> None:
    harness.add_queue()
    harness.send("q", message("x", at=HOUR_MS), message("y", at=HOUR_MS + 1))
    skip_time(harness.entities, 0, 2 * HOUR_MS)
    assert [stored.enqueued_ms for stored in harness.queue().peek(0, 10)] == [
        HOUR_MS,
        HOUR_MS + 50,  # as with a tick every 50 milliseconds
    ]


def test_idle_queue_is_kept_until_its_scheduled_message_was_due(harness: EntityHarness) -> None:
    harness.add_queue(auto_delete_on_idle=5 * MINUTE)
    harness.send("q", message("x", at=HOUR_MS))
    skip_time(harness.entities, 0, HOUR_MS + 4 * MINUTE_MS)
    assert peek(harness.queue()) == ["x"]
    skip_time(harness.entities, HOUR_MS + 4 * MINUTE_MS, HOUR_MS + 5 * MINUTE_MS)
    assert harness.deleted == ["q"]


def test_next_event_of_renewed_and_settled_locks_is_the_last_renewal(
    harness: EntityHarness,
) -> None:
    queue = harness.add_queue()
    assert harness.entities.next_event_ms() is None
    harness.send("q", message("x"), message("y"))
    renewed, settled = lock_all(queue)
    queue.renew_lock(renewed, SECOND_MS)
    queue.complete(settled, SECOND_MS)
    assert harness.entities.next_event_ms() == SECOND_MS + MINUTE_MS


def test_session_lock_ends_on_the_way(harness: EntityHarness) -> None:
    queue = harness.add_queue(requires_session=True)
    assert queue.sessions is not None
    queue.sessions.accept("a", object(), 0)
    assert harness.entities.next_event_ms() == MINUTE_MS
    skip_time(harness.entities, 0, HOUR_MS)
    assert harness.entities.next_event_ms() is None
