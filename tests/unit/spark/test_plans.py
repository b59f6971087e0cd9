"""The division of a micro-batch among tasks."""

from pairbus.spark.messages import ReceivedMessage
from pairbus.spark.plans import BatchPlan

QUEUES = ("q0", "q1", "q2", "q3")


def first_messages(*queues: str) -> dict[str, ReceivedMessage]:
    return {queue: ReceivedMessage(queue, b"payload", b"token") for queue in queues}


def test_only_queues_with_a_first_message_are_read():
    plan = BatchPlan(100, first_messages("q1", "q3"), frozenset({"blocked"}))

    parts = plan.split(QUEUES, partitions=4, number=0)

    assert [part.queues for part in parts] == [("q1",), ("q3",)]
    assert [[m.queue for m in part.first_messages] for part in parts] == [["q1"], ["q3"]]
    assert [part.max_messages for part in parts] == [50, 50]
    assert all(part.blocked == {"blocked"} for part in parts)


def test_each_queue_is_read_first_in_its_turn():
    plan = BatchPlan(100, first_messages(*QUEUES))

    first_queues = [plan.split(QUEUES, partitions=1, number=n)[0].queues[0] for n in range(5)]

    assert first_queues == ["q0", "q1", "q2", "q3", "q0"]


def test_each_task_reads_at_least_one_message():
    parts = BatchPlan(1, first_messages(*QUEUES)).split(QUEUES, partitions=4, number=0)

    assert [part.max_messages for part in parts] == [1, 1, 1, 1]


def test_each_queue_with_messages_is_one_task():
    plan = BatchPlan(1000, first_messages("q0", "q2", "q3"))

    parts = plan.split(QUEUES, partitions=len(QUEUES), number=5)

    assert [part.queues for part in parts] == [("q0",), ("q2",), ("q3",)]


def test_micro_batch_may_have_fewer_tasks_than_queues():
    parts = BatchPlan(100, first_messages(*QUEUES), max_tasks=2).split(
        QUEUES, partitions=len(QUEUES), number=0
    )
    assert len(parts) == 2
    assert {queue for part in parts for queue in part.queues} == set(QUEUES)
