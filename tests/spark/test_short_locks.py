"""A backlog queue with short locks, and a slow primary."""

from datetime import timedelta

import pytest

from tests.backlog import Backlog
from tests.messages import numbered
from tests.spark.conftest import Drain

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.fixture
def lock_duration() -> timedelta:
    return timedelta(seconds=10)


@pytest.mark.rule("Y13")
def test_short_locks_are_not_lost_while_the_primary_is_slow(
    backlog: Backlog, drain: Drain, lock_duration: timedelta
) -> None:
    """The drain takes longer than the locks last."""
    path = backlog.path("orders")
    count = 1500 * int(lock_duration.total_seconds())
    backlog.put(path, numbered(count))
    # At most four deliveries of 500 messages are in flight, so that is 1,000 messages a second.
    slow = backlog.primary.add_fault("answer-late", path, seconds=2)

    status = drain()

    assert slow.fired >= count // 500
    assert status.drained
    assert status.unsettled == 0
    assert sorted(backlog.ids(path)) == sorted(f"m-{n}" for n in range(count))
    meter = backlog.secondary.meter()
    received = sum(
        meter[queue, "receive"].messages for queue in backlog.queues if (queue, "receive") in meter
    )
    assert received == count
