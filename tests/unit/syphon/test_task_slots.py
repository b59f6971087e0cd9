"""The tasks that run at a time."""

import pytest

from pairbus.syphon.task_slots import TaskSlots

pytestmark = pytest.mark.rule("Y9")


def test_tasks_of_one_machine_share_the_rate():
    slots = TaskSlots(4, on_one_machine=True)
    assert slots.rate_shares(10) == 1
    assert slots.max_tasks(is_paced=True) == 4
    assert slots.max_tasks(is_paced=False) is None


@pytest.mark.parametrize(
    ("count", "queues", "shares"), [(4, 10, 4), (4, 2, 2), (None, 10, 10), (None, 1, 1)]
)
def test_rate_is_divided_among_the_tasks_of_a_cluster(count: int | None, queues: int, shares: int):
    slots = TaskSlots(count)
    assert slots.rate_shares(queues) == shares
    assert slots.max_tasks(is_paced=True) is None
